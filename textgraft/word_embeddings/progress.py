"""Progress bar of word vector training, on stderr."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Any


class Bar:
    """Progress bar over `total` steps, with a status text and the time left; drawn from the first `add` on."""

    def __init__(self, description: str, total: float, *, shown: bool) -> None:
        self._description, self._total, self._shown = description, total, shown
        self._bar: Any = None
        self._open = ExitStack()

    def __enter__(self) -> Bar:
        return self

    def add(self, steps: float, status: str = "") -> None:
        """Advance by `steps`."""
        if self._shown:
            if self._bar is None:
                self._draw()
            self._bar.update(self._task, advance=steps, status=status)

    def _draw(self) -> None:
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

        from textgraft.core import progress_bar

        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[status]}"))
        self._bar = progress_bar.Bar(*columns, TimeRemainingColumn())
        self._open.enter_context(self._bar)
        self._task = self._bar.add_task(self._description, total=self._total, status="")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()
