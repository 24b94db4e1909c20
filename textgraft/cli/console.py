"""Output of commands: results on stdout, all else on stderr; with --json one JSON object on stdout and nothing else."""

from __future__ import annotations

import contextlib
import json
import math
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textgraft.core.errors import UserError

PACKAGE = Path(__file__).parents[1]
READ_OPTIONS = {
    "text": "--text-column",
    "label": "--label",
    "id": "--id",
    "kind": "--kind",
    "label_separator": "--label-separator",
    "encoding": "--encoding",
    "delimiter": "--delimiter",
    "limit": "--limit",
}
"""Command-line options for the arguments of `textgraft.read` and `textgraft.load_vectors`."""


class Interrupted(Exception):
    """Ctrl-C, with the message for the user."""


if TYPE_CHECKING:
    from textgraft.data.checks import Problem


def print_note(message: str) -> None:
    """Print a line on stderr."""
    print(message, file=sys.stderr)


def print_error(error: UserError) -> None:
    """Print a user error as one line on stderr."""
    error = UserError(error.message, where=error.where, remedy=as_options(error.remedy))
    print_note("textgraft: error: " + " ".join(str(error).split()))


def as_options(remedy: str) -> str:
    """Return a remedy with command-line options in place of arguments of `textgraft.read`.

    `Name it with encoding=….` becomes `Name it with --encoding ….`
    """
    return re.sub(rf"\b({'|'.join(READ_OPTIONS)})=", lambda match: READ_OPTIONS[match[1]] + " ", remedy)


@contextlib.contextmanager
def warnings_on_stderr() -> Iterator[None]:
    """Print warnings of textgraft as lines on stderr, and suppress those of libraries."""

    def show(message: Warning | str, category: type[Warning], filename: str, *rest: Any, **more: Any) -> None:
        if Path(filename).is_relative_to(PACKAGE):
            print_note("textgraft: warning: " + as_options(str(message)))

    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = show
        yield


def print_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object on stdout; NaN and infinity, which JSON lacks, become null."""
    print(json.dumps(_serializable(value), ensure_ascii=False))


def _serializable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _serializable(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_serializable(v) for v in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value) if isinstance(value, Path) else value


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "") -> None:
    """Print a table on stdout; columns of numbers are aligned to the right, and no cell is truncated."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for index, name in enumerate(head):
        numeric = any(row[index][:1].isdigit() for row in rows)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console = Console()
    if not console.is_terminal:
        console = Console(width=max(console.width, 200))
    console.print(table)


def print_problems(problems: Sequence[Problem], *, errors_only: bool = False) -> None:
    """Print the problems that `check` found on stderr."""
    from rich.console import Console

    from textgraft.data.checks import render

    shown = [problem for problem in problems if problem.severity == "error" or not errors_only]
    if shown:
        render(shown, Console(stderr=True))
