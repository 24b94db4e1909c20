"""Progress bars on stderr, as lines in a log where stderr is not a terminal."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID
from rich.table import Table

LOG_SECONDS, LOG_WIDTH = 60.0, 160
ANY_WIDTH = 10_000


class Bar(Progress):
    """rich's progress bar; where stderr is not a terminal, its line is printed once a minute.

    Unattended jobs of hours (`nohup`, a service) are monitored by their log.
    """

    def __init__(self, *columns: ProgressColumn, show: bool = True) -> None:
        console = Console(stderr=True)
        if not console.is_terminal:
            console = Console(stderr=True, width=max(console.width, LOG_WIDTH))
        self._screen = console  # rich needs a table before it has set its console
        super().__init__(*columns, console=console, disable=not show)
        self._written = time.monotonic()

    def update(self, task_id: TaskID, **changes: Any) -> None:
        super().update(task_id, **changes)
        self._log()

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        super().advance(task_id, advance)
        self._log()

    def make_tasks_table(self, tasks: Iterable[Task]) -> Table:
        """rich's table, fitted to a narrow terminal: the bar shrinks first, then the last column, then the first.

        rich shrinks all columns alike, and leaves "9… 0:… l… 0:…" of "98% 0:01:02 left 0:00:03".
        """
        table = super().make_tasks_table(tasks)
        unbounded = self._screen.options.update(width=ANY_WIDTH)
        widths = [
            max((self._screen.measure(cell, options=unbounded).maximum for cell in column.cells), default=0)
            for column in table.columns
        ]
        excess = sum(widths) + len(widths) - 1 - self._screen.width
        bars = [number for number, column in enumerate(self.columns) if isinstance(column, BarColumn)]
        for number in [*bars, len(widths) - 1, 0]:
            minimum = 0 if number in bars else 1
            if excess > 0 and widths[number] > minimum:
                table.columns[number].max_width = max(minimum, widths[number] - excess)
                excess -= widths[number] - minimum
        return table

    def _log(self) -> None:
        if self.disable or self.console.is_terminal or time.monotonic() - self._written < LOG_SECONDS:
            return
        self._written = time.monotonic()
        self.console.print(self.make_tasks_table(self.tasks))
