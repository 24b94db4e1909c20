"""Trainings whose loss or gradient is no number any more."""

from __future__ import annotations

import math

from textgraft.core.errors import UserError


class Diverged(UserError):
    """The loss or the gradient of a training is not a finite number."""


def validate_finite(value: float, name: str, place: str) -> None:
    """Raise Diverged where the value of that name is not a finite number; `place` is that in the training."""
    if not math.isfinite(value):
        raise Diverged(
            f"the {name} is not a finite number.",
            where=place,
            remedy="Lower the learning rate (textgraft lr-find shows where the loss diverges) or clip gradients.",
        )
