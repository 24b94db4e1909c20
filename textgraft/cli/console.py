"""What commands print: results on stdout, everything else on stderr; with --json one JSON object and nothing more."""

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
"""The options for the arguments of `textgraft.read`, and of `textgraft.load_vectors`."""


class Interrupted(Exception):
    """Ctrl-C, with what there is to say about it."""


if TYPE_CHECKING:
    from textgraft.data.checks import Problem


def say(message: str) -> None:
    """A line for the person at the terminal, on stderr."""
    print(message, file=sys.stderr)


def complain(error: UserError) -> None:
    """A user's mistake as one line on stderr."""
    error = UserError(error.message, where=error.where, remedy=as_options(error.remedy))
    say("textgraft: error: " + " ".join(str(error).split()))


def as_options(remedy: str) -> str:
    """A remedy that names arguments of `textgraft.read`, with the options that stand for them instead.

    `Name it with encoding=….` becomes `Name it with --encoding ….`
    """
    return re.sub(rf"\b({'|'.join(READ_OPTIONS)})=", lambda match: READ_OPTIONS[match[1]] + " ", remedy)


@contextlib.contextmanager
def warnings_said() -> Iterator[None]:
    """Inside, our own warnings are lines on stderr; those of libraries, which mean nothing to a user, are left out."""

    def show(message: Warning | str, category: type[Warning], filename: str, *rest: Any, **more: Any) -> None:
        if Path(filename).is_relative_to(PACKAGE):
            say("textgraft: warning: " + as_options(str(message)))

    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = show
        yield


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON object on stdout; NaN and infinity, which JSON does not have, become null."""
    print(json.dumps(_plain(value), ensure_ascii=False))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value) if isinstance(value, Path) else value


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "") -> None:
    """A table on stdout; columns of numbers are set to the right, and nothing is cut off."""
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
    """What `check` found, on stderr; nothing if there is nothing."""
    from rich.console import Console

    from textgraft.data.checks import render

    shown = [problem for problem in problems if problem.severity == "error" or not errors_only]
    if shown:
        render(shown, Console(stderr=True))
