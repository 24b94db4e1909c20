"""The linear classifiers that a fine-tuning may fall back on, each with its answers for texts that it has not seen."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from textgraft.core.errors import UserError
from textgraft.core.resource_meter import Meter
from textgraft.data.examples import Examples, reads
from textgraft.data.labels import Labels
from textgraft.data.splits import Split
from textgraft.linear.artifact import FORMS, LinearArtifact, logits, scaled
from textgraft.linear.fitted import FittedModel
from textgraft.linear.methods import LINEAR_METHODS, Classifier, FeatureMaps, LinearMethod, read_state, write_state
from textgraft.metrics.calibration import fit_temperature
from textgraft.models.artifact import Predictor
from textgraft.tasks.classification.evaluation import Outcome

FROM_NO_MODEL: dict[str, None] = dict.fromkeys(("base", "licence", "language", "recipe", "tokens_lost"))
"""What run.json does not say of a classifier that no language model has a part in."""
CANDIDATE_METHODS = ("linear", "lsa", "self-trained")
"""The ways that `finetune` weighs. Means of counted word vectors are not among them: the best in no row of
docs/results.md, and where a hundred held-out answers favour them it is by luck that costs three points
(docs/lab-notes.md)."""
Fit = Callable[[Sequence[str], np.ndarray], FittedModel]
"""From texts and their targets to a fitted classifier."""


@dataclass(frozen=True)
class Candidate:
    """One way to the labels, trained on all of them, and what it says of texts that it was not trained on.

    `held_out` are its temperature-scaled answers for the training texts (N, C), each from a fold that left the text out
    (NaN where no fold did); `examine` gives its answers for the examined texts, for which a `slow` one reads them
    first, so that it should only be asked where it counts. `seconds` is what all of its trainings took, without what
    candidates share, and `peak_mb` the memory. `predictor` makes what is saved of it, from what run.json says of the
    whole.
    """

    name: str
    held_out: np.ndarray
    examine: Callable[[], Outcome]
    seconds: float
    peak_mb: float
    predictor: Callable[[Mapping[str, Any]], Predictor]
    slow: bool = False

    @cached_property
    def outcome(self) -> Outcome:
        return self.examine()


@dataclass(frozen=True)
class SelectionContext:
    """What every linear candidate stands on: texts, folds, the seed, and the folder for unfinished work.

    `examined` are texts to measure on; None where the folds are what is measured on.
    """

    train: Examples
    examined: Examples | None
    labels: Labels
    unlabelled: Sequence[str]
    splits: Sequence[Split]
    seed: int
    folder: Path

    @cached_property
    def targets(self) -> np.ndarray:
        return self.labels.encode(self.train)

    @property
    def held(self) -> list[list[int]]:
        """The training texts that each fold holds out."""
        return [held for _, held in self.splits]

    @cached_property
    def known(self) -> np.ndarray:
        """The training texts that any fold holds out, ascending."""
        return np.array(sorted(i for held in self.held for i in held), dtype=int)

    def out_of_fold(self, fit: Fit) -> np.ndarray:
        """Answers (N, C) for the training texts by classifiers fitted on the other folds; NaN where there is none."""
        shape = (len(self.train),) if self.labels.kind == "numeric" else (len(self.train), self.labels.num_outputs)
        answers = np.full(shape, np.nan)
        for kept, held in self.splits:
            fitted = fit([self.train.texts[i] for i in kept], self.targets[kept])
            answers[held] = fitted.outputs([self.train.texts[i] for i in held])
        return answers


@dataclass(frozen=True)
class LinearCandidates:
    """The linear candidates, why others were left out, and what the spaces took that several of them look at."""

    candidates: list[Candidate]
    left_out: dict[str, str]
    shared_seconds: float


def linear_candidates(
    ground: SelectionContext, feature_maps: FeatureMaps | None = None, *, show: bool = True
) -> LinearCandidates:
    """The linear classifiers WEIGHED (of linear.methods) that this kind of target and these texts allow.

    `feature_maps` are those of the unlabelled texts, if they have been fitted before. Candidates that `ground.folder` holds
    already are taken from there, and all come from there: what is measured is what is saved. A line on stderr for each
    says that it is done.
    """
    # Of the unlabelled texts alone: to a space that has read it, a held-out training text is not new.
    feature_maps = feature_maps or FeatureMaps(ground.unlabelled, ground.folder / "feature_maps", seed=ground.seed)
    candidates, left_out = [], {}
    for name in CANDIDATE_METHODS:
        way = LINEAR_METHODS[name]
        if way.feature_maps and not ground.unlabelled:
            continue
        if way.feature_maps and reads(ground.train.texts) == "pairs":
            left_out[name] = "it is for single texts"
            continue
        if way.one_label_only and ground.labels.kind != "single":
            left_out[name] = "it is for one label a text"
            continue
        try:
            for family in way.feature_maps:
                feature_maps.of(family)
        except UserError as error:
            left_out[name] = str(error)
            continue
        candidates.append(_candidate(name, way, ground, feature_maps))
        if show:
            print(f"candidate {name}: {candidates[-1].outcome.about}", file=sys.stderr, flush=True)
    return LinearCandidates(candidates, left_out, sum(feature_maps.seconds.values()))


def _candidate(name: str, way: LinearMethod, ground: SelectionContext, feature_maps: FeatureMaps) -> Candidate:
    path = ground.folder / "candidates" / f"{name}.safetensors"
    if not path.exists():
        with Meter() as preparing:
            classifier = way.classifier(feature_maps, ground.seed)
        fit = partial(_fitted, ground, classifier)
        with Meter() as folding:
            held_out = ground.out_of_fold(fit)
        with Meter() as fitting:
            fitted = fit(list(ground.train.texts), ground.targets)
        once = preparing.seconds + fitting.seconds
        peak = max(preparing.peak_mb, folding.peak_mb, fitting.peak_mb)
        facts: dict[str, Any] = {"form": fitted.form, "once": once, "seconds": once + folding.seconds, "peak_mb": peak}
        write_state(path, fitted.state(), {"held_out": held_out}, facts)
    state, arrays, facts = read_state(path)
    model = cast(FittedModel, FORMS[facts["form"]].from_state(state))
    raw, labels, known = arrays["held_out"], ground.labels, ground.known
    temperature = None
    if labels.kind != "numeric":
        temperature = fit_temperature(logits(raw[known], labels), ground.targets[known], labels.kind)
    held_out = np.full_like(raw, np.nan)
    held_out[known] = scaled(raw[known], labels, temperature)
    outputs = held_out
    if ground.examined is not None:
        raw = model.outputs(list(ground.examined.texts))
        outputs = scaled(raw, labels, temperature)
    minutes = (facts["once"] + sum(feature_maps.seconds[family] for family in way.feature_maps)) / 60
    outcome = Outcome(name, outputs[None], raw[None], minutes, facts["peak_mb"], model.about)
    predictor = partial(_artifact, model, labels, temperature)
    return Candidate(name, held_out, lambda: outcome, facts["seconds"], facts["peak_mb"], predictor)


def _fitted(ground: SelectionContext, classifier: Classifier, texts: Sequence[str], targets: np.ndarray) -> FittedModel:
    labels = ground.labels
    classes = None if labels.kind == "numeric" else labels.num_outputs
    return classifier.fit(texts, targets, kind=labels.kind, num_classes=classes).fitted


def _artifact(model: FittedModel, labels: Labels, temperature: float | None, run: Mapping[str, Any]) -> LinearArtifact:
    own = {"linear": model.about, "temperature": temperature}
    return LinearArtifact(model, labels, {**run, **FROM_NO_MODEL, **own})
