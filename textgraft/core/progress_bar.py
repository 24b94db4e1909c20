"""Progress bars on stderr, as lines in a log where stderr is not a terminal, or in the output of a notebook's cell."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID
from rich.table import Table

LOG_SECONDS, NOTEBOOK_SECONDS, LOG_WIDTH = 60.0, 0.5, 160
ANY_WIDTH = 10_000


class Bar(Progress):
    """rich's progress bar; where stderr is not a terminal, its line is printed once a minute.

    Unattended jobs of hours (`nohup`, a service) are monitored by their log. In a notebook the line is shown in place,
    twice a second, without rich's own way, which shows nothing unless ipywidgets is installed.
    """

    def __init__(self, *columns: ProgressColumn, show: bool = True) -> None:
        console = Console(stderr=True, force_jupyter=False)
        if not console.is_terminal:
            console = Console(stderr=True, width=max(console.width, LOG_WIDTH), force_jupyter=False)
        self._show_in_notebook = notebook_output() if show else None
        self._screen = console  # rich needs a table before it has set its console
        super().__init__(*columns, console=console, disable=not show or self._show_in_notebook is not None)
        self._written = time.monotonic()

    def update(self, task_id: TaskID, **changes: Any) -> None:
        super().update(task_id, **changes)
        self._log()

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        super().advance(task_id, advance)
        self._log()

    def stop(self) -> None:
        super().stop() if self._show_in_notebook is None else self._show_in_notebook(self._line())

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
        since = time.monotonic() - self._written
        if self._show_in_notebook is not None and since >= NOTEBOOK_SECONDS:
            self._show_in_notebook(self._line())
        elif not self.disable and not self.console.is_terminal and since >= LOG_SECONDS:
            self.console.print(self.make_tasks_table(self.tasks))
        else:
            return
        self._written = time.monotonic()

    def _line(self) -> str:
        """The bar as plain text."""
        console = Console(file=io.StringIO(), width=LOG_WIDTH, force_jupyter=False)
        with console.capture() as capture:
            console.print(self.make_tasks_table(self.tasks))
        return capture.get()


def notebook_output() -> Callable[[str], None] | None:
    """A function that shows a text in place in the output of a notebook's cell; None outside notebooks."""
    ipython = sys.modules.get("IPython")  # a kernel has imported it
    shell = None if ipython is None else ipython.get_ipython()
    if getattr(shell, "kernel", None) is None:
        return None
    handle = import_module("IPython.display").display({"text/plain": ""}, raw=True, display_id=True)

    def show(text: str) -> None:
        handle.update({"text/plain": text}, raw=True)

    return show
