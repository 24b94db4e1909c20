"""Progress of a long pass over texts, on stderr."""

from __future__ import annotations

import time
from contextlib import ExitStack
from types import TracebackType


class Meter:
    """A progress bar with the count, MB/s, tokens/s if counted, and the remaining time if `total` is known.

    Args:
        description: Label of the bar.
        total: Number of documents; None if unknown.
        shown: False to show nothing.
        unit: The documents' name in the bar.
    """

    def __init__(self, description: str, total: int | None, *, shown: bool, unit: str = "documents") -> None:
        self._unit = unit
        self._description, self._total, self._shown = description, total, shown
        self._documents = self._bytes = self._tokens = self._skipped = 0
        self._began = self._drawn = time.monotonic()
        self._open = ExitStack()

    def __enter__(self) -> Meter:
        if self._shown:
            from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

            from textgraft.core.progress_bar import Bar

            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[rates]}"))
            self._bar = self._open.enter_context(Bar(*columns, TimeRemainingColumn()))
            self._task = self._bar.add_task(self._description, total=self._total, rates="")
        return self

    def add(self, num_bytes: int, num_tokens: int = 0, documents: int = 1) -> None:
        """Count a document, or several at once."""
        self._documents += documents
        self._bytes += num_bytes
        self._tokens += num_tokens
        if self._shown and time.monotonic() - self._drawn > 0.2:
            self._draw()

    def skip(self, documents: int) -> None:
        """Count documents that an earlier run processed."""
        self._skipped += documents

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        seconds = max(self._drawn - self._began, 1e-9)
        done = self._documents + self._skipped
        rates = f"{done:,} {self._unit}, {self._bytes / 1e6 / seconds:.1f} MB/s"
        if self._tokens:
            rates += f", {self._tokens / seconds:,.0f} tokens/s"
        self._bar.update(self._task, completed=done, rates=rates)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            self._draw()
        self._open.close()
