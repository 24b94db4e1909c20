"""The learning curve on the user's own data: every method, every number of labels, every seed, on one test set."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from textgraft import __version__
from textgraft.comparison.cells import ANSWERS, Cell, Cells, Known, Place
from textgraft.comparison.learning_curve import budget_results, efficiency_verdicts, label_efficiency
from textgraft.comparison.methods import (
    METHODS,
    MIN_UNLABELLED,
    Method,
    MethodOptions,
    method_class,
    model_for,
    new_method,
)
from textgraft.core import formatting
from textgraft.core.errors import UserError, did_you_mean
from textgraft.core.resource_meter import Meter
from textgraft.data.checks import check, to_json
from textgraft.data.examples import Examples, TargetKind, validate_not_single_text
from textgraft.data.labels import Labels, kind_of_texts
from textgraft.data.readers import read, read_optional
from textgraft.data.splits import nested_order, stratified_split
from textgraft.metrics.classification import HEADLINE
from textgraft.models.default_models import default_models_for
from textgraft.tasks.classification.evaluation import Comparison, Outcome
from textgraft.training.driver import content_hash, work_folder
from textgraft.training.provenance import provenance
from textgraft.training.results_folder import finished, refuse_existing, write_results

BUDGETS = (50, 100, 200, 500, 1_000)
"""Tried, with all labels, where nothing else is asked for and there are more labels than that."""
HELD_OUT = 0.2


@dataclass(frozen=True)
class Question:
    """The data of a comparison, the same for every method; `orders` has for each seed the texts as they are drawn."""

    train: Examples
    test: Examples
    held_out: bool
    labels: Labels
    pool: Sequence[str]
    budgets: tuple[int, ...]
    orders: Mapping[int, Sequence[int]]

    def sample(self, count: int, seed: int) -> Examples:
        """The first `count` texts of the seed's order, in file order: budget 100 holds budget 50."""
        return self.train.take(sorted(self.orders[seed][:count]))

    def places(self, method: str, counts: Sequence[int] | None = None) -> list[Place]:
        """The trainings of one method, fewest labels first."""
        return [Place(method, count, seed) for count in counts or self.budgets for seed in self.orders]


def compare(
    train: Any,
    out: Path | str,
    *,
    test: Any = None,
    unlabelled: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    labels: Sequence[int | str] | None = None,
    options: MethodOptions | None = None,
    reuse: Path | str | None = None,
) -> dict[str, Any]:
    """Learning curves: scores of every method for every number of labels, with results.json and report.html in `out`.

    For each seed one stratified order of the training texts is drawn, whose beginnings every method is trained on.
    Methods that use unlabelled text are trained on `unlabelled` and nothing else, once; that time counts in each of
    their rows. Nothing is chosen by the test texts. Rows are shown on stderr as they come. Killed, the same call goes
    on where it was and ends with the same numbers. Beside the results lie the predictions, answers.safetensors: a
    tensor a training, (N, C) or (N,), in the order of the test texts.

    Args:
        train: Labelled texts: anything that `read` takes.
        out: Folder for the results.
        test: Labelled texts to measure on; None: a stratified fifth of `train`, split off first.
        unlabelled: Texts without labels.
        methods: Names of comparison.methods.METHODS, or METHOD@MODEL with another model, or several
            (methods.new_method); None: all that the texts allow and that use `options.model` or none.
        labels: Numbers of labels, or "all"; None: BUDGETS below what there is, and all.
        options: Seeds, the language model, and how it is trained.
        reuse: The `out` of another comparison on the same texts by the same settings, finished or not, whose
            predictions are taken for the same method, number of labels and seed: so one grows by methods, labels and
            seeds.

    Returns:
        The results as in results.json.

    Raises:
        UserError: `out` exists; methods are unknown or lack unlabelled text; there are fewer labels than asked for, or
            fewer than classes; labels cannot be learned, or are unseen in training; or `reuse` has no predictions, or
            those of another question.
    """
    out, options = Path(out), options or MethodOptions()
    refuse_existing(out)
    validate_not_single_text(unlabelled, name="unlabelled")
    train, test = read(train), read_optional(test)
    question = _question(train, test, unlabelled, labels, options.draws)
    options = replace(options, kind=kind_of_texts(train, question.labels), usual=default_models_for(train.texts))
    names = chosen_methods(methods, kind=question.labels.kind, pool=len(question.pool))
    made = {name: new_method(name, options) for name in names}
    asked = _asked(question, made, options)
    known = None if reuse is None else Known.open(Path(reuse), asked)
    folder = work_folder(out, asked)
    if out.exists():
        return finished(out, content_hash(asked.items()))
    cells, places = Cells(folder), [place for name in names for place in question.places(name)]
    reused: dict[str, str] = {}
    if known is not None:
        share = f"{len(cells.take(known, places)):,} of {len(places):,} trainings"
        reused = {"reused": f"{share}, with their minutes, from {known.name}"}
        if options.show:
            print(f"{share} are taken from {reuse}", file=sys.stderr, flush=True)
    for name in names:
        _run_method(made.pop(name), question, cells, show=options.show)
    results = _results(question, names, cells) | _run_facts(out, question, asked, options)
    results["run"] |= reused
    # Here, because drawing loads matplotlib, which takes as long as torch.
    from textgraft.comparison.report import render_curves

    write_results(out, results, render_curves(results), {ANSWERS: cells.all_in_one(places, asked)})
    return results


def chosen_methods(names: Sequence[str] | None, *, kind: TargetKind, pool: int) -> list[str]:
    """The methods to run on targets of `kind`, where there are `pool` unlabelled texts.

    Where none is named, those with models of their own are left out. Raises UserError for unknown ones, for another
    kind, and for those that learn from unlabelled texts where those are too few.
    """
    if names is None:
        able = [name for name, method in METHODS.items() if kind in method.kinds and not method.model]
        if not able:
            raise UserError(f"there is no method to compare for labels of kind '{kind}'.", remedy="Use finetune.")
        return [name for name in able if pool >= MIN_UNLABELLED or not METHODS[name].needs_pool]
    for name in names:
        method = method_class(name)
        if kind not in method.kinds:
            can = " or ".join(method.kinds)
            raise UserError(f"method '{name}' is for {can} labels, and these are {kind}.", remedy="Leave it out.")
        if method.needs_pool and pool < MIN_UNLABELLED:
            raise UserError(
                f"method '{name}' learns from unlabelled texts, and there are {pool or 'none'}.",
                remedy=f"Give {MIN_UNLABELLED} or more with --unlabelled, or leave the method out.",
            )
    if not names:
        raise UserError("no method is named.", remedy=did_you_mean("", METHODS))
    return list(dict.fromkeys(names))


def chosen_budgets(
    labels: Sequence[int | str] | None, train: Examples, *, classes: int, held_out: int = 0
) -> tuple[int, ...]:
    """Numbers of labels, ascending; "all" is what `train` has. Raises UserError for what cannot be drawn from it.

    `classes` is how many there are, 0 for a numeric target; `held_out` how many texts were taken away to measure on.
    """
    most, least = len(train), max(2, classes)
    if labels is None:
        return (*(n for n in BUDGETS if least <= n < most), most)
    found = set()
    for given in labels:
        text = str(given).strip().replace("_", "")
        if text != "all" and not text.isdecimal():
            raise UserError(f"'{given}' is no number of labels.", remedy="Give numbers, or all, such as 50,100,all.")
        count = most if text == "all" else int(text)
        if count > most:
            rest = f" when {held_out:,} are held out to measure on" if held_out else ""
            raise UserError(
                f"{count:,} labels are asked for, and there are {most:,} to train on{rest}.",
                where=train.source,
                remedy="Ask for fewer, or for 'all'.",
            )
        if count < least:
            raise UserError(
                f"{count:,} is too few labels" + (f" for {classes} classes." if classes else "."),
                where=train.source,
                remedy=f"Ask for {least} or more.",
            )
        found.add(count)
    if not found:
        raise UserError("no number of labels is named.", remedy="Give some, such as 50,100,all.")
    return tuple(sorted(found))


def _question(
    train: Examples,
    test: Examples | None,
    unlabelled: Sequence[str] | None,
    budgets: Sequence[int | str] | None,
    seeds: range,
) -> Question:
    labels, held_out = Labels.fit(train), test is None
    if test is None:
        kept, held = stratified_split(train, HELD_OUT, seeds.start)
        train, test = train.take(kept), train.take(held)
    if not len(test):
        raise UserError("the test set holds no texts.", where=test.source, remedy="Add some, or leave it out.")
    labels.encode(test)
    orders = {seed: nested_order(train, seed) for seed in seeds}
    taken = len(test) if held_out else 0
    chosen = chosen_budgets(budgets, train, classes=len(labels.names), held_out=taken)
    return Question(train, test, held_out, labels, list(unlabelled or ()), chosen, orders)


def _asked(question: Question, methods: Mapping[str, Method], options: MethodOptions) -> dict[str, Any]:
    """Everything that the numbers depend on; two runs that differ in any of it are different runs."""
    parts = {"train": question.train, "test": question.test}
    return {
        "stage": "compare",
        "textgraft": __version__,
        **{
            name: content_hash(x for row in zip(p.texts, p.labels or (), strict=True) for x in row)
            for name, p in parts.items()
        },
        "unlabelled": content_hash(question.pool),
        "methods": {name: method.fingerprint for name, method in methods.items()},
        "labels": list(question.budgets),
        "seeds": list(question.orders),
        "seed": options.seed,
        "max_tokens": options.max_tokens,
        "precision": options.precision,
    }


def _run_method(method: Method, question: Question, cells: Cells, *, show: bool) -> None:
    """Fill in the cells of one method that are not there yet, fewest labels first."""
    if not all(cells.has(place) for place in question.places(method.name)):
        with Meter() as meter:
            seconds = method.prepare(question.pool, cells.prepared)
        if not cells.has_cost(method.name):  # a second time it only takes up what the first has left
            cells.write_cost(method.name, {"seconds": max(seconds, meter.seconds), "peak_mb": meter.peak_mb})
    for count in question.budgets:
        found = [_cell(method, question, cells, place) for place in question.places(method.name, [count])]
        if show:
            print(_row(method.name, question, cells, count, found), file=sys.stderr, flush=True)


def _cell(method: Method, question: Question, cells: Cells, place: Place) -> Cell:
    """One training's answers, from its file if that is there."""
    work = cells.work(place)
    if not cells.has(place):
        sample = question.sample(place.labels, place.seed)
        # A number's scale is learned from the sample, for its owner would know no other labels.
        labels = Labels.fit(sample) if question.labels.kind == "numeric" else question.labels
        with Meter() as meter:
            answers = method.answer(sample, question.test.texts, labels, place.seed, work)
        outputs, seconds = _rescaled(answers.outputs, labels, question.labels), max(answers.seconds, meter.seconds)
        cells.write(place, Cell(outputs, seconds, meter.peak_mb, answers.model_bytes, answers.about))
    shutil.rmtree(work, ignore_errors=True)
    return cells.read(place)


def _rescaled(outputs: np.ndarray, own: Labels, common: Labels) -> np.ndarray:
    return outputs if own == common else (outputs * own.std + own.mean - common.mean) / common.std


def _outcome(method: str, cells: Cells, found: Sequence[Cell]) -> Outcome:
    once = cells.cost(method)
    outputs = np.stack([cell.outputs for cell in found])
    return Outcome(
        name=method,
        outputs=outputs,
        raw=outputs,
        minutes=(once["seconds"] + float(np.mean([cell.seconds for cell in found]))) / 60,
        peak_mb=max(once["peak_mb"], *(cell.peak_mb for cell in found)),
        about=found[0].about or method_class(method).about,
    )


def _row(method: str, question: Question, cells: Cells, count: int, found: Sequence[Cell]) -> str:
    """One line of the table that grows on stderr."""
    targets = question.labels.encode(question.test)
    outcome = _outcome(method, cells, found)
    comparison = Comparison(question.labels, targets, (outcome,))
    score = formatting.interval(*comparison.interval(outcome), comparison.headline)
    return f"{count:>7,} labels  {method:<10} {score:<26} {outcome.minutes:7.2f} min  {outcome.peak_mb:7,.0f} MB"


def _results(question: Question, names: Sequence[str], cells: Cells) -> dict[str, Any]:
    """Everything that the cells say: the same cells, the same results."""
    targets, metric = question.labels.encode(question.test), HEADLINE[question.labels.kind]
    budgets = []
    for count in question.budgets:
        found = {name: [cells.read(place) for place in question.places(name, [count])] for name in names}
        outcomes = tuple(_outcome(name, cells, found[name]) for name in names)
        sizes = {name: max(cell.model_bytes for cell in found[name]) / 2**20 for name in names}
        budgets.append(budget_results(Comparison(question.labels, targets, outcomes), labels=count, model_mb=sizes))
    curves = {name: [(b["labels"], b["methods"][name][metric]["mean"]) for b in budgets] for name in names}
    results: dict[str, Any] = {
        "test_n": len(question.test),
        "seeds": len(question.orders),
        "metric": metric,
        "budgets": budgets,
        "label_efficiency": label_efficiency(curves, lower_is_better=question.labels.kind == "numeric"),
    }
    return results | {"verdict": [b["verdict"] for b in budgets] + efficiency_verdicts(results)}


def _run_facts(out: Path, question: Question, asked: Mapping[str, Any], options: MethodOptions) -> dict[str, Any]:
    """The run and its data, as in results.json."""
    parts = {"train": question.train, "test": question.test}
    data: dict[str, Any] = {
        name: {"source": Path(part.source).name, "texts": len(part), "sha256": asked[name]}
        for name, part in parts.items()
    }
    if question.held_out:
        data["test"]["held_out"] = f"a stratified fifth of {Path(question.train.source).name}, split off once"
    if question.pool:
        data["unlabelled"] = {"texts": len(question.pool), "sha256": asked["unlabelled"]}
    facts = provenance(
        stage="compare", name=out.name, base={}, data=data, recipe=options.recipe, settings=options.settings
    )
    reading = [name for name, known in asked["methods"].items() if known]
    read = dict.fromkeys(str(model_for(n, options)) for n in reading if "@" not in n and not METHODS[n].model)
    facts |= {"seeds": list(question.orders), "model": ", ".join(read) or None}
    facts |= {"max_tokens": options.max_tokens, "adapt_minutes": options.adapt_minutes, "minutes": options.minutes}
    if not any(asked["methods"].values()):  # none of them is a language model
        facts |= dict.fromkeys(("recipe", "max_tokens", "precision"))
    del facts["settings"]  # the stages' own are in the recipe
    pool = Examples(question.pool, source="the unlabelled texts") if question.pool else None
    return {
        "held_out": question.held_out,
        "methods": {name: method_class(name).about for name in asked["methods"]},
        "run": {k: v for k, v in facts.items() if v is not None},
        "problems": to_json(check(question.train, test=question.test, unlabelled=pool)),
        "asked": content_hash(asked.items()),
    }
