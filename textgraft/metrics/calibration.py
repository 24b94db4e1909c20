"""Calibration of probabilities: temperature scaling, calibration error, and selective prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from textgraft.data.examples import TargetKind
from textgraft.data.targets import TARGETS

TEMPERATURE_RANGE = (0.05, 20.0)
THRESHOLDS = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)


@dataclass(frozen=True)
class Reliability:
    """Reliability diagram by bin of confidence: edges, counts, mean confidence and accuracy (None if empty), and the
    ECE.
    """

    edges: tuple[float, ...]  # bins + 1 values
    counts: tuple[int, ...]
    confidence: tuple[float | None, ...]
    accuracy: tuple[float | None, ...]
    ece: float | None


@dataclass(frozen=True)
class Coverage:
    """Share of documents answered when abstaining below `threshold`, and the accuracy on these."""

    threshold: float
    answered: float
    count: int
    accuracy: float | None


class _Exclusive:
    """One class, or one option, is correct: a softmax."""

    def log_likelihoods(self, scores: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray | float]:
        """log P(class) of logits (N, C), and the term of an absent class: 0."""
        shifted = scores - scores.max(1, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(1, keepdims=True)), 0.0

    def truth(self, targets: NDArray, width: int) -> NDArray[np.float64]:
        """Targets as probabilities (N, C)."""
        return np.eye(width)[targets]

    def alternatives(self, finite: NDArray[np.bool_]) -> NDArray | float:
        """The number of events that exclude one another, of which each probability is one."""
        return finite.sum(1, keepdims=True)

    def confidence(self, probs: NDArray) -> NDArray:
        """Confidence (N,) of each prediction."""
        return np.asarray(probs.max(1))

    def correct(self, probs: NDArray, targets: NDArray) -> NDArray[np.bool_]:
        """True (N,) for each correct prediction."""
        return probs.argmax(1) == targets

    def events(self, probs: NDArray, targets: NDArray) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """The probabilities of a reliability diagram, and which of these events happened."""
        return self.confidence(probs).astype(np.float64), self.correct(probs, targets)


class _Independent(_Exclusive):
    """Any number of labels is correct: a sigmoid each."""

    def log_likelihoods(self, scores: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray | float]:
        """log P(label) of logits (N, C), and that of its absence."""
        return -np.logaddexp(0.0, -scores), -np.logaddexp(0.0, scores)

    def truth(self, targets: NDArray, width: int) -> NDArray[np.float64]:
        return np.asarray(targets, dtype=np.float64)

    def alternatives(self, finite: NDArray[np.bool_]) -> NDArray | float:
        return 2

    def confidence(self, probs: NDArray) -> NDArray:
        return np.asarray(np.maximum(probs, 1.0 - probs).min(1))

    def correct(self, probs: NDArray, targets: NDArray) -> NDArray[np.bool_]:
        present, others = np.hsplit(np.asarray(targets) > 0.5, [probs.shape[1]])
        return np.asarray(((probs >= 0.5) == present).all(1) & ~others.any(1))

    def events(self, probs: NDArray, targets: NDArray) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        return probs.ravel().astype(np.float64), np.asarray(targets)[:, : probs.shape[1]].ravel() > 0.5


CALIBRATIONS: Mapping[TargetKind, _Exclusive] = {
    "single": _Exclusive(),
    "multi": _Independent(),
    "choice": _Exclusive(),
}
"""By kind of target; a quantity has no probabilities to calibrate."""


def probabilities(logits: NDArray, kind: TargetKind, temperature: float = 1.0) -> NDArray[np.float64]:
    """Probabilities of logits (N, C) divided by `temperature`: softmax for "single", sigmoid for "multi".

    >>> probabilities(np.zeros((1, 2)), "single")
    array([[0.5, 0.5]])
    """
    if kind not in CALIBRATIONS:
        raise ValueError("Numeric targets have no probabilities to calibrate.")
    return np.exp(CALIBRATIONS[kind].log_likelihoods(np.asarray(logits, dtype=np.float64) / temperature)[0])


def activated(logits: NDArray, kind: TargetKind, temperature: float = 1.0) -> NDArray:
    """`probabilities` of logits (N, C), or for a numeric target the logits."""
    return probabilities(logits, kind, temperature) if kind in CALIBRATIONS else logits


def outputs_from_logits(logits: NDArray, kind: TargetKind, temperature: float = 1.0) -> NDArray:
    """Probabilities (N, C), or for a numeric target the standardised values (N,)."""
    return TARGETS[kind].from_columns(activated(logits, kind, temperature))


def fit_temperature(logits: NDArray, targets: NDArray, kind: TargetKind = "single") -> float:
    """The temperature that maximises the likelihood of held-out documents (Guo et al. 2017, section 4.2).

    The predicted class never changes. Difference: with few held-out documents, all of them correct, the likelihood
    would grow without limit as T -> 0, so targets are smoothed as in Platt 1999: the true class counts (N + 1) / (N +
    2).

    Args:
        logits: Logits (N, C) of documents that the model was not trained on; -inf for an option that a question lacks.
        targets: Class numbers (N,) below C, or 0/1 (N, C) for "multi", where one temperature serves all labels.
        kind: Kind of the targets.

    Returns:
        The temperature; 1.0 for no documents, and for numeric targets.
    """
    if len(logits) == 0 or kind not in CALIBRATIONS:
        return 1.0
    from scipy.optimize import minimize_scalar

    calibration, scores = CALIBRATIONS[kind], np.asarray(logits, dtype=np.float64)
    truth = calibration.truth(targets, scores.shape[1])
    spread = 2.0 / (len(scores) + 2.0)
    finite = np.isfinite(scores)  # options that an example lacks have -inf
    smoothed = (1.0 - spread) * truth + spread * finite / calibration.alternatives(finite)

    def loss(log_temperature: float) -> float:
        yes, no = calibration.log_likelihoods(scores / np.exp(log_temperature))
        yes = np.where(finite, yes, 0.0)
        return float(-(smoothed * yes + (1.0 - smoothed) * no).sum() / len(scores))

    low, high = np.log(TEMPERATURE_RANGE)
    return float(np.exp(minimize_scalar(loss, bounds=(low, high), method="bounded", options={"xatol": 1e-4}).x))


def confidence_and_correct(
    probs: NDArray, targets: NDArray, kind: TargetKind = "single"
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Confidence (N,) of each prediction, and whether it is correct (N,).

    "single": the highest probability. "multi": the lowest confidence of the document's labels; correct if all labels
    are.
    """
    return confidence(probs, kind).astype(np.float64), CALIBRATIONS[kind].correct(probs, targets)


def confidence(probs: NDArray, kind: TargetKind) -> NDArray:
    """Confidence (N,) of each prediction, see `confidence_and_correct`."""
    return CALIBRATIONS[kind].confidence(probs)


def reliability(probs: NDArray, targets: NDArray, kind: TargetKind = "single", *, bins: int = 15) -> Reliability:
    """Reliability diagram and expected calibration error over equal-width bins (Guo et al. 2017, eq. 3).

    "single" bins the confidence of the predicted class; "multi" bins the probability of every label of every document
    against its presence.

    Args:
        probs: Probabilities (N, C).
        targets: Class numbers (N,), or 0/1 (N, C) for "multi". A class beyond C, which the model does not have, makes
            a prediction of "single" wrong; labels beyond C of "multi" have no probability and no part in the diagram.
        kind: Kind of the targets.
        bins: Number of bins.

    Returns:
        The diagram; its error is None for no documents.
    """
    predicted, correct = CALIBRATIONS[kind].events(probs, targets)
    # Bins are open on the left and closed on the right, as in the paper: a confidence of 1 is in the last.
    bin_of = np.clip(np.ceil(predicted * bins).astype(int) - 1, 0, bins - 1)
    counts = np.bincount(bin_of, minlength=bins)
    confidence_sums = np.bincount(bin_of, weights=predicted, minlength=bins)
    correct_sums = np.bincount(bin_of, weights=correct, minlength=bins)
    return Reliability(
        edges=tuple(float(e) for e in np.linspace(0.0, 1.0, bins + 1)),
        counts=tuple(int(n) for n in counts),
        confidence=tuple(float(s / n) if n else None for s, n in zip(confidence_sums, counts)),
        accuracy=tuple(float(r / n) if n else None for r, n in zip(correct_sums, counts)),
        ece=float(np.abs(confidence_sums - correct_sums).sum() / len(predicted)) if len(predicted) else None,
    )


def expected_calibration_error(
    probs: NDArray, targets: NDArray, kind: TargetKind = "single", *, bins: int = 15
) -> float | None:
    """Mean gap between confidence and accuracy, weighted by the number of documents in each bin; None for no
    documents.
    """
    return reliability(probs, targets, kind, bins=bins).ece


def coverage_table(confidence: NDArray, correct: NDArray, thresholds: Sequence[float] = THRESHOLDS) -> list[Coverage]:
    """Share of documents answered, with confidence at or above each threshold, and their accuracy.

    Args:
        confidence, correct: (N,), as from `confidence_and_correct`.
        thresholds: The thresholds.

    Returns:
        One row per threshold; accuracy is None where nothing is answered.
    """
    rows = []
    for threshold in thresholds:
        answered = confidence >= threshold
        count = int(answered.sum())
        rows.append(
            Coverage(
                threshold=float(threshold),
                answered=count / len(confidence) if len(confidence) else 0.0,
                count=count,
                accuracy=float(correct[answered].mean()) if count else None,
            )
        )
    return rows
