"""Runtime check that faster predictions (int8) equal the reference ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from textgraft.core.errors import UserError

MIN_AGREEMENT = 0.99
"""Share of predictions that must be equal."""
SAMPLE_SIZE = 200
"""Texts or sentences of one call that are predicted in both ways."""


class Agreement:
    """Comparison of a sample of predictions in both precisions before the faster ones are used.

    Args:
        unit: Name of what is compared, such as "texts".
        sample_size: Number of predictions to compare.
    """

    def __init__(self, unit: str, sample_size: int) -> None:
        self.unit, self.sample_size = unit, sample_size
        self.compared = self.equal = 0

    @property
    def passed(self) -> bool:
        """True once enough predictions have been compared."""
        return self.compared >= self.sample_size

    def compare(self, reference: Sequence[Any], faster: Sequence[Any]) -> None:
        """Compare predictions. Raises UserError if more differ than the whole sample may have."""
        self.equal += sum(a == b for a, b in zip(reference, faster, strict=True))
        self.compared += len(reference)
        if self.compared - self.equal > (1 - MIN_AGREEMENT) * max(self.compared, self.sample_size):
            share = f"{self.equal / self.compared:.1%} of {self.compared:,} {self.unit} keep their prediction"
            message = f"in int8 only {share}, where {MIN_AGREEMENT:.0%} should."
            raise UserError(message, remedy='Leave out precision="int8".')
