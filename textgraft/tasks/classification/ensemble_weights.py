"""Weights of several models in a weighted ensemble, by their predictions for held-out texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from textgraft.data.examples import TargetKind

LOSS_NAMES: Mapping[TargetKind, str] = {
    "single": "log_loss",
    "multi": "log_loss",
    "numeric": "squared_error",
    "choice": "log_loss",
}
"""The name of the loss of each kind of target."""
STEPS = 20
MIN_GAIN = 1e-12
"""Smallest decrease of the loss that counts; less is rounding."""
FAVOURED_SHARE = 0.8
"""Share of the weights that favoured models have in the prior, in equal parts."""
PRIOR_NATS = 1.0
"""Loss, in nats over all texts, of a nat that the weights diverge from the prior: it counts for about as much as one
text, so that it decides where there are few, and is nothing beside hundreds (research/lab-notes.md)."""


def mean_loss(kind: TargetKind, targets: NDArray, outputs: NDArray) -> float:
    """The mean of `losses`."""
    return float(losses(kind, targets, outputs).mean())


def losses(kind: TargetKind, targets: NDArray, outputs: NDArray) -> NDArray[np.float64]:
    """Loss of each text: (N,).

    It is the log loss in nats ("single"), the mean log loss of its labels ("multi"), or the squared error of the
    standardised value, which is the log loss of a normal distribution of fixed width. Probabilities are clipped at the
    float64 epsilon.

    Args:
        kind: Kind of target.
        targets: As metrics.classification.evaluate takes them.
        outputs: Likewise.
    """
    return LOSSES[kind](targets, outputs)


def _of_class(targets: NDArray, outputs: NDArray) -> NDArray[np.float64]:
    return _nats(outputs[np.arange(len(targets)), targets])


def _of_labels(targets: NDArray, outputs: NDArray) -> NDArray[np.float64]:
    likelihood = np.where(np.asarray(targets) > 0.5, outputs, 1.0 - np.asarray(outputs, dtype=np.float64))
    return np.asarray(_nats(likelihood).mean(axis=1))


def _squared_errors(targets: NDArray, outputs: NDArray) -> NDArray[np.float64]:
    return np.asarray((np.asarray(outputs, dtype=np.float64) - targets) ** 2)


def _nats(likelihood: NDArray) -> NDArray[np.float64]:
    return np.asarray(-np.log(likelihood.clip(np.finfo(np.float64).eps, 1.0)))


LOSSES: Mapping[TargetKind, Callable[[NDArray, NDArray], NDArray[np.float64]]] = {
    "single": _of_class,
    "multi": _of_labels,
    "numeric": _squared_errors,
    "choice": _of_class,
}


def ensemble_weights(
    outputs: Sequence[NDArray],
    targets: NDArray,
    kind: TargetKind,
    *,
    favoured: Sequence[bool] = (),
    steps: int = STEPS,
) -> NDArray[np.float64]:
    """Ensemble selection with replacement (Caruana et al. 2004, §2.1-2.2), with a prior on the weights.

    The best model is selected first, then repeatedly the one whose predictions, added to those before, give the lowest
    `mean_loss`. Of all these bags of at most `steps` models the best is taken, the smallest on a tie. So the weighted
    mean is never worse on these texts than the best model alone, but for what the prior charges. Of equally good models
    the first is taken, so the same predictions give the same weights. Selection starts from one model, where the paper
    starts from several: so few models have little to overfit with.

    The charge is the one of a PAC-Bayesian bound (McAllester 1999; Catoni 2007): PRIOR_NATS / N for each nat of
    KL(weights || prior). Where no model is favoured, or all are, there is none.

    Args:
        outputs: For each of M models (N, C) probabilities or (N,) values for the same N held-out texts.
        targets: Targets of the texts.
        kind: Kind of target.
        favoured: For each model, whether the prior favours it; empty: none.
        steps: Maximum size of a bag.

    Returns:
        (M,) weights, which sum to 1; most may be 0.
    """
    stack = np.stack([np.asarray(one, dtype=np.float64) for one in outputs])
    prior, one_more = _prior(favoured), np.eye(len(stack), dtype=np.int64)
    counts, total = np.zeros(len(stack), dtype=np.int64), np.zeros_like(stack[0])
    best, chosen = np.inf, counts
    for size in range(1, steps + 1):
        candidate_losses = [mean_loss(kind, targets, (total + one) / size) for one in stack]
        if prior is not None:
            charges = [_divergence((counts + one) / size, prior) for one in one_more]
            price = PRIOR_NATS / len(targets)
            candidate_losses = [loss + price * nats for loss, nats in zip(candidate_losses, charges, strict=True)]
        added = int(np.argmin(candidate_losses))
        counts[added] += 1
        total += stack[added]
        if candidate_losses[added] < best - MIN_GAIN:
            best, chosen = candidate_losses[added], counts.copy()
    return chosen / chosen.sum()


def _prior(favoured: Sequence[bool]) -> NDArray[np.float64] | None:
    """(M,) FAVOURED_SHARE for the favoured models and the rest for the others; None where nothing tells them apart."""
    ours = np.asarray(favoured, dtype=bool)
    if not ours.any() or ours.all():
        return None
    return np.where(ours, FAVOURED_SHARE / ours.sum(), (1 - FAVOURED_SHARE) / (~ours).sum())


def _divergence(weights: NDArray[np.float64], prior: NDArray[np.float64]) -> float:
    """KL(weights || prior) in nats."""
    some = weights > 0
    return float((weights[some] * np.log(weights[some] / prior[some])).sum())
