"""Output files: their validation before any work, and rows as CSV or JSON lines, written as a stream."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from textgraft.core.errors import UserError
from textgraft.core.json_text import encode

ROW_FORMATS = (".csv", ".jsonl")


def validate_out_file(path: Path | None, suffixes: Sequence[str], content: str) -> None:
    """Raise UserError for a file of another format, or one that cannot be written; `content` is what it is to hold."""
    from textgraft.core.files import validate_writable

    if path is None:
        return
    if path.suffix not in suffixes:
        message = f"{content} are written as {' or '.join(suffixes)}."
        raise UserError(message, where=str(path), remedy="Name such a file.")
    validate_writable(path)


def as_json_lines(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    return (encode(row).decode() + "\n" for row in rows)


def as_csv(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield a header and one line per row; an abstention is an empty cell, several labels are joined by |."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    for number, row in enumerate(rows):
        cells = {name: "|".join(v) if isinstance(v, tuple) else v for name, v in row.items() if name != "probabilities"}
        cells |= {f"p({name})": value for name, value in (row.get("probabilities") or {}).items()}
        if number == 0:
            writer.writerow(cells)
        writer.writerow(cells.values())
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()


def write_lines(path: Path, lines: Iterable[str]) -> int:
    """Write lines to a file, whole or not at all, and return their number."""
    from textgraft.core.files import writing_atomically

    written = 0
    with writing_atomically(path) as file:
        for line in lines:
            file.write(line.encode())
            written += 1
    return written
