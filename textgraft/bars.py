"""Progress bars on stderr, and what becomes of them in a log."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console
from rich.progress import Progress, ProgressColumn, TaskID

LOG_SECONDS, LOG_WIDTH = 60.0, 160


class Bar(Progress):
    """rich's bar; where stderr is no terminal, and nothing can be drawn over, its line is written once a minute.

    Work of hours that was left alone (`nohup`, a service) is looked after by its log.
    """

    def __init__(self, *columns: ProgressColumn, show: bool = True) -> None:
        console = Console(stderr=True)
        if not console.is_terminal:
            console = Console(stderr=True, width=max(console.width, LOG_WIDTH))
        super().__init__(*columns, console=console, disable=not show)
        self._written = time.monotonic()

    def update(self, task_id: TaskID, **changes: Any) -> None:
        super().update(task_id, **changes)
        self._log()

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        super().advance(task_id, advance)
        self._log()

    def _log(self) -> None:
        if self.disable or self.console.is_terminal or time.monotonic() - self._written < LOG_SECONDS:
            return
        self._written = time.monotonic()
        self.console.print(self.make_tasks_table(self.tasks))
