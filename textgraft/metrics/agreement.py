"""Whether answers that come faster are the same ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from textgraft.core.errors import UserError

AGREEMENT = 0.99
"""So many of the answers must stay."""
LOOKED_AT = 200
"""Texts, or sentences, of one call that are asked in both ways."""


class Agreement:
    """Answers `of` so many things were asked in both ways before the faster ones are believed."""

    def __init__(self, of: str, enough: int) -> None:
        self.of, self.enough = of, enough
        self.asked = self.same = 0

    @property
    def believed(self) -> bool:
        return self.asked >= self.enough

    def look_at(self, usual: Sequence[Any], faster: Sequence[Any]) -> None:
        """Raises UserError where more answers differ than may of all that are to be looked at."""
        self.same += sum(a == b for a, b in zip(usual, faster, strict=True))
        self.asked += len(usual)
        if self.asked - self.same > (1 - AGREEMENT) * max(self.asked, self.enough):
            stay = f"{self.same / self.asked:.1%} of {self.asked:,} {self.of} keep their answer"
            message = f"in int8 only {stay}, where {AGREEMENT:.0%} should."
            raise UserError(message, remedy="Leave out --precision int8.")
