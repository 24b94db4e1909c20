"""Labelled or unlabelled texts as one plain value, whatever file or frame they came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

TargetKind = Literal["single", "multi", "numeric"]
Label = str | tuple[str, ...] | float


@dataclass(frozen=True)
class Examples:
    """N texts in file order, with their labels and where each one stands.

    `labels` is None for unlabelled text; else one entry a text: a string (`kind` "single"), a tuple of strings
    ("multi", may be empty) or a float ("numeric"). `lines` are 1-based line numbers in `source`; a reader that has
    no lines (a folder, a list, a frame) gives the 1-based row. `ids` are the user's own identifiers, if any.
    """

    texts: Sequence[str]
    labels: Sequence[Label] | None = None
    kind: TargetKind | None = None
    ids: Sequence[str] | None = None
    lines: Sequence[int] | None = None
    source: str = "<memory>"

    def __len__(self) -> int:
        return len(self.texts)

    def where(self, index: int) -> str:
        """The place of example `index` as a person would look it up: `train.csv line 37`."""
        return f"{self.source} line {self.lines[index] if self.lines is not None else index + 1}"

    def take(self, indices: Sequence[int]) -> Examples:
        """The examples at `indices`, in that order."""

        def pick(values: Sequence[Any] | None) -> list[Any] | None:
            return None if values is None else [values[i] for i in indices]

        lines = self.lines if self.lines is not None else range(1, len(self) + 1)
        return Examples(
            texts=[self.texts[i] for i in indices],
            labels=pick(self.labels),
            kind=self.kind,
            ids=pick(self.ids),
            lines=pick(lines),
            source=self.source,
        )
