"""Output files: their validation before any work, and rows as CSV or JSON lines, written as a stream."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from textgraft.cli.console import print_note
from textgraft.core.errors import UserError

ROW_FORMATS = (".csv", ".tsv", ".jsonl")
OUTPUTS = ("out", "n_best", "html", "plot")
"""Options that name a file to write."""


def validate_not_read(options: Mapping[str, Any]) -> None:
    """Raise UserError where a command would write over a file, or into a folder of files, that it reads.

    Args:
        options: The arguments and options of the command, by name.
    """
    read = [
        path
        for name, value in options.items()
        if name not in OUTPUTS
        for path in (value if isinstance(value, list | tuple) else [value])
        if isinstance(path, str | Path) and (os.path.isfile(path) or (name == "files" and os.path.isdir(path)))
    ]
    for name in OUTPUTS:
        out = options.get(name)
        if out and os.path.exists(out) and any(os.path.samefile(out, path) for path in read):
            message = "this would be written over, and it is read too."
            raise UserError(message, where=str(out), remedy=f"Name another path for --{name.replace('_', '-')}.")


def validate_writable(path: Path) -> None:
    """Raise UserError if no file or folder can be written at `path`; a note names missing folders that will be made."""
    from textgraft.core.files import validate_writable

    validate_writable(path)
    if not path.absolute().parent.exists():
        print_note(f"textgraft: the folder {path.parent} does not exist, and is made.")


def validate_out_file(path: Path | None, suffixes: Sequence[str], content: str) -> None:
    """Raise UserError for a file of another format, or one that cannot be written; `content` is what it is to hold."""
    if path is None:
        return
    if path.suffix not in suffixes:
        names = " or ".join(filter(None, (", ".join(suffixes[:-1]), suffixes[-1])))
        message = f"{content} are written as {names}."
        raise UserError(message, where=str(path), remedy="Name such a file.")
    validate_writable(path)


def write_lines(path: Path, lines: Iterable[str]) -> int:
    """Write lines to a file, whole or not at all, and return their number."""
    from textgraft.core.files import writing_atomically

    written = 0
    with writing_atomically(path) as file:
        for line in lines:
            file.write(line.encode())
            written += 1
    return written
