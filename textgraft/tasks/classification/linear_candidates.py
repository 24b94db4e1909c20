"""Linear classifiers as candidates of a fine-tuning, each with its predictions for held-out texts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, cast

import numpy as np

from textgraft.core.errors import UserError
from textgraft.core.resource_meter import Meter
from textgraft.data.examples import reads
from textgraft.data.labels import Labels
from textgraft.linear.artifact import FORMS, LinearArtifact, logits, scaled
from textgraft.linear.fitted import FittedModel
from textgraft.linear.methods import LINEAR_METHODS, Classifier, FeatureMaps, LinearMethod, read_state, write_state
from textgraft.metrics.calibration import fit_temperature
from textgraft.models.artifact import Predictor
from textgraft.tasks.classification.evaluation import Outcome
from textgraft.tasks.classification.selection_context import SelectionContext

WITHOUT_LANGUAGE_MODEL: dict[str, None] = dict.fromkeys(("base", "licence", "language", "recipe", "tokens_lost"))
"""Keys of run.json that are empty for a classifier without a language model."""
CANDIDATE_METHODS = ("linear", "lsa", "co-training")
"""The linear methods among which `finetune` selects. Means of count-based word vectors are left out: they are the best
in no row of docs/results.md, and where a hundred held-out predictions favour them, it is by chance and costs three
points (research/lab-notes.md)."""


@dataclass(frozen=True)
class Candidate:
    """A classifier that takes part in model selection, with its predictions for held-out training texts.

    Attributes:
        name: Its name in tables and files.
        held_out: (N, C) temperature-scaled predictions for the training texts, each from a fold that left the text
            out; NaN where no fold did.
        evaluate: Predicts the evaluation split. A `slow` candidate encodes those texts first, so it is called only for
            a candidate with a weight.
        seconds: Duration of all its trainings, without what candidates share.
        peak_mb: Peak memory in MB.
        predictor: Makes the saved classifier from the run.json of the whole.
        slow: `evaluate` takes long.
    """

    name: str
    held_out: np.ndarray
    evaluate: Callable[[], Outcome]
    seconds: float
    peak_mb: float
    predictor: Callable[[Mapping[str, Any]], Predictor]
    slow: bool = False

    @cached_property
    def outcome(self) -> Outcome:
        """The result of `evaluate`, computed once."""
        return self.evaluate()


@dataclass(frozen=True)
class LinearCandidates:
    """The linear candidates, why others were left out, and the seconds for the feature maps that several share."""

    candidates: list[Candidate]
    left_out: dict[str, str]
    shared_seconds: float


def linear_candidates(
    selection: SelectionContext, feature_maps: FeatureMaps | None = None, *, methods: Sequence[str] = CANDIDATE_METHODS
) -> LinearCandidates:
    """The linear classifiers of `methods` that this kind of target and these texts allow.

    Candidates are saved in the run's folder and loaded from there, so that what is measured is what is saved. A line
    on stderr for each reports that it is done.

    Args:
        selection: The data, the folds and the run.
        feature_maps: Feature maps of the unlabelled texts, if they have been fitted before.
        methods: Names of linear.methods.LINEAR_METHODS.

    Returns:
        The candidates, and the reasons why others were left out.
    """
    # Fitted on the unlabelled texts alone: on training texts too, held-out texts would not be new to the feature map.
    feature_maps = feature_maps or FeatureMaps(
        selection.unlabelled, selection.run.work / "feature_maps", seed=selection.seed
    )
    candidates, left_out = [], {}
    for name in methods:
        method = LINEAR_METHODS[name]
        if method.feature_maps and not selection.unlabelled:
            continue
        if method.feature_maps and reads(selection.train.texts) == "pairs":
            left_out[name] = "it is for single texts"
            continue
        if method.one_label_only and not selection.labels.target.has_one_label:
            left_out[name] = "it is for one label a text"
            continue
        try:
            for family in method.feature_maps:
                feature_maps.of(family)
        except UserError as error:
            left_out[name] = str(error)
            continue
        candidates.append(_candidate(name, method, selection, feature_maps))
        if selection.run.show:
            print(f"candidate {name}: {candidates[-1].outcome.about}", file=sys.stderr, flush=True)
    return LinearCandidates(candidates, left_out, sum(feature_maps.seconds.values()))


def _candidate(name: str, method: LinearMethod, selection: SelectionContext, feature_maps: FeatureMaps) -> Candidate:
    path = selection.run.work / "candidates" / f"{name}.safetensors"
    if not path.exists():
        with Meter() as preparing:
            classifier = method.classifier(feature_maps, selection.seed)
        fit = partial(_fitted, selection, classifier)
        with Meter() as folding:
            held_out = selection.out_of_fold(fit)
        with Meter() as fitting:
            fitted = fit(list(selection.train.texts), selection.targets)
        once = preparing.seconds + fitting.seconds
        peak = max(preparing.peak_mb, folding.peak_mb, fitting.peak_mb)
        facts: dict[str, Any] = {"form": fitted.form, "once": once, "seconds": once + folding.seconds, "peak_mb": peak}
        write_state(path, fitted.state(), {"held_out": held_out}, facts)
    state, arrays, facts = read_state(path)
    model = cast(FittedModel, FORMS[facts["form"]].from_state(state))
    raw, labels, indices = arrays["held_out"], selection.labels, selection.held_out
    temperature = None
    if labels.num_classes is not None:
        temperature = fit_temperature(logits(raw[indices], labels), selection.targets[indices], labels.kind)
    held_out = np.full_like(raw, np.nan)
    held_out[indices] = scaled(raw[indices], labels, temperature)
    outputs = held_out
    if selection.evaluation is not None:
        raw = model.outputs(list(selection.evaluation.texts))
        outputs = scaled(raw, labels, temperature)
    minutes = (facts["once"] + sum(feature_maps.seconds[family] for family in method.feature_maps)) / 60
    outcome = Outcome(name, outputs[None], raw[None], minutes, facts["peak_mb"], model.about)
    predictor = partial(_artifact, model, labels, temperature)
    return Candidate(name, held_out, lambda: outcome, facts["seconds"], facts["peak_mb"], predictor)


def _fitted(
    selection: SelectionContext, classifier: Classifier, texts: Sequence[str], targets: np.ndarray
) -> FittedModel:
    labels = selection.labels
    return classifier.fit(texts, targets, kind=labels.kind, num_classes=labels.num_classes).fitted


def _artifact(model: FittedModel, labels: Labels, temperature: float | None, run: Mapping[str, Any]) -> LinearArtifact:
    about = {"linear": model.about, "temperature": temperature}
    return LinearArtifact(model, labels, {**run, **WITHOUT_LANGUAGE_MODEL, **about})
