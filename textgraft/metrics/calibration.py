"""Probabilities that mean what they say: temperature scaling, calibration error, and when not to answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from textgraft.data.examples import ONE_OF, TargetKind

TEMPERATURE_RANGE = (0.05, 20.0)
THRESHOLDS = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)


@dataclass(frozen=True)
class Reliability:
    """Per bin of confidence: its range, how many fell in, mean confidence and share right (None if empty)."""

    edges: tuple[float, ...]  # bins + 1 of them
    counts: tuple[int, ...]
    confidence: tuple[float | None, ...]
    accuracy: tuple[float | None, ...]
    ece: float | None


@dataclass(frozen=True)
class Coverage:
    """What abstaining below `threshold` leaves: how much is answered, and how much of that is right."""

    threshold: float
    answered: float
    count: int
    accuracy: float | None


def probabilities(logits: NDArray, kind: TargetKind, temperature: float = 1.0) -> NDArray[np.float64]:
    """Logits (N, C) divided by `temperature`, as probabilities: softmax for "single", sigmoid for "multi"."""
    return np.exp(_log_likelihoods(np.asarray(logits, dtype=np.float64) / temperature, kind)[0])


def fit_temperature(logits: NDArray, targets: NDArray, kind: TargetKind = "single") -> float:
    """The temperature that makes held-out documents most likely (Guo et al. 2017, section 4.2).

    logits (N, C) of documents that the model was not trained on; targets (N,) class numbers, or (N, C) of 0/1
    for "multi", where one temperature serves all labels. The class predicted never changes. We differ in one
    thing: with the few held-out documents of small data, all of them right, the likelihood would grow without
    end as T -> 0, so the targets are smoothed as in Platt 1999: the true class counts (N + 1) / (N + 2). No
    documents give 1.0.
    """
    if len(logits) == 0:
        return 1.0
    from scipy.optimize import minimize_scalar

    scores = np.asarray(logits, dtype=np.float64)
    truth = np.eye(scores.shape[1])[targets] if kind in ONE_OF else np.asarray(targets, dtype=np.float64)
    spread = 2.0 / (len(scores) + 2.0)
    there = np.isfinite(scores)  # an option that an example does not have scores -inf
    smoothed = (1.0 - spread) * truth + spread * there / (there.sum(1, keepdims=True) if kind in ONE_OF else 2)

    def loss(log_temperature: float) -> float:
        yes, no = _log_likelihoods(scores / np.exp(log_temperature), kind)
        yes = np.where(there, yes, 0.0)
        return float(-(smoothed * yes + (1.0 - smoothed) * no).sum() / len(scores))

    low, high = np.log(TEMPERATURE_RANGE)
    return float(np.exp(minimize_scalar(loss, bounds=(low, high), method="bounded", options={"xatol": 1e-4}).x))


def confidence_and_correct(
    probs: NDArray, targets: NDArray, kind: TargetKind = "single"
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """How sure the model is of each document (N,), and whether it is right (N,).

    "single": the highest probability. "multi": the least sure of the document's labels, right if all labels
    are.
    """
    if kind in ONE_OF:
        return probs.max(1).astype(np.float64), probs.argmax(1) == targets
    sure = np.maximum(probs, 1.0 - probs).min(1)
    return sure.astype(np.float64), ((probs >= 0.5) == (targets > 0.5)).all(1)


def reliability(probs: NDArray, targets: NDArray, kind: TargetKind = "single", *, bins: int = 15) -> Reliability:
    """Reliability diagram and expected calibration error over equal-width bins (Guo et al. 2017, eq. 3).

    "single" bins the confidence in the predicted class; "multi" bins the probability of every label of every
    document against whether the document has it. The error is None where there are no documents.
    """
    if kind in ONE_OF:
        confidence, correct = confidence_and_correct(probs, targets)
    else:
        confidence, correct = probs.ravel().astype(np.float64), np.asarray(targets).ravel() > 0.5
    # Bins are open on the left, closed on the right, as in the paper: a confidence of exactly 1 is in the
    # last.
    which = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    counts = np.bincount(which, minlength=bins)
    sure = np.bincount(which, weights=confidence, minlength=bins)
    right = np.bincount(which, weights=correct, minlength=bins)
    return Reliability(
        edges=tuple(float(e) for e in np.linspace(0.0, 1.0, bins + 1)),
        counts=tuple(int(n) for n in counts),
        confidence=tuple(float(s / n) if n else None for s, n in zip(sure, counts)),
        accuracy=tuple(float(r / n) if n else None for r, n in zip(right, counts)),
        ece=float(np.abs(sure - right).sum() / len(confidence)) if len(confidence) else None,
    )


def expected_calibration_error(
    probs: NDArray, targets: NDArray, kind: TargetKind = "single", *, bins: int = 15
) -> float | None:
    """The mean gap between confidence and accuracy, weighted by how many documents fall in each bin."""
    return reliability(probs, targets, kind, bins=bins).ece


def coverage_table(confidence: NDArray, correct: NDArray, thresholds: Sequence[float] = THRESHOLDS) -> list[Coverage]:
    """For each threshold, the share of documents answered (confidence at or above it) and their accuracy.

    confidence and correct (N,), as from `confidence_and_correct`; accuracy is None where nothing is answered.
    """
    rows = []
    for threshold in thresholds:
        kept = confidence >= threshold
        count = int(kept.sum())
        rows.append(
            Coverage(
                threshold=float(threshold),
                answered=count / len(confidence) if len(confidence) else 0.0,
                count=count,
                accuracy=float(correct[kept].mean()) if count else None,
            )
        )
    return rows


def _log_likelihoods(scores: NDArray[np.float64], kind: TargetKind) -> tuple[NDArray[np.float64], NDArray | float]:
    """log P(class), and what an absent class contributes: log(1 - P) in a label set, nothing otherwise."""
    if kind == "numeric":
        raise ValueError("Numeric targets have no probabilities to calibrate.")
    if kind in ONE_OF:
        shifted = scores - scores.max(1, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(1, keepdims=True)), 0.0
    return -np.logaddexp(0.0, -scores), -np.logaddexp(0.0, scores)
