"""What commands print: results on stdout, everything else on stderr; with --json one JSON object and nothing more."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textgraft.errors import UserError

if TYPE_CHECKING:
    from textgraft.data.check import Problem


def say(message: str) -> None:
    """A line for the person at the terminal, on stderr."""
    print(message, file=sys.stderr)


def complain(error: UserError) -> None:
    """A user's mistake as one line on stderr."""
    say("textgraft: error: " + " ".join(str(error).split()))


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


def print_problems(problems: Sequence[Problem]) -> None:
    """What `check` found, on stderr; nothing if there is nothing."""
    from rich.console import Console

    from textgraft.data.check import render

    if problems:
        render(problems, Console(stderr=True))
