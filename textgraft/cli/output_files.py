"""Output files: their validation before any work, and rows as CSV or JSON lines, written as a stream."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from textgraft.cli.console import print_note, serializable
from textgraft.core.errors import UserError
from textgraft.core.json_text import encode

ROW_FORMATS = (".csv", ".tsv", ".jsonl")
DIGITS = 4
"""Digits of probabilities after the decimal point."""


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


@dataclass(frozen=True)
class CsvStyle:
    """How rows are written as CSV: the delimiter, and whether a byte order mark comes first."""

    delimiter: str = ","
    bom: bool = False

    @classmethod
    def like(cls, source: Path | None, out: Path | None, columns: Mapping[str, str | None]) -> CsvStyle:
        """The style of a CSV file that texts come from, so that what opens it opens the output; .tsv has tabs."""
        from textgraft.data.csv_files import dialect_of
        from textgraft.data.members import format_of
        from textgraft.data.tables import CSV_SUFFIXES, located
        from textgraft.data.text_files import encoding_from_start, explained, open_binary, sniff

        tabs = out is not None and out.suffix == ".tsv"
        if source is None or str(source) == "-" or source.is_dir():
            return cls("\t" if tabs else ",")
        file, delimiter = located(source), columns.get("delimiter")
        if delimiter is None and format_of(file) not in CSV_SUFFIXES:
            return cls("\t" if tabs else ",")
        with explained(file), open_binary(file) as stream:
            start = stream.read(4)
        encoding = columns.get("encoding") or sniff(file)
        of_comma = format_of(file) == ".tsv" and delimiter is None
        written = "," if of_comma else dialect_of(file, encoding, delimiter).delimiter
        return cls("\t" if tabs else written, encoding_from_start(start) is not None)


def with_prediction(begun: Mapping[str, Any], prediction: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of the output; columns of the input named like one of the prediction get input_ before the name."""
    new = {name for name in prediction if name != "probabilities"}
    return {f"input_{name}" if name in new else name: value for name, value in begun.items()} | dict(prediction)


def four_digits(value: float | None) -> float | None:
    """Return a probability with four digits; numeric targets have none."""
    return None if value is None else round(value, DIGITS)


def rounded(probabilities: Mapping[str, float] | None) -> dict[str, float] | None:
    """Return probabilities with four digits."""
    return None if probabilities is None else {name: round(value, DIGITS) for name, value in probabilities.items()}


def as_lines(rows: Iterable[dict[str, Any]], out: Path | None, style: CsvStyle) -> Iterator[str]:
    """Return rows as CSV if `out` is such a file, else as JSON lines."""
    return as_csv(rows, style) if out is not None and out.suffix != ".jsonl" else as_json_lines(rows)


def as_json_lines(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Return rows as JSON lines."""
    return (encode(serializable(row)).decode() + "\n" for row in rows)


def as_csv(rows: Iterable[dict[str, Any]], style: CsvStyle | None = None) -> Iterator[str]:
    """Yield a header and one line per row; an abstention is an empty cell, several labels are joined by |.

    The first row names the columns. Raises UserError for a later one with others, as JSON may have.
    """
    style = style or CsvStyle()
    buffer = io.StringIO("\ufeff" if style.bom else "")
    buffer.seek(0, io.SEEK_END)
    writer = csv.writer(buffer, delimiter=style.delimiter, lineterminator="\n")
    header: list[str] = []
    for row in rows:
        cells = {name: _cell(value) for name, value in row.items() if name != "probabilities"}
        cells |= {f"p({name})": value for name, value in (row.get("probabilities") or {}).items()}
        if not header:
            header = list(cells)
            writer.writerow(header)
        if more := [name for name in cells if name not in header]:
            message = f"the first row has no '{more[0]}', and a later one has."
            raise UserError(message, where="--out", remedy="Name a .jsonl file, or the columns with --keep.")
        writer.writerow([cells.get(name, "") for name in header])
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()


def _cell(value: Any) -> Any:
    if isinstance(value, tuple):
        return "|".join(value)
    if isinstance(value, (dict, list)):  # of a JSON file
        return encode(serializable(value)).decode()
    return value


def write_lines(path: Path, lines: Iterable[str]) -> int:
    """Write lines to a file, whole or not at all, and return their number."""
    from textgraft.core.files import writing_atomically

    written = 0
    with writing_atomically(path) as file:
        for line in lines:
            file.write(line.encode())
            written += 1
    return written
