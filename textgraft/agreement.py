"""Whether answers that come faster are the same ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from textgraft.errors import UserError

AGREEMENT = 0.99
"""So many of the answers must stay."""
LOOKED_AT = 200
"""Texts, or sentences, that are asked in both ways before the faster one is believed."""


def check_agreement(usual: Sequence[Any], faster: Sequence[Any], of: str) -> None:
    """Raises UserError where too few of the answers `of` so many things are the same."""
    same = sum(a == b for a, b in zip(usual, faster, strict=True)) / max(1, len(usual))
    if same < AGREEMENT:
        message = f"in int8 only {same:.1%} of {len(usual):,} {of} keep their answer, where {AGREEMENT:.0%} should."
        raise UserError(message, remedy="Leave out --precision int8.")
