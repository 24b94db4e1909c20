"""Names of the precisions of inference, for modules that do not import torch."""

from __future__ import annotations

from typing import Literal, get_args

from textgraft.core.errors import UserError, did_you_mean

Precision = Literal["auto", "fp32", "bf16", "int8"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
TRAINING_PRECISIONS = tuple(name for name in PRECISIONS if name != "int8")


def validate_precision(precision: str) -> None:
    """Raise UserError for an unknown precision.

    >>> validate_precision("int8")
    """
    if precision not in PRECISIONS:
        raise UserError(f"unknown precision '{precision}'.", remedy=did_you_mean(str(precision), PRECISIONS))
