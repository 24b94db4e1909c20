"""Learning curves on the user's own data: every method, number of labels and seed, on one test set."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from textgraft import __version__
from textgraft.comparison.cells import ANSWERS, Cell, Cells, ReusedCells
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
from textgraft.comparison.training import CellTrainer, ComparisonPlan
from textgraft.core import formatting
from textgraft.core.errors import UserError, did_you_mean
from textgraft.core.identity import content_hash
from textgraft.core.resource_meter import Meter
from textgraft.data.checks import check_and_warn
from textgraft.data.examples import Examples, TargetKind, validate_not_single_text
from textgraft.data.held_out import read_held_out
from textgraft.data.labels import Labels, kind_of_texts
from textgraft.data.problems import Problem, to_json
from textgraft.data.readers import read
from textgraft.data.splits import nested_order, stratified_split
from textgraft.data.unlabelled import labelled_only, with_unlabelled
from textgraft.engines.local import LOCAL
from textgraft.metrics.classification import HEADLINE
from textgraft.models.default_models import default_models_for
from textgraft.tasks.classification.evaluation import Comparison, Outcome
from textgraft.tasks.classification.unseen_labels import UnseenLabels
from textgraft.training.driver import work_folder
from textgraft.training.provenance import provenance
from textgraft.training.results_folder import finished, validate_new_path, write_results
from textgraft.training.run_lock import exclusive

BUDGETS = (50, 100, 200, 500, 1_000)
"""Default numbers of labels, as far as there are more labels than that; all labels are always added."""
HELD_OUT = 0.2


@exclusive
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
    """Compare methods over numbers of labels and seeds; write `out`/results.json and report.html.

    For each seed one stratified order of the training texts is drawn; every method is trained on the beginnings of it.
    All are measured on the same test texts, by which nothing is chosen. Rows are printed to stderr as they are
    finished. After an interruption the same call continues and ends with the same numbers. answers.safetensors holds
    the predictions: a tensor (N, C) or (N,) for each training, in the order of the test texts.

    Args:
        train: Labelled texts, as `textgraft.read` takes them. Those without a label are used as unlabelled texts.
        out: Folder to write; it must not exist.
        test: Labelled texts to measure on (None: a stratified fifth of `train`, split off first).
        unlabelled: Texts for the methods that use unlabelled text. They use these and nothing else, once; that time is
            counted in each of their rows.
        methods: Names in textgraft.comparison.methods.METHODS, or METHOD@MODEL for another model, or several models
            (methods.new_method). None: all that fit the labels and texts and have no default model of their own.
        labels: Numbers of labels, or "all" (None: BUDGETS below the number of training texts, and all).
        options: Language model, recipe and limits.
        reuse: `out` of another comparison on the same texts with the same settings, finished or not. Its predictions
            are reused where method, number of labels and seed are the same, so that a comparison can grow.

    Returns:
        The contents of results.json.

    Raises:
        UserError: `out` exists; a method is unknown or lacks unlabelled texts; a number of labels is larger than the
            data or smaller than the number of classes; labels cannot be learned, or none of the test set's occurs in
            training; `reuse` has no predictions, or those of another comparison.
    """
    out, options = Path(out), options or MethodOptions()
    validate_new_path(out)
    validate_not_single_text(unlabelled, name="unlabelled")
    train, unlabelled = with_unlabelled(read(train), unlabelled)
    test = None if test is None else labelled_only(read_held_out(test, train))
    plan = _plan(train, test, unlabelled, labels, options.sample_seeds)
    problems = check_and_warn(plan.train, test=plan.test, unlabelled=plan.pool)
    options = replace(options, kind=kind_of_texts(train, plan.labels), default_models=default_models_for(train.texts))
    names = chosen_methods(methods, kind=plan.labels.kind, pool=len(plan.pool))
    new_methods = {name: new_method(name, options) for name in names}
    identity = _identity(plan, new_methods, options)
    reused_cells = None if reuse is None else ReusedCells.open(Path(reuse), identity)
    folder = work_folder(out, identity)
    if out.exists():
        return finished(out, content_hash(identity.items()))
    cells, keys = Cells(folder), [key for name in names for key in plan.keys(name)]
    reused_facts: dict[str, str] = {}
    if reused_cells is not None:
        share = f"{len(cells.copy_from(reused_cells, keys)):,} of {len(keys):,} trainings"
        reused_facts = {"reused": f"{share}, with their minutes, from {reused_cells.name}"}
        if options.show:
            print(f"{share} are reused from {reuse}", file=sys.stderr, flush=True)
    for name in names:
        _run_method(new_methods.pop(name), plan, cells, options)
    results = _results(plan, names, cells) | _run_facts(out, plan, identity, options, problems)
    results["run"] |= reused_facts
    # Imported here because matplotlib takes as long to load as torch.
    from textgraft.comparison.report import render_curves

    write_results(out, results, render_curves(results), {ANSWERS: cells.write_all(keys, identity)})
    return results


def chosen_methods(names: Sequence[str] | None, *, kind: TargetKind, pool: int) -> list[str]:
    """Names of the methods to run on targets of `kind`, with `pool` unlabelled texts.

    Without `names`, methods with a default model of their own are left out.

    Raises:
        UserError: A method is unknown, does not support this kind of target, or needs more unlabelled texts.
    """
    if names is None:
        suitable = [name for name, method in METHODS.items() if kind in method.kinds and not method.model]
        if not suitable:
            raise UserError(f"no method supports labels of kind '{kind}'.", remedy="Use `textgraft finetune`.")
        return [name for name in suitable if pool >= MIN_UNLABELLED or not METHODS[name].needs_pool]
    for name in names:
        method = method_class(name)
        if kind not in method.kinds:
            supported = " or ".join(method.kinds)
            raise UserError(f"method '{name}' supports {supported} labels; these are {kind}.", remedy="Leave it out.")
        if method.needs_pool and pool < MIN_UNLABELLED:
            raise UserError(
                f"method '{name}' needs unlabelled texts; there are {pool or 'none'}.",
                remedy=f"Give {MIN_UNLABELLED} or more with unlabelled=…, or leave the method out.",
            )
    if not names:
        raise UserError("there are no methods to compare.", remedy=did_you_mean("", METHODS))
    return list(dict.fromkeys(names))


def chosen_budgets(
    labels: Sequence[int | str] | None, train: Examples, *, classes: int, held_out: int = 0
) -> tuple[int, ...]:
    """Numbers of labels in ascending order; "all" is the size of `train`.

    Args:
        labels: Numbers or "all" (None: BUDGETS below the size of `train`, and all).
        train: Texts to train on.
        classes: Number of classes, 0 for a numeric target.
        held_out: Number of texts that were split off to measure on, for the message.

    Raises:
        UserError: A number is larger than `train` or smaller than the number of classes.
    """
    maximum, minimum = len(train), max(2, classes)
    if labels is None:
        return (*(n for n in BUDGETS if minimum <= n < maximum), maximum)
    budgets = set()
    for label_count in labels:
        text = str(label_count).strip().replace("_", "")
        if text != "all" and not text.isdecimal():
            raise UserError(
                f"'{label_count}' is not a number of labels.", remedy="Give numbers or all, such as 50,100,all."
            )
        count = maximum if text == "all" else int(text)
        if count > maximum:
            rest = f" after {held_out:,} are held out for testing" if held_out else ""
            raise UserError(
                f"{count:,} labels are more than the {maximum:,} to train on{rest}.",
                where=train.source,
                remedy="Give fewer, or all.",
            )
        if count < minimum:
            raise UserError(
                f"{count:,} is too few labels" + (f" for {classes} classes." if classes else "."),
                where=train.source,
                remedy=f"Give {minimum} or more.",
            )
        budgets.add(count)
    if not budgets:
        raise UserError("there are no numbers of labels.", remedy="Give numbers or all, such as 50,100,all.")
    return tuple(sorted(budgets))


def _plan(
    train: Examples,
    test: Examples | None,
    unlabelled: Sequence[str] | None,
    budgets: Sequence[int | str] | None,
    seeds: range,
) -> ComparisonPlan:
    labels, held_out = Labels.fit(train), test is None
    if test is None:
        kept_indices, held_out_indices = stratified_split(train, HELD_OUT, seeds.start)
        train, test = train.take(kept_indices), train.take(held_out_indices)
    if not len(test):
        raise UserError("the test set has no texts.", where=test.source, remedy="Add some, or leave it out.")
    labels.covering(test).encode(test)  # raises UserError
    orders = {seed: nested_order(train, seed) for seed in seeds}
    held_out_size = len(test) if held_out else 0
    label_budgets = chosen_budgets(budgets, train, classes=len(labels.names), held_out=held_out_size)
    return ComparisonPlan(train, test, held_out, labels, list(unlabelled or ()), label_budgets, orders)


def _identity(plan: ComparisonPlan, methods: Mapping[str, Method], options: MethodOptions) -> dict[str, Any]:
    """Everything that the results depend on: a change in any of it makes another run."""
    parts = {"train": plan.train, "test": plan.test}
    return {
        "stage": "compare",
        "textgraft": __version__,
        **{name: part.content_hash() for name, part in parts.items()},
        "unlabelled": content_hash(plan.pool),
        "methods": {name: method.fingerprint for name, method in methods.items()},
        "labels": list(plan.budgets),
        "seeds": list(plan.orders),
        "seed": options.seed,
        "max_tokens": options.max_tokens,
        "precision": options.precision,
    }


def _run_method(method: Method, plan: ComparisonPlan, cells: Cells, options: MethodOptions) -> None:
    """Fill in the missing cells of one method, fewest labels first."""
    keys = plan.keys(method.name)
    missing = [key for key in keys if not cells.has(key)]
    if missing:
        with Meter() as meter:
            seconds = method.prepare(plan.pool, cells.prepared)
        if not cells.has_cost(method.name):  # a second call only loads the results of the first
            cells.write_cost(method.name, {"seconds": max(seconds, meter.seconds), "peak_mb": meter.peak_mb})
    trainer = CellTrainer(method.name, plan, replace(options, engine=LOCAL), cells.folder.absolute(), method)
    trained = options.engine.map(trainer, missing)
    for count in plan.budgets:
        of_count = plan.keys(method.name, [count])
        while not all(map(cells.has, of_count)):
            key, cell = next(trained)
            cells.write(key, cell)
            shutil.rmtree(cells.work(key), ignore_errors=True)
        if options.show:
            shown = _row(method.name, plan, cells, count, [cells.read(key) for key in of_count])
            print(shown, file=sys.stderr, flush=True)


def _outcome(method: str, cells: Cells, method_cells: Sequence[Cell]) -> Outcome:
    preparation = cells.cost(method)
    outputs = np.stack([cell.outputs for cell in method_cells])
    return Outcome(
        name=method,
        outputs=outputs,
        raw=outputs,
        minutes=(preparation["seconds"] + float(np.mean([cell.seconds for cell in method_cells]))) / 60,
        peak_mb=max(preparation["peak_mb"], *(cell.peak_mb for cell in method_cells)),
        about=method_cells[0].about or method_class(method).about,
    )


def _row(method: str, plan: ComparisonPlan, cells: Cells, count: int, method_cells: Sequence[Cell]) -> str:
    """One line of the table on stderr."""
    outcome = _outcome(method, cells, method_cells)
    comparison = Comparison(plan.test_labels, plan.test_targets, (outcome,))
    score = formatting.interval(*comparison.interval(outcome), comparison.headline)
    return f"{count:>7,} labels  {method:<10} {score:<26} {outcome.minutes:7.2f} min  {outcome.peak_mb:7,.0f} MB"


def _results(plan: ComparisonPlan, names: Sequence[str], cells: Cells) -> dict[str, Any]:
    """The body of results.json, made from the cells alone."""
    metric, labels, targets = HEADLINE[plan.labels.kind], plan.test_labels, plan.test_targets
    budgets = []
    for count in plan.budgets:
        method_cells = {name: [cells.read(key) for key in plan.keys(name, [count])] for name in names}
        outcomes = tuple(_outcome(name, cells, method_cells[name]) for name in names)
        sizes = {name: max(cell.model_bytes for cell in method_cells[name]) / 2**20 for name in names}
        budgets.append(budget_results(Comparison(labels, targets, outcomes), labels=count, model_mb=sizes))
    curves = {name: [(b["labels"], b["methods"][name][metric]["mean"]) for b in budgets] for name in names}
    results: dict[str, Any] = {
        "test_n": len(plan.test),
        "seeds": len(plan.orders),
        "metric": metric,
        "budgets": budgets,
        "label_efficiency": label_efficiency(curves, lower_is_better=plan.labels.lower_is_better),
    }
    verdict = [budget["verdict"] for budget in budgets] + efficiency_verdicts(results)
    if unseen := UnseenLabels.of(labels, plan.labels.num_outputs, targets):
        results["unseen_labels"] = unseen.counts
        verdict.append(str(unseen))
    return results | {"verdict": verdict}


def _run_facts(
    out: Path,
    plan: ComparisonPlan,
    identity: Mapping[str, Any],
    options: MethodOptions,
    problems: Sequence[Problem],
) -> dict[str, Any]:
    """Provenance of the run and notes on the data."""
    parts = {"train": plan.train, "test": plan.test}
    data: dict[str, Any] = {
        name: {"source": Path(part.source).name, "texts": len(part), "sha256": identity[name]}
        for name, part in parts.items()
    }
    if plan.held_out:
        data["test"]["held_out"] = f"a stratified fifth of {Path(plan.train.source).name}, split off once"
    if plan.pool:
        data["unlabelled"] = {"texts": len(plan.pool), "sha256": identity["unlabelled"]}
    facts = provenance(
        stage="compare", name=out.name, base={}, data=data, recipe=options.recipe, settings=options.settings
    )
    model_methods = [name for name, fingerprint in identity["methods"].items() if fingerprint]
    model_names = dict.fromkeys(
        str(model_for(method, options)) for method in model_methods if "@" not in method and not METHODS[method].model
    )
    facts |= {"seeds": list(plan.orders), "model": ", ".join(model_names) or None}
    facts |= {"max_tokens": options.max_tokens, "adapt_minutes": options.adapt_minutes, "minutes": options.minutes}
    if not any(identity["methods"].values()):  # no method uses a language model
        facts |= dict.fromkeys(("recipe", "max_tokens", "precision"))
    del facts["settings"]  # the stages' own are in the recipe
    return {
        "held_out": plan.held_out,
        "methods": {name: method_class(name).about for name in identity["methods"]},
        "run": {k: v for k, v in facts.items() if v is not None},
        "problems": to_json(problems),
        "asked": content_hash(identity.items()),
    }
