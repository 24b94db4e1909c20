"""How much each of several models' answers should count, by what they said of texts that they had not seen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from textgraft.data.examples import ONE_OF, TargetKind

STEPS = 20
NOTHING = 1e-12
"""A gain below this is rounding, and no reason for another member."""


def mean_loss(kind: TargetKind, targets: NDArray, outputs: NDArray) -> float:
    """The mean of `losses`."""
    return float(losses(kind, targets, outputs).mean())


def losses(kind: TargetKind, targets: NDArray, outputs: NDArray) -> NDArray[np.float64]:
    """Each text's log loss in nats ("single"), that a label of it ("multi"), or its squared error, standardised: (N,).

    The last is a log loss too, that of a normal distribution of fixed width. targets and outputs as
    metrics.classification.evaluate has them; probabilities are clipped at the float64 epsilon.
    """
    if kind == "numeric":
        squared: NDArray[np.float64] = (np.asarray(outputs, dtype=np.float64) - targets) ** 2
        return squared
    if kind in ONE_OF:
        likelihood = outputs[np.arange(len(targets)), targets]
    else:
        likelihood = np.where(np.asarray(targets) > 0.5, outputs, 1.0 - np.asarray(outputs, dtype=np.float64))
    nats: NDArray[np.float64] = -np.log(likelihood.clip(np.finfo(np.float64).eps, 1.0))
    return nats if nats.ndim == 1 else nats.mean(axis=1)


def ensemble_weights(
    outputs: Sequence[NDArray], targets: NDArray, kind: TargetKind, *, steps: int = STEPS
) -> NDArray[np.float64]:
    """The weight (M,) of each of M models in a mean of their answers; they sum to 1, and most may be 0.

    outputs: for each model (N, C) probabilities or (N,) values for the same N texts, none of which it has seen.
    Ensemble selection with replacement (Caruana et al. 2004, §2.1-2.2): the best model comes first, then again and
    again the one whose answers, added to those before, leave the least `mean_loss`; of all these bags of at most
    `steps` models the best is taken, the smallest on a tie. So the mean is never worse on these texts than the best
    model alone. Of models that do equally well the one that comes first is taken, so the same answers give the same
    weights. We start from one model where they start from several: so few models have little to overfit with.
    """
    stack = np.stack([np.asarray(one, dtype=np.float64) for one in outputs])
    candidate_losses = [mean_loss(kind, targets, one) for one in stack]
    counts, total = np.zeros(len(stack), dtype=np.int64), np.zeros_like(stack[0])
    best, chosen = np.inf, counts
    for size in range(1, steps + 1):
        added = int(np.argmin(candidate_losses))
        counts[added] += 1
        total += stack[added]
        if candidate_losses[added] < best - NOTHING:
            best, chosen = candidate_losses[added], counts.copy()
        candidate_losses = [mean_loss(kind, targets, (total + one) / (size + 1)) for one in stack]
    return chosen / chosen.sum()
