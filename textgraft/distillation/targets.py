"""Distillation of a classifier by kind of target: losses on the answers of a teacher and on labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from torch import Tensor
from torch.nn import functional as F

from textgraft.data.batch import IGNORE
from textgraft.data.examples import TargetKind

MIN_PROBABILITY = 1e-12
"""Lower bound of a teacher's probabilities, so that logits are finite."""


class DistilledTarget(Protocol):
    """What distillation does for one kind of target."""

    def soft_losses(self, logits: Tensor, answers: Tensor, temperature: float) -> Tensor:
        """Distances (E,) of student and teacher logits (E, C): 0 where they are equal.

        For one label T² KL(softmax(answers / T) || softmax(logits / T)) in nats, whose gradient is that of the paper's
        cross entropy and whose scale does not depend on T (Hinton et al. 2015, §2, eq. 4); for several labels the same
        of each label's sigmoid, summed; for a number the squared error. Difference: the teacher's entropy is
        subtracted.
        """
        ...

    def hard_losses(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The classification head's own loss (E,) of each text, 0 without a label, and a bool (E,), True where there is
        one.

        `targets` are the head's, with -100 (one label) or NaN (several, a number) where there is none
        (`without_labels`).
        """
        ...

    def without_labels(self, count: int, classes: int) -> np.ndarray:
        """Targets of `count` texts without labels, for `hard_losses`."""
        ...

    def logits(self, outputs: np.ndarray) -> np.ndarray:
        """A classifier's outputs (`Predictor.outputs`) as float32 logits (N, C), for any kind of model.

        log p, or log p / (1 - p) for each of several labels; for an ensemble, of the mean. Standardised values are
        unchanged.
        """
        ...

    def as_targets(self, logits: np.ndarray) -> np.ndarray:
        """Logits (N, C) as hard labels."""
        ...

    def verdict(self, share: str, texts: str) -> str:
        """A sentence on the agreement of student and teacher."""
        return f"It agrees with its teacher on {share} of {texts}"


class OneLabel(DistilledTarget):
    """One label a text."""

    def soft_losses(self, logits: Tensor, answers: Tensor, temperature: float) -> Tensor:
        student, teacher = (logits / temperature).log_softmax(dim=1), (answers / temperature).log_softmax(dim=1)
        divergence = F.kl_div(student, teacher, log_target=True, reduction="none")
        return temperature**2 * divergence.sum(dim=1)

    def hard_losses(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return F.cross_entropy(logits, targets, ignore_index=IGNORE, reduction="none"), targets != IGNORE

    def without_labels(self, count: int, classes: int) -> np.ndarray:
        return np.full(count, IGNORE, dtype=np.int64)

    def logits(self, outputs: np.ndarray) -> np.ndarray:
        return np.log(_probabilities(outputs)).astype(np.float32)

    def as_targets(self, logits: np.ndarray) -> np.ndarray:
        return np.asarray(logits.argmax(axis=1))


class ManyLabels(DistilledTarget):
    """Any number of labels a text."""

    def soft_losses(self, logits: Tensor, answers: Tensor, temperature: float) -> Tensor:
        student, teacher = logits / temperature, answers / temperature
        p = teacher.sigmoid()
        divergence = F.binary_cross_entropy_with_logits(student, p, reduction="none")
        divergence = divergence - F.binary_cross_entropy_with_logits(teacher, p, reduction="none")
        return temperature**2 * divergence.sum(dim=1)

    def hard_losses(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        labelled = ~targets.isnan().any(dim=1)
        losses = F.binary_cross_entropy_with_logits(logits, targets.nan_to_num(), reduction="none").sum(dim=1)
        return losses * labelled, labelled

    def without_labels(self, count: int, classes: int) -> np.ndarray:
        return np.full((count, classes), np.nan, dtype=np.float32)

    def logits(self, outputs: np.ndarray) -> np.ndarray:
        p = _probabilities(outputs).clip(max=1 - MIN_PROBABILITY)
        return (np.log(p) - np.log1p(-p)).astype(np.float32)

    def as_targets(self, logits: np.ndarray) -> np.ndarray:
        return (logits >= 0).astype(np.float32)


class Quantity(DistilledTarget):
    """A number a text."""

    def soft_losses(self, logits: Tensor, answers: Tensor, temperature: float) -> Tensor:
        return (logits - answers).square().sum(dim=1)

    def hard_losses(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        labelled = ~targets.isnan()
        losses = (logits.squeeze(1) - targets.nan_to_num()).square()
        return losses * labelled, labelled

    def without_labels(self, count: int, classes: int) -> np.ndarray:
        return np.full(count, np.nan, dtype=np.float32)

    def logits(self, outputs: np.ndarray) -> np.ndarray:
        return outputs[:, None].astype(np.float32)

    def as_targets(self, logits: np.ndarray) -> np.ndarray:
        return logits[:, 0]

    def verdict(self, share: str, texts: str) -> str:
        return f"On {texts} it differs from its teacher by {share} on average"


DISTILLED_TARGETS: Mapping[TargetKind, DistilledTarget] = {
    "single": OneLabel(),
    "multi": ManyLabels(),
    "numeric": Quantity(),
}
"""By kind of target; a multiple-choice model, whose options differ between questions, cannot be distilled."""


def _probabilities(outputs: np.ndarray) -> np.ndarray:
    return np.asarray(outputs, dtype=np.float64).clip(MIN_PROBABILITY, 1.0)
