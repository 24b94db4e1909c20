"""Labelled or unlabelled texts as one plain value, whatever file or frame they came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

TargetKind = Literal["single", "multi", "numeric"]
Unit = Literal["line", "row", "file"]
Label = str | tuple[str, ...] | float


@dataclass(frozen=True)
class Examples:
    """N texts in file order, with their labels and where each one stands.

    `labels` is None for unlabelled text; else one entry a text: a string (`kind` "single"), a tuple of strings
    ("multi", may be empty) or a float ("numeric"). What is missing is kept, so that lines stay true and `check`
    can name them: an empty text is "", a missing label "" (single) or NaN (numeric). `lines` are 1-based numbers
    in `source` of what `unit` says: lines of a file, rows of a frame, list or Parquet file, or files
    of a folder. `ids` are the user's own identifiers, if any; for a folder the path of each file inside it.
    """

    texts: Sequence[str]
    labels: Sequence[Label] | None = None
    kind: TargetKind | None = None
    ids: Sequence[str] | None = None
    lines: Sequence[int] | None = None
    source: str = "<memory>"
    unit: Unit = "line"

    def __len__(self) -> int:
        return len(self.texts)

    def where(self, index: int) -> str:
        """The place of example `index` as a person would look it up: `train.csv line 37`, `reviews/pos/9.txt`."""
        if self.unit == "file" and self.ids is not None:
            return f"{self.source}/{self.ids[index]}"
        return f"{self.source} {self.unit} {self.line(index)}"

    def line(self, index: int) -> int:
        """The 1-based line, row or file number of example `index`."""
        return self.lines[index] if self.lines is not None else index + 1

    def take(self, indices: Sequence[int]) -> Examples:
        """The examples at `indices`, in that order."""

        def pick(values: Sequence[Any] | None) -> list[Any] | None:
            return None if values is None else [values[i] for i in indices]

        return Examples(
            texts=[self.texts[i] for i in indices],
            labels=pick(self.labels),
            kind=self.kind,
            ids=pick(self.ids),
            lines=[self.line(i) for i in indices],
            source=self.source,
            unit=self.unit,
        )
