"""Rows of an output: columns of the input beside a prediction, as CSV or as JSON lines."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from textgraft.core.errors import UserError, did_you_mean
from textgraft.core.json_text import encode, serializable

DIGITS = 4
"""Digits of probabilities after the decimal point."""


@dataclass(frozen=True)
class Kept:
    """The columns of the input that are repeated in the output; None for all."""

    columns: Sequence[str] | None = ()

    @classmethod
    def parse(cls, value: str) -> Kept:
        """The value of --keep: all, none, or names with commas between them."""
        if value in ("all", "none"):
            return cls(None if value == "all" else ())
        return cls([name.strip() for name in value.split(",") if name.strip()])

    def of(self, cells: Mapping[str, Any]) -> dict[str, Any]:
        """These columns of a row."""
        return dict(cells) if self.columns is None else {name: cells.get(name) for name in self.columns}

    def validate(self, cells: Mapping[str, Any]) -> None:
        """Raise UserError for a column that the first row of a table lacks."""
        for name in self.columns or ():
            if name not in cells:
                raise UserError(f"there is no column '{name}'.", where="keep", remedy=did_you_mean(name, cells))


ALL = Kept(None)


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
            raise UserError(message, where="out", remedy="Name a .jsonl file, or the columns with keep=….")
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
