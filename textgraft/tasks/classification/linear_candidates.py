"""Linear classifiers as candidates of a fine-tuning, each with its predictions for held-out texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from textgraft.core.resource_meter import Meter
from textgraft.data.examples import reads
from textgraft.data.labels import Labels
from textgraft.linear.artifact import FORMS, LinearArtifact, logits, scaled
from textgraft.linear.fitted import FittedModel
from textgraft.linear.methods import LINEAR_METHODS, Classifier, read_state, write_state
from textgraft.metrics.calibration import fit_temperature
from textgraft.models.artifact import Predictor
from textgraft.tasks.classification.evaluation import Outcome
from textgraft.tasks.classification.selection_context import SelectionContext

WITHOUT_LANGUAGE_MODEL: dict[str, None] = dict.fromkeys(("base", "licence", "language", "recipe", "tokens_lost"))
"""Keys of run.json that are empty for a classifier without a language model."""
CANDIDATE_METHODS = tuple(name for name, method in LINEAR_METHODS.items() if method.in_ensemble)
"""The linear methods among which `finetune` selects."""


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
        favoured: With few labels it is the best on most data sets, which the weights begin with (ensemble_weights.py).
    """

    name: str
    held_out: np.ndarray
    evaluate: Callable[[], Outcome]
    seconds: float
    peak_mb: float
    predictor: Callable[[Mapping[str, Any]], Predictor]
    slow: bool = False
    favoured: bool = False

    @cached_property
    def outcome(self) -> Outcome:
        """The result of `evaluate`, computed once."""
        return self.evaluate()


def why_left_out(name: str, selection: SelectionContext) -> str | None:
    """Why a method of LINEAR_METHODS cannot be used on this data, or None; empty where it needs no words."""
    method = LINEAR_METHODS[name]
    if method.feature_maps and not selection.unlabelled:
        return ""
    if method.feature_maps and reads(selection.train.texts) == "pairs":
        return "it is for single texts"
    if method.one_label_only and not selection.labels.target.has_one_label:
        return "it is for one label a text"
    return None


def linear_candidate(
    name: str,
    selection: SelectionContext,
    classifier: Callable[[], Classifier],
    shared: Callable[[], float] = lambda: 0.0,
    embed: Callable[[Sequence[str]], NDArray[np.float32]] | None = None,
) -> Candidate:
    """A linear classifier as a candidate, fitted now or loaded from the run's folder.

    What is measured is what is saved: the fitted classifier is written first, and read back.

    Args:
        name: Name of the candidate.
        selection: The data, the folds and the run.
        classifier: Makes the unfitted classifier.
        shared: Seconds of what it shares with others, such as feature maps, once it is fitted.
        embed: Vectors of texts by its encoder, where it has one and they are shared.

    Raises:
        UserError: Its feature maps cannot be fitted to the unlabelled texts.
    """
    path = selection.run.work / "candidates" / f"{name}.safetensors"
    if not path.exists():
        _fit_and_save(path, selection, classifier)
    state, arrays, facts = read_state(path)
    model = cast(FittedModel, FORMS[facts["form"]].from_state(state))
    if embed is not None:
        model = model.with_encoders(lambda features: features.on(features.encoder, embed))
    raw, labels, indices = arrays["held_out"], selection.labels, selection.held_out
    temperature = None
    if labels.num_classes is not None:
        temperature = fit_temperature(logits(raw[indices], labels), selection.targets[indices], labels.kind)
    held_out = np.full_like(raw, np.nan)
    held_out[indices] = scaled(raw[indices], labels, temperature)

    def evaluate() -> Outcome:
        outputs, unscaled = held_out, raw
        if selection.evaluation is not None:
            unscaled = model.outputs(list(selection.evaluation.texts))
            outputs = scaled(unscaled, labels, temperature)
        minutes = (facts["once"] + shared()) / 60
        return Outcome(name, outputs[None], unscaled[None], minutes, facts["peak_mb"], model.about)

    predictor = partial(_artifact, model, labels, temperature)
    return Candidate(name, held_out, evaluate, facts["seconds"], facts["peak_mb"], predictor)


def _fit_and_save(path: Path, selection: SelectionContext, classifier: Callable[[], Classifier]) -> None:
    with Meter() as preparing:
        unfitted = classifier()
    fit = partial(_fitted, selection, unfitted)
    with Meter() as folding:
        held_out = selection.out_of_fold(fit)
    with Meter() as fitting:
        fitted = fit(list(selection.train.texts), selection.targets)
    once = preparing.seconds + fitting.seconds
    peak = max(preparing.peak_mb, folding.peak_mb, fitting.peak_mb)
    facts: dict[str, Any] = {"form": fitted.form, "once": once, "seconds": once + folding.seconds, "peak_mb": peak}
    write_state(path, fitted.state(), {"held_out": held_out}, facts)


def _fitted(
    selection: SelectionContext, classifier: Classifier, texts: Sequence[str], targets: np.ndarray
) -> FittedModel:
    labels = selection.labels
    return classifier.fit(texts, targets, kind=labels.kind, num_classes=labels.num_classes).fitted


def _artifact(model: FittedModel, labels: Labels, temperature: float | None, run: Mapping[str, Any]) -> LinearArtifact:
    about = {"linear": model.about, "temperature": temperature}
    return LinearArtifact(model, labels, {**run, **WITHOUT_LANGUAGE_MODEL, **about})
