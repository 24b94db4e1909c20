"""CSV and TSV files: their dialect, and their rows with the line each starts at."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from textgraft.core.errors import UserError
from textgraft.data.examples import MAX_CHARACTERS
from textgraft.data.headers import Header
from textgraft.data.text_files import lines

_DELIMITERS = ",;\t|"
_TYPED = {"\\t": "\t", "tab": "\t"}
"""Delimiters as they are typed in a shell, where a tab is hard to type."""
_EXCEL_LINE = re.compile(r'\ufeff?"?sep=(?P<delimiter>[^"\r\n])"?[\r\n]*', re.IGNORECASE)


@dataclass(frozen=True)
class Dialect:
    """How a file is CSV.

    Attributes:
        delimiter: One character.
        quoting: csv.QUOTE_MINIMAL, or csv.QUOTE_NONE where double quotes are characters like others.
        spaces: True if a space follows each delimiter, which is then no part of a value.
        preamble: Number of lines before the header: 1 for Excel's `sep=;`.
    """

    delimiter: str
    quoting: int = csv.QUOTE_MINIMAL
    spaces: bool = False
    preamble: int = 0


def dialect_of(path: Path, encoding: str, delimiter: str | None = None) -> Dialect:
    """The dialect of a file: its delimiter is that of Excel's line `sep=;`, or the one that cuts the header into most
    columns, unless it is given.
    """
    first, second = [*islice(lines(path, encoding=encoding), 2), "", ""][:2]
    excel = _EXCEL_LINE.fullmatch(first)
    header = second if excel else first
    if delimiter is not None:
        delimiter = _TYPED.get(delimiter.lower(), delimiter)
    elif excel:
        delimiter = excel["delimiter"]
    else:
        delimiter = max(_DELIMITERS, key=lambda d: len(next(csv.reader([header], delimiter=d), [])))
    if len(delimiter) != 1 or delimiter in '\r\n"':
        remedy = "Use one character, or leave it out for detection."
        raise UserError(f"the delimiter must be one character, not {delimiter!r}.", where=str(path), remedy=remedy)
    names = header.split(delimiter)[1:]
    spaces = bool(names) and all(name.startswith(" ") and name.strip() for name in names)
    dialect = Dialect(delimiter, csv.QUOTE_MINIMAL, spaces, int(excel is not None))
    quotes_are_csv = delimiter != "\t" or _quotes_are_csv(path, encoding, dialect)
    return dialect if quotes_are_csv else Dialect(delimiter, csv.QUOTE_NONE, spaces, dialect.preamble)


# CSV is read by Python's csv module in strict mode, not by DuckDB: on a field with both a line break and a stray
# quote DuckDB (2.0) silently dropped the header or split the record, where csv reports the line.
def csv_rows(path: Path, encoding: str, delimiter: str | None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Rows as (line, {column: value}). Raises UserError, with the line, for stray quotes and rows of another width."""
    dialect = dialect_of(path, encoding, delimiter)
    records = _records(path, encoding, dialect)
    number, names = next(records, (1, []))
    header = Header(names, f"{path} line {number}")
    for line, fields in records:
        if len(fields) != header.width:
            raise UserError(
                f"{len(fields)} columns where the header has {header.width}.",
                where=f"{path} line {line}",
                remedy=f"Put a text that contains {dialect.delimiter!r} in double quotes, or name the delimiter.",
            )
        yield line, header.row(line, fields)
    header.warn_of_values_without_name()


def _records(path: Path, encoding: str, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """Records with the line each starts at; blank lines are skipped."""
    csv.field_size_limit(MAX_CHARACTERS)  # of characters a field; its own limit is 131,072
    body = islice(lines(path, encoding=encoding), dialect.preamble, None)
    reader = csv.reader(
        body,
        delimiter=dialect.delimiter,
        quoting=dialect.quoting,  # type: ignore[arg-type]
        skipinitialspace=dialect.spaces,
        strict=True,
    )
    while True:
        start = reader.line_num + 1 + dialect.preamble
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if "field limit" in str(error):
                message = f"a cell that starts here has more than {MAX_CHARACTERS:,} characters."
                remedy = "Is it in a double quote that is never closed? If not, cut it into several texts."
                raise UserError(message, where=f"{path} line {start}", remedy=remedy) from error
            unclosed = "end of data" in str(error)
            last = reader.line_num + dialect.preamble
            end = "is never closed" if unclosed else f"goes wrong at line {last} ({error})"
            raise UserError(
                f"a stray double quote: the quoted text that starts here {end}.",
                where=f"{path} line {start}",
                remedy='Write a quote inside a quoted text twice: "She said ""no"".".',
            ) from error
        if fields:
            yield start, fields


def _quotes_are_csv(path: Path, encoding: str, dialect: Dialect) -> bool:
    """True if double quotes in a tab-separated file are CSV quoting.

    Spreadsheets and pandas quote there, most published TSVs do not. Quotes are CSV where every name in the header is
    quoted; else unless reading them so fails, changes the width or swallows line ends while reading without quoting
    gives rows of equal width.
    """
    header = next(islice(lines(path, encoding=encoding), dialect.preamble, None), "")
    if all(len(name) > 1 and name[0] == name[-1] == '"' for name in header.rstrip("\r\n").split("\t")):
        return True

    def is_rectangular(quoting: int) -> bool:
        width = None
        try:
            for _, fields in _records(path, encoding, Dialect("\t", quoting, dialect.spaces, dialect.preamble)):
                width = width or len(fields)
                if len(fields) != width or any("\n" in field for field in fields):
                    return False
        except UserError:
            return False
        return True

    return is_rectangular(csv.QUOTE_MINIMAL) or not is_rectangular(csv.QUOTE_NONE)
