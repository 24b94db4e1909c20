"""Output of commands: results on stdout, all else on stderr; with --json one JSON object on stdout and nothing else."""

from __future__ import annotations

import contextlib
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textgraft.core.errors import DataWarning, UserError
from textgraft.core.json_text import encode, serializable

PACKAGE = Path(__file__).parents[1]
OPTIONS = {
    'misplaced="drop"': "--drop-misplaced",
    'illegal_tags="repair"': "--repair-tags",
    'illegal_spans="repair"': "--repair-spans",
    "kept_bytes": "--keep-gb",
    "tag": "--tag-column",
    "tag_names": "--tag-names",
    "word": "--word-column",
    "text": "--text",
    "text2": "--text2",
    "label": "--label",
    "adapt": "--adapt",
    "id": "--id",
    "kind": "--kind",
    "label_separator": "--label-separator",
    "encoding": "--encoding",
    "errors": "--errors",
    "delimiter": "--delimiter",
    "limit": "--limit",
    "bleu": "--bleu",
    "contexts": "--contexts",
    "device": "--device",
    "endpoint": "--endpoint",
    "engine": "--engine",
    "folds": "--folds",
    "half": "--half",
    "int8": "--int8",
    "keep": "--keep",
    "layer_aggregation": "--layer-aggregation",
    "max_tokens": "--max-tokens",
    "network": "--lstm-layers",
    "overwrite": "--overwrite",
    "own_vocabulary": "--own-vocabulary",
    "precision": "--precision",
    "recipe": "--recipe",
    "sharding": "--sharding",
    "student": "--student",
    "texts": "--texts",
    "tokenizer": "--tokenizer",
    "tokens": "--tokens",
    "unlabelled": "--unlabelled",
    "valid": "--valid",
    "vectors": "--vectors",
    "sentences": "--sentence",
    "words": "--word",
    "to": "--to",
}
"""Command-line options for arguments of Python, which are how the package's messages name them."""
ARGUMENT = re.compile(
    r"\b(?:(misplaced=\"drop\"|illegal_tags=\"repair\"|illegal_spans=\"repair\"|max_tokens\b(?!=)|kept_bytes)"
    rf'|({"|".join(name for name in OPTIONS if "=" not in name)})=(True|False|"[\w.-]+")?)'
)
"""An argument in a message: with a value, before one that is not a plain word, or a name that is no word."""


class Interrupted(Exception):
    """Ctrl-C, with the message for the user."""


if TYPE_CHECKING:
    from textgraft.data.problems import Problem


def print_note(message: str) -> None:
    """Print a line on stderr."""
    print(message, file=sys.stderr)


def print_error(error: UserError) -> None:
    """Print a user error as one line on stderr."""
    error = UserError(error.message, where=error.where, remedy=as_options(error.remedy))
    print_note("textgraft: error: " + " ".join(str(error).split()))


def as_options(remedy: str) -> str:
    """Return a remedy with command-line options in place of arguments of Python.

    >>> as_options("Name it with encoding=…, or pass overwrite=True.")
    'Name it with --encoding …, or pass --overwrite.'
    >>> as_options('Leave out precision="int8", or leave BLEU out (bleu=False).')
    'Leave out --precision int8, or leave BLEU out (--no-bleu).'
    """

    def option(match: re.Match[str]) -> str:
        whole, name, value = match.groups()
        if whole:
            return OPTIONS[whole]
        if value in ("True", "False"):
            return OPTIONS[name] if value == "True" else OPTIONS[name].replace("--", "--no-", 1)
        return f"{OPTIONS[name]} " + (value or "").strip('"')

    return ARGUMENT.sub(option, remedy)


@contextlib.contextmanager
def warnings_on_stderr() -> Iterator[None]:
    """Print warnings of textgraft as lines on stderr, and suppress those of libraries."""

    def show(message: Warning | str, category: type[Warning], filename: str, *rest: Any, **more: Any) -> None:
        if issubclass(category, DataWarning) or Path(filename).is_relative_to(PACKAGE):
            print_note("textgraft: warning: " + as_options(str(message)))

    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = show
        yield


def print_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object on stdout; NaN and infinity, which JSON lacks, become null."""
    print(encode(serializable(value)).decode())


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


@contextlib.contextmanager
def problems_printed() -> Iterator[None]:
    """Suppress the warnings for problems in the data, which `print_problems` has shown."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        yield


def print_problems(problems: Sequence[Problem], *, errors_only: bool = False) -> None:
    """Print the problems that `check` found on stderr."""
    from rich.console import Console

    from textgraft.data.problems import render

    shown = [problem for problem in problems if problem.severity == "error" or not errors_only]
    if shown:
        render(with_options(shown), Console(stderr=True))


def with_options(problems: Sequence[Problem]) -> list[Problem]:
    """Return the problems with command-line options in their remedies."""
    return [replace(problem, remedy=as_options(problem.remedy)) for problem in problems]
