"""Comparison of layer aggregations: a head on a frozen encoder through each of them, with several seeds.

Source: table 7 of Devlin et al. 2019, on any tagging or classification task and any encoder. Differences: the head over
words is one linear layer (there: two LSTM layers); sums are unweighted; learned mixes are added to the paper's six.
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
from textgraft.core.context import RunContext
from textgraft.core.errors import UserError
from textgraft.core.files import write_atomically
from textgraft.core.identity import identity_of
from textgraft.data.conll import Tagged
from textgraft.data.examples import Examples, validate_types
from textgraft.data.labels import Labels
from textgraft.data.splits import nested_order
from textgraft.metrics.calibration import outputs_from_logits
from textgraft.metrics.classification import HEADLINE, document_scores
from textgraft.metrics.paired_differences import holm
from textgraft.metrics.tagging import Ratio, paired_ratio_test
from textgraft.models import loading
from textgraft.models.artifact import Artifact
from textgraft.models.default_models import default_models_for
from textgraft.nn.layer_aggregation import LAST, LAYER_AGGREGATIONS, new_layer_aggregation, validate_layer_aggregation
from textgraft.tasks.classification.fine_tuned import encode_parts
from textgraft.tasks.classification.training import Plan, train_classifier
from textgraft.tasks.classification.unseen_labels import warn_of_unseen_labels
from textgraft.tasks.tagging.finetune import TagOptions, resolved_options, train_tagger
from textgraft.tasks.tagging.network import NetworkTagger
from textgraft.tasks.tagging.predictor import scores, tag_all
from textgraft.training.driver import content_hash, weights_hash
from textgraft.training.provenance import provenance
from textgraft.training.recipes import load_recipe
from textgraft.training.results_folder import run_experiment, validate_new_path
from textgraft.training.settings import Settings

Cell = dict[str, Any]
"""One training: each example's contribution to both sides of the score ("part", "whole"), and "minutes"."""


@dataclass(frozen=True)
class LayerOptions:
    """Options of the experiment.

    Args:
        recipe: "frozen" trains the head only; the encoder's dropouts stay active meanwhile.
        layer_aggregations: Names in nn.layer_aggregation.LAYER_AGGREGATIONS; those that the model's layers do not allow
            are left out.
        seeds: Number of trainings of each, with seeds from `settings.seed` upwards.
        max_tokens: Maximum length of a text.
        settings: Seed, precision, limits.
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

    def identity(self) -> dict[str, Any]:
        """All options: each may change the results."""
        return identity_of(self)


class Task(Protocol):
    """A task to learn through a layer aggregation, and its metric."""

    unit: str
    metric: str

    def described(self) -> dict[str, Any]:
        """Identity of the task: everything that it depends on."""

    def trained(self, layer_aggregation: str, seed: int, folder: Path, *, show: bool) -> Cell:
        """Train once, with unfinished work in `folder`; only the contributions to the score are kept."""


class Tagging:
    """Tagging: accuracy over words, or F1 of entities. Raises UserError as `tag_finetune` does."""

    unit = "sentences"

    def __init__(self, source: Artifact, train: Tagged, test: Tagged, options: LayerOptions) -> None:
        if (train.scheme == "plain") != (test.scheme == "plain"):
            message = f"these tags are {test.scheme}, the training tags {train.scheme}."
            raise UserError(message, where=test.source, remedy="Use the same kind of column in both.")
        self.source, self.train, self.test, self.options = source, train, test, options
        self.metric = "accuracy" if test.scheme == "plain" else "f1"
        load_recipe(options.recipe).finetune.validate_no_classifier_settings(options.recipe)

    def described(self) -> dict[str, Any]:
        parts = {"train": self.train, "test": self.test}
        return {name: {"sentences": len(p), "words": p.words, "sha256": p.content_hash()} for name, p in parts.items()}

    def trained(self, layer_aggregation: str, seed: int, folder: Path, *, show: bool) -> Cell:
        settings = replace(self.options.settings, seed=seed)
        options = TagOptions(recipe=self.options.recipe, max_tokens=self.options.max_tokens, settings=settings)
        options = resolved_options(replace(options, layer_aggregation=layer_aggregation), self.source)
        title = f"{layer_aggregation}, seed {seed}"
        context = RunContext(folder, seed, show=show)
        tagger, _ = train_tagger(self.source, self.train, options, context, title=title)
        predictions, _ = tag_all(NetworkTagger(tagger, settings.precision), self.test.sentences, options.max_tokens)
        headline = scores(self.test, predictions).headline
        minutes = tagger.run["seconds"] / 60
        return {"part": headline.part.tolist(), "whole": headline.whole.tolist(), "minutes": minutes}


class Labelling:
    """Classification of texts, pairs or questions with options, by the headline metric of their kind.

    The head sees the aggregated layers alone, without the embedding layer beside them. Raises UserError for labels that
    do not occur in training.
    """

    unit = "texts"

    def __init__(self, source: Artifact, train: Examples, test: Examples, options: LayerOptions) -> None:
        self.labels = Labels.fit(train)
        warn_of_unseen_labels(self.labels, test)
        self.metric, self.options = HEADLINE[self.labels.kind], options
        self.encoded = encode_parts(source, {"train": train, "test": test}, self.labels, options.max_tokens).parts
        self._parts, stage = {"train": train, "test": test}, load_recipe(options.recipe).finetune
        if self.encoded["test"].targets is None:
            raise UserError("these texts have no labels.", where=test.source, remedy="Give labelled texts.")
        self.plan = Plan(
            language_model=source.model,
            from_scratch=False,
            stage=stage,
            settings=options.settings,
            labels=self.labels,
            class_weights=None,
            pad_id=source.tokenizer.pad_id,
            pooling=source.pooling,
            words=False,
        )

    def described(self) -> dict[str, Any]:
        def digest(part: Examples) -> str:
            return content_hash(item for pair in zip(part.texts, part.labels or (), strict=True) for item in pair)

        return {name: {"texts": len(part), "sha256": digest(part)} for name, part in self._parts.items()}

    def trained(self, layer_aggregation: str, seed: int, folder: Path, *, show: bool) -> Cell:
        plan, kind = replace(self.plan, layer_aggregation=layer_aggregation), self.labels.kind
        test, title = {"test": self.encoded["test"]}, f"{layer_aggregation}, seed {seed}"
        context = RunContext(folder, seed, show=show)
        trained = train_classifier(plan, self.encoded["train"], test, context=context, title=title)
        targets = self.encoded["test"].targets
        assert targets is not None
        scores = document_scores(kind, targets, outputs_from_logits(trained.logits["test"], kind))
        scores = self.labels.unscaled_errors(scores)
        return {"part": scores.tolist(), "whole": [1] * len(scores), "minutes": trained.seconds / 60}


def inspect_layers(
    train: Tagged | Examples,
    out: Path | str,
    *,
    test: Tagged | Examples,
    model: str | Path | None = None,
    options: LayerOptions | None = None,
    show: bool = True,
) -> dict[str, Any]:
    """Train a head through every layer aggregation that `model` allows; write `out`/results.json and report.html.

    All layer aggregations are trained on the same texts; the seeds are those of the head and of the order of the texts.
    Nothing is chosen by `test`, on which all are measured. After an interruption the same call continues and ends with
    the same numbers.

    Args:
        train: Tagged sentences, or labelled texts.
        out: Folder to write; it must not exist.
        test: Data of the same kind.
        model: Encoder (None: the default model for the script of the texts, textgraft.models.default_models).
        options: Layer aggregations, seeds and recipe.
        show: Show progress on stderr.

    Returns:
        The contents of results.json.

    Raises:
        UserError: `out` exists; the data are of two kinds; the model allows none of the layer aggregations.
    """
    validate_new_path(Path(out))
    readers = "textgraft.read or read_conll"
    validate_types(train=train, test=test, wanted=(Examples, Tagged), reader=readers)
    options, source = options or LayerOptions(), loading.load_network(model or _default_model(train))
    options = replace(options, recipe=source.recommended_recipe(options.recipe))
    task = _task(source, train, test, options)
    allowed, left_out = possible_layer_aggregations(source, options.layer_aggregations)
    identity = {
        "stage": "inspect layers",
        "data": task.described(),
        "model": weights_hash(source.model),
        "tokenizer": source.tokenizer.fingerprint,
        "recipe": load_recipe(options.recipe).finetune.identity(),
        "options": options.identity(),
    }

    def make_results(folder: Path) -> tuple[dict[str, Any], str]:
        cells: dict[str, list[Cell]] = {name: [] for name in allowed}
        for name in allowed:
            for seed in range(options.settings.seed, options.settings.seed + options.seeds):
                cells[name].append(_cached_training(task, name, seed, folder, show=show))
        rows = summary(cells, source.model.encoder.widths)
        sizes = {name: next(iter(about.values())) for name, about in task.described().items()}
        results = {"metric": task.metric, "unit": task.unit, "sizes": sizes, "seeds": options.seeds}
        results |= {"rows": rows, "left_out": left_out, "verdict": verdict(rows, task.metric)}
        settings = options.settings.of(load_recipe(options.recipe).finetune)
        about: dict[str, Any] = {"data": task.described(), "recipe": options.recipe, "settings": settings}
        results["run"] = provenance(stage="inspect layers", name=Path(out).name, base=source.run, **about)
        # Imported here because matplotlib takes as long to load as torch.
        from textgraft.experiments.layer_aggregation_report import render_layers

        return results, render_layers(results)

    return run_experiment(Path(out), identity, make_results)


def _default_model(train: Tagged | Examples) -> str:
    """The default language model for the texts."""
    texts = (" ".join(s.words) for s in train.sentences) if isinstance(train, Tagged) else train.texts
    return default_models_for(texts).alone


def sampled(data: Tagged | Examples, n: int | None) -> Tagged | Examples:
    """A sample of n sentences or texts, contained in every larger one; all for None."""
    if n is None or n >= len(data):
        return data
    return data.sample(n) if isinstance(data, Tagged) else data.take(sorted(nested_order(data, 0)[:n]))


def possible_layer_aggregations(
    source: Artifact, layer_aggregations: Sequence[str]
) -> tuple[list[str], dict[str, str]]:
    """The layer aggregations that the model's layers allow, and the reasons against the others.

    Raises:
        UserError: The model allows none.
    """
    allowed, left_out = [], {}
    for name in layer_aggregations:
        try:
            new_layer_aggregation(name, source.model.encoder.widths)
            allowed.append(name)
        except UserError as error:
            left_out[name] = error.message
    if not allowed:
        raise UserError(
            "this model allows none of these layer aggregations.", where="layers", remedy="Use 'first' or 'last'."
        )
    return allowed, left_out


def summary(cells: Mapping[str, Sequence[Cell]], widths: Sequence[int]) -> list[dict[str, Any]]:
    """One row for each layer aggregation: score with interval, spread over seeds, paired test against `last`, and
    minutes.

    The score is that of all seeds together, with its 95 % interval over sentences or texts; "spread" is the standard
    deviation over seeds. "p_holm" is corrected for all tests against `last`.
    """
    ratios = {name: _pooled_ratio(runs) for name, runs in cells.items()}
    tests = {}
    if LAST in ratios and ratios[LAST].value is not None:
        others = [name for name in ratios if name != LAST and ratios[name].value is not None]
        tests = {name: paired_ratio_test(ratios[name], ratios[LAST]) for name in others}
    adjusted = holm({name: test.p for name, test in tests.items()})
    rows = []
    for name, runs in cells.items():
        seed_scores = [Ratio(np.array(run["part"]), np.array(run["whole"])).value or 0.0 for run in runs]
        interval = ratios[name].interval()
        row: dict[str, Any] = {
            "layer_aggregation": name,
            "width": new_layer_aggregation(name, widths).output_dim,
            "seeds": len(runs),
        }
        row |= {"score": None if interval is None else interval._asdict()}
        row |= {"spread": float(np.std(seed_scores, ddof=1)) if len(seed_scores) > 1 else None}
        row |= {"against_last": tests[name]._asdict() | {"p_holm": adjusted[name]} if name in tests else None}
        rows.append(row | {"minutes": float(np.mean([run["minutes"] for run in runs]))})
    return rows


def verdict(rows: Sequence[Mapping[str, Any]], metric: str) -> list[str]:
    """A sentence on the best layer aggregation on the test set, with the paired test against the last layer."""
    scored = [row for row in rows if row["score"] is not None]
    if not scored:
        return ["No layer aggregation has a score: the denominator is 0."]
    best = (min if metric == "mae" else max)(scored, key=lambda row: row["score"]["mean"])
    shown = formatting.interval(best["score"]["mean"], best["score"]["low"], best["score"]["high"], metric)
    sentence = f"Best is {best['layer_aggregation']}: {formatting.metric_name(metric)} {shown}"
    test = best["against_last"]
    if test is None:
        return [f"{sentence}."]
    return [f"{sentence}, {formatting.compared(abs(test['difference']), test['p_holm'], metric, 'the last layer')}"]


def _task(source: Artifact, train: Tagged | Examples, test: Tagged | Examples, options: LayerOptions) -> Task:
    if isinstance(train, Tagged) and isinstance(test, Tagged):
        return Tagging(source, train, test, options)
    if isinstance(train, Examples) and isinstance(test, Examples):
        return Labelling(source, train, test, options)
    raise UserError(
        "train and test are of two kinds: tagged sentences and texts.", where="test", remedy="Use data of one kind."
    )


def _cached_training(task: Task, layer_aggregation: str, seed: int, folder: Path, *, show: bool) -> Cell:
    """One training, from its file in `folder` if there is one; unfinished work is removed once it is done."""
    result_file, work = folder / f"{layer_aggregation} {seed}.json", folder / f"{layer_aggregation} {seed}"
    if not result_file.exists():
        work.mkdir(exist_ok=True)
        cell = task.trained(layer_aggregation, seed, work, show=show)
        write_atomically(result_file, json.dumps(cell).encode())
    shutil.rmtree(work, ignore_errors=True)
    return dict(json.loads(result_file.read_text(encoding="utf-8")))


def _pooled_ratio(runs: Sequence[Cell]) -> Ratio:
    """The score of all seeds together: both sides added up, example by example."""
    return Ratio(*(np.sum([run[side] for run in runs], axis=0) for side in ("part", "whole")))
