"""Which layers serve a task best? A head on an encoder that does not learn, through each layer aggregation, several
seeds each.

Table 7 of Devlin et al. 2019 on any task of words with tags or of labelled texts, and any encoder. Where we differ: the
head over words is one linear layer, theirs two layers of LSTM; sums are plain; and the mixes that are learned stand
beside their six.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from textgraft.core import formatting
from textgraft.core.errors import UserError
from textgraft.core.files import write_atomically
from textgraft.data.conll import Tagged
from textgraft.data.examples import Examples, validate_types
from textgraft.data.labels import Labels
from textgraft.data.splits import nested_order
from textgraft.metrics.classification import HEADLINE, document_scores
from textgraft.metrics.paired_differences import holm
from textgraft.metrics.tagging import Ratio, paired_ratio_test
from textgraft.models import loading
from textgraft.models.artifact import Artifact
from textgraft.models.default_models import default_models_for
from textgraft.nn.layer_aggregation import LAST, LAYER_AGGREGATIONS, new_layer_aggregation, validate_layer_aggregation
from textgraft.tasks.classification.fine_tuned import read_parts
from textgraft.tasks.classification.training import Plan, outputs_from_logits, train_classifier
from textgraft.tasks.tagging.finetune import TagOptions, fitted, train_tagger
from textgraft.tasks.tagging.network import NetworkTagger
from textgraft.tasks.tagging.predictor import scores, tag_all
from textgraft.training.driver import content_hash, weights_hash
from textgraft.training.loop import Settings
from textgraft.training.provenance import provenance
from textgraft.training.recipes import load_recipe
from textgraft.training.results_folder import experiment, refuse_existing

Cell = dict[str, Any]
"""One training: what each sentence or text adds to both sides of the score ("part", "whole"), and "minutes"."""


@dataclass(frozen=True)
class LayerOptions:
    """Everything about the experiment but the data.

    `seeds` trainings of each of `layer_aggregations` (nn.layer_aggregation.LAYER_AGGREGATIONS), from `settings.seed`
    upwards; those that the model's layers do not allow are left out. `recipe` "frozen" lets only the head learn; the
    encoder's dropouts act meanwhile.
    """

    recipe: str = "frozen"
    layer_aggregations: tuple[str, ...] = tuple(LAYER_AGGREGATIONS)
    seeds: int = 3
    max_tokens: int = 256
    settings: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        for name in self.layer_aggregations:
            validate_layer_aggregation(name)
        if self.seeds < 1:
            raise UserError(f"seeds is {self.seeds}.", remedy="Give 1 or more.")


class Task(Protocol):
    """Something to learn through a layer aggregation, and what is measured of it."""

    unit: str
    metric: str

    def described(self) -> dict[str, Any]:
        """What it depends on."""

    def trained(self, layer_aggregation: str, seed: int, folder: Path, *, show: bool) -> Cell:
        """One training, its unfinished work in `folder`; nothing is kept but the answers."""


class Tagging:
    """Words with tags: accuracy over words, or F1 of entities. Raises UserError as `tag_finetune` does."""

    unit = "sentences"

    def __init__(self, source: Artifact, train: Tagged, test: Tagged, options: LayerOptions) -> None:
        if (train.scheme == "plain") != (test.scheme == "plain"):
            message = f"these tags are {test.scheme}, and those to learn from {train.scheme}."
            raise UserError(message, where=test.source, remedy="Name the same kind of column in both.")
        self.source, self.train, self.test, self.options = source, train, test, options
        self.metric = "accuracy" if test.scheme == "plain" else "f1"
        load_recipe(options.recipe).finetune.refuse_for_classifiers(options.recipe)

    def described(self) -> dict[str, Any]:
        parts = {"train": self.train, "test": self.test}
        return {name: {"sentences": len(p), "words": p.words, "sha256": p.content_hash()} for name, p in parts.items()}

    def trained(self, layer_aggregation: str, seed: int, folder: Path, *, show: bool) -> Cell:
        settings = replace(self.options.settings, seed=seed)
        options = TagOptions(recipe=self.options.recipe, max_tokens=self.options.max_tokens, settings=settings)
        options = fitted(replace(options, layer_aggregation=layer_aggregation), self.source)
        title = f"{layer_aggregation}, seed {seed}"
        tagger, _ = train_tagger(self.source, self.train, options, folder, title=title, show=show)
        replies, _ = tag_all(NetworkTagger(tagger, settings.precision), self.test.sentences, options.max_tokens)
        found = scores(self.test, replies).headline
        minutes = tagger.run["seconds"] / 60
        return {"part": found.part.tolist(), "whole": found.whole.tolist(), "minutes": minutes}


class Labelling:
    """Texts or pairs with labels, or questions with options: the headline metric of their kind.

    The head sees what the layer aggregation reads and nothing beside it. Raises UserError for labels unseen in
    training.
    """

    unit = "texts"

    def __init__(self, source: Artifact, train: Examples, test: Examples, options: LayerOptions) -> None:
        self.labels = Labels.fit(train)
        self.metric, self.options = HEADLINE[self.labels.kind], options
        self.encoded = read_parts(source, {"train": train, "test": test}, self.labels, options.max_tokens).parts
        self._parts, stage = {"train": train, "test": test}, load_recipe(options.recipe).finetune
        if self.encoded["test"].targets is None:
            raise UserError("these texts have no labels.", where=test.source, remedy="Give labelled ones.")
        self.plan = Plan(
            language_model=source.model,
            from_scratch=False,
            stage=stage,
            settings=options.settings,
            labels=self.labels,
            class_weights=None,
            pad_id=source.tokenizer.pad_id,
            words=False,
        )

    def described(self) -> dict[str, Any]:
        def digest(part: Examples) -> str:
            return content_hash(item for pair in zip(part.texts, part.labels or (), strict=True) for item in pair)

        return {name: {"texts": len(part), "sha256": digest(part)} for name, part in self._parts.items()}

    def trained(self, layer_aggregation: str, seed: int, folder: Path, *, show: bool) -> Cell:
        plan, kind = replace(self.plan, layer_aggregation=layer_aggregation), self.labels.kind
        tested, title = {"test": self.encoded["test"]}, f"{layer_aggregation}, seed {seed}"
        done = train_classifier(plan, self.encoded["train"], tested, seed=seed, folder=folder, title=title, show=show)
        targets = self.encoded["test"].targets
        assert targets is not None
        each = document_scores(kind, targets, outputs_from_logits(done.logits["test"], kind))
        each = each * self.labels.std if kind == "numeric" else each
        return {"part": each.tolist(), "whole": [1] * len(each), "minutes": done.seconds / 60}


def inspect_layers(
    train: Tagged | Examples,
    out: Path | str,
    *,
    test: Tagged | Examples,
    model: str | Path | None = None,
    options: LayerOptions | None = None,
    show: bool = True,
) -> dict[str, Any]:
    """Train a head through every layer aggregation that `model` allows; writes `out`/results.json and report.html.

    `train` and `test` are sentences with tags, or labelled texts. All layer aggregations see the same texts; seeds are
    of the head and of their order. Nothing is chosen by `test`, on which all are measured. `model` None takes the usual
    one for the script of the texts (textgraft.models.default_models). Killed, the same call goes on where it was and
    ends with the same numbers.

    Raises UserError if `out` exists, for data of two kinds, and where the model allows none of the layer aggregations.
    """
    refuse_existing(Path(out))
    readers = "textgraft.read or read_conll"
    validate_types(train=train, test=test, wanted=(Examples, Tagged), reader=readers)
    options, source = options or LayerOptions(), loading.load_network(model or _usual_model(train))
    options = replace(options, recipe=source.recommended_recipe(options.recipe))
    task = _task(source, train, test, options)
    possible, left_out = possible_layer_aggregations(source, options.layer_aggregations)
    asked = {
        "stage": "inspect layers",
        "data": task.described(),
        "model": weights_hash(source.model),
        "tokenizer": source.tokenizer.fingerprint,
        "recipe": load_recipe(options.recipe).finetune.identity(),
        "options": repr(options),
    }

    def made(folder: Path) -> tuple[dict[str, Any], str]:
        cells: dict[str, list[Cell]] = {name: [] for name in possible}
        for name in possible:
            for seed in range(options.settings.seed, options.settings.seed + options.seeds):
                cells[name].append(_once(task, name, seed, folder, show=show))
        rows = summary(cells, source.model.encoder.widths)
        sizes = {name: next(iter(about.values())) for name, about in task.described().items()}
        results = {"metric": task.metric, "unit": task.unit, "sizes": sizes, "seeds": options.seeds}
        results |= {"rows": rows, "left_out": left_out, "verdict": verdict(rows, task.metric)}
        settings = options.settings.of(load_recipe(options.recipe).finetune)
        about: dict[str, Any] = {"data": task.described(), "recipe": options.recipe, "settings": settings}
        results["run"] = provenance(stage="inspect layers", name=Path(out).name, base=source.run, **about)
        # Here, because drawing loads matplotlib, which takes as long as torch.
        from textgraft.experiments.layer_aggregation_report import render_layers

        return results, render_layers(results)

    return experiment(Path(out), asked, made)


def _usual_model(train: Tagged | Examples) -> str:
    """The language model where none is named."""
    texts = (" ".join(s.words) for s in train.sentences) if isinstance(train, Tagged) else train.texts
    return default_models_for(texts).alone


def sampled(data: Tagged | Examples, n: int | None) -> Tagged | Examples:
    """So many of the sentences or texts, of which a larger sample holds a smaller one; all for None."""
    if n is None or n >= len(data):
        return data
    return data.sample(n) if isinstance(data, Tagged) else data.take(sorted(nested_order(data, 0)[:n]))


def possible_layer_aggregations(
    source: Artifact, layer_aggregations: Sequence[str]
) -> tuple[list[str], dict[str, str]]:
    """Those that the model's layers allow, and why the others cannot be. Raises UserError where there are none."""
    possible, left_out = [], {}
    for name in layer_aggregations:
        try:
            new_layer_aggregation(name, source.model.encoder.widths)
            possible.append(name)
        except UserError as error:
            left_out[name] = error.message
    if not possible:
        raise UserError(
            "this model allows none of these layer aggregations.", where="layers", remedy="Name 'first' or 'last'."
        )
    return possible, left_out


def summary(cells: Mapping[str, Sequence[Cell]], widths: Sequence[int]) -> list[dict[str, Any]]:
    """A row a layer aggregation: score with interval, spread over seeds, the paired test against `last`, what it cost.

    The score is that of all seeds together, its 95 % interval over sentences or texts, "spread" the standard deviation
    over seeds. "p_holm" holds for all tests against `last` together.
    """
    ratios = {name: _together(runs) for name, runs in cells.items()}
    tests = {}
    if LAST in ratios and ratios[LAST].value is not None:
        others = [name for name in ratios if name != LAST and ratios[name].value is not None]
        tests = {name: paired_ratio_test(ratios[name], ratios[LAST]) for name in others}
    adjusted = holm({name: test.p for name, test in tests.items()})
    rows = []
    for name, runs in cells.items():
        own = [Ratio(np.array(run["part"]), np.array(run["whole"])).value or 0.0 for run in runs]
        interval = ratios[name].interval()
        row: dict[str, Any] = {
            "layer_aggregation": name,
            "width": new_layer_aggregation(name, widths).output_dim,
            "seeds": len(runs),
        }
        row |= {"score": None if interval is None else interval._asdict()}
        row |= {"spread": float(np.std(own, ddof=1)) if len(own) > 1 else None}
        row |= {"against_last": tests[name]._asdict() | {"p_holm": adjusted[name]} if name in tests else None}
        rows.append(row | {"minutes": float(np.mean([run["minutes"] for run in runs]))})
    return rows


def verdict(rows: Sequence[Mapping[str, Any]], metric: str) -> list[str]:
    """Which layer aggregation is best on the test set, and whether it is better than the last layer by more than
    chance.
    """
    known = [row for row in rows if row["score"] is not None]
    if not known:
        return ["No layer aggregation has a score: there is nothing to divide by."]
    best = (min if metric == "mae" else max)(known, key=lambda row: row["score"]["mean"])
    shown = formatting.interval(best["score"]["mean"], best["score"]["low"], best["score"]["high"], metric)
    said = f"Best is {best['layer_aggregation']}: {formatting.metric_name(metric)} {shown}"
    test = best["against_last"]
    if test is None:
        return [f"{said}."]
    return [f"{said}, {formatting.compared(abs(test['difference']), test['p_holm'], metric, 'the last layer')}"]


def _task(source: Artifact, train: Tagged | Examples, test: Tagged | Examples, options: LayerOptions) -> Task:
    if isinstance(train, Tagged) and isinstance(test, Tagged):
        return Tagging(source, train, test, options)
    if isinstance(train, Examples) and isinstance(test, Examples):
        return Labelling(source, train, test, options)
    raise UserError("one is of sentences with tags, the other of texts.", where="test", remedy="Name two of a kind.")


def _once(task: Task, layer_aggregation: str, seed: int, folder: Path, *, show: bool) -> Cell:
    """One training, or what `folder` has kept of it; its own unfinished work goes once it is done."""
    kept, work = folder / f"{layer_aggregation} {seed}.json", folder / f"{layer_aggregation} {seed}"
    if not kept.exists():
        work.mkdir(exist_ok=True)
        cell = task.trained(layer_aggregation, seed, work, show=show)
        write_atomically(kept, json.dumps(cell).encode())
    shutil.rmtree(work, ignore_errors=True)
    return dict(json.loads(kept.read_text(encoding="utf-8")))


def _together(runs: Sequence[Cell]) -> Ratio:
    """The score of all seeds as one: both sides added up, sentence by sentence."""
    return Ratio(*(np.sum([run[side] for run in runs], axis=0) for side in ("part", "whole")))
