"""How far a training of word vectors has come, on stderr."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType


class Bar:
    """A progress bar over `total` steps, with a word on how it goes and the time that is left."""

    def __init__(self, description: str, total: float, *, shown: bool) -> None:
        self._description, self._total, self._shown = description, total, shown
        self._open = ExitStack()

    def __enter__(self) -> Bar:
        if self._shown:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[told]}"))
            self._bar = self._open.enter_context(
                Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True))
            )
            self._task = self._bar.add_task(self._description, total=self._total, told="")
        return self

    def add(self, steps: float, told: str = "") -> None:
        """So many steps more."""
        if self._shown:
            self._bar.update(self._task, advance=steps, told=told)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()
