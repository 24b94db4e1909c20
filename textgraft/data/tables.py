"""Rows of CSV, TSV, JSON lines and Parquet files with the line each starts at."""

from __future__ import annotations

import csv
import json
import shutil
import tempfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from textgraft.core.errors import UserError
from textgraft.data.text_files import COMPRESSED, explained, format_of, lines, open_binary, sniff

Row = tuple[int, dict[str, Any]]
JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
TABLE_SUFFIXES = (".csv", ".tsv", *JSON_SUFFIXES, ".parquet")
_FIELD_LIMIT = 2**31 - 1  # the largest C long everywhere; csv's own limit is 131,072 characters a field
_DELIMITERS = ",;\t|"


def rows(
    path: Path, *, encoding: str | None = None, delimiter: str | None = None, sniff_bytes: int | None = None
) -> Iterator[Row]:
    """Rows of a table as (line, {column: value}), one at a time, in constant memory.

    `line` is the 1-based physical line where the record starts (Parquet: the row; a JSON array: the element). CSV
    values are strings, other formats keep their types.

    Args:
        path: The file.
        encoding: Encoding; detected if None.
        delimiter: Delimiter; if given, any suffix is read as CSV.
        sniff_bytes: Bytes that decide the encoding; None for all.

    Raises:
        UserError: There is a stray or unclosed quote, a row wider or narrower than the header, a line that is not a
            JSON object, or a damaged file; with the line.
    """
    suffix = format_of(path)
    if suffix == ".parquet" and delimiter is None:
        return _parquet_rows(path)
    encoding = encoding or sniff(path, sniff_bytes)
    if suffix in JSON_SUFFIXES and delimiter is None:
        return _json_rows(path, lines(path, encoding=encoding))
    return _csv_rows(path, encoding, "\t" if delimiter is None and suffix == ".tsv" else delimiter)


# CSV is read by Python's csv module in strict mode, not by DuckDB: on a field with both a line break and a stray
# quote DuckDB (2.0) silently dropped the header or split the record, where csv reports the line.
def _csv_rows(path: Path, encoding: str, delimiter: str | None) -> Iterator[Row]:
    delimiter = delimiter or _sniff_delimiter(path, encoding)
    quoting = csv.QUOTE_MINIMAL
    if delimiter == "\t" and not _quotes_are_csv(path, encoding):
        quoting = csv.QUOTE_NONE
    records = _records(path, lines(path, encoding=encoding), delimiter, quoting)
    _, header = next(records, (0, []))
    names = [name for name in header if name.strip()]  # spreadsheets leave empty columns at the end
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(f"the header names {', '.join(map(repr, repeated))} twice.", where=f"{path} line 1")
    for line, fields in records:
        if len(fields) != len(header):
            raise UserError(
                f"{len(fields)} columns where the header has {len(header)}.",
                where=f"{path} line {line}",
                remedy=f"Put a text that contains {delimiter!r} in double quotes, or name the delimiter.",
            )
        yield line, dict(zip(header, fields))


def _records(path: Path, physical: Iterator[str], delimiter: str, quoting: int) -> Iterator[tuple[int, list[str]]]:
    """Records with the line each starts at; blank lines are skipped."""
    csv.field_size_limit(_FIELD_LIMIT)
    try:
        reader = csv.reader(physical, delimiter=delimiter, quoting=quoting, strict=True)  # type: ignore[arg-type]
    except TypeError as error:
        raise UserError(
            f"the delimiter must be one character, not {delimiter!r}.",
            where=str(path),
            remedy="Use one character, or leave it out for detection.",
        ) from error
    while True:
        start = reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            unclosed = "end of data" in str(error)
            end = "is never closed" if unclosed else f"goes wrong at line {reader.line_num} ({error})"
            raise UserError(
                f"a stray double quote: the quoted text that starts here {end}.",
                where=f"{path} line {start}",
                remedy='Write a quote inside a quoted text twice: "She said ""no"".".',
            ) from error
        if fields:
            yield start, fields


def _sniff_delimiter(path: Path, encoding: str) -> str:
    """The delimiter (comma, semicolon, tab or bar) that splits the header into most columns."""
    header = next(lines(path, encoding=encoding), "")
    return max(_DELIMITERS, key=lambda d: len(next(csv.reader([header], delimiter=d), [])))


def _quotes_are_csv(path: Path, encoding: str) -> bool:
    """True if double quotes in a tab-separated file are CSV quoting.

    Spreadsheets and pandas quote there, most published TSVs do not. Quotes are CSV where every name in the header is
    quoted; else unless reading them so fails, changes the width or swallows line ends while reading without quoting
    gives rows of equal width.
    """
    names = next(lines(path, encoding=encoding), "").rstrip("\r\n").split("\t")
    if all(len(name) > 1 and name[0] == name[-1] == '"' for name in names):
        return True

    def is_rectangular(quoting: int) -> bool:
        source = lines(path, encoding=encoding)
        width = None
        try:
            for _, fields in _records(path, source, "\t", quoting):
                width = width or len(fields)
                if len(fields) != width or any("\n" in field for field in fields):
                    return False
        except UserError:
            return False
        return True

    return is_rectangular(csv.QUOTE_MINIMAL) or not is_rectangular(csv.QUOTE_NONE)


def _json_rows(path: Path, physical: Iterator[str]) -> Iterator[Row]:
    first = True
    for number, line in enumerate(physical, start=1):
        if not line.strip():
            continue
        if first and line.lstrip().startswith("["):  # one array, not lines: it must be parsed whole
            values = _parsed("".join(chain([line], physical)), path, number)
            yield from ((i, _object(value, f"{path} element {i}")) for i, value in enumerate(values, start=1))
            return
        first = False
        yield number, _object(_parsed(line.rstrip(), path, number), f"{path} line {number}")


def _parsed(text: str, path: Path, line: int) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(
            f"not valid JSON ({error.msg}, column {error.colno}).",
            where=f"{path} line {line + error.lineno - 1}",
            remedy='Write one object per line: {"text": "…", "label": "…"}.',
        ) from error
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits; very deep nesting
        raise UserError(f"JSON that cannot be read ({error}).", where=f"{path} line {line}") from error


def _object(value: Any, where: str) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    remedy = 'Write one object per line: {"text": "…", "label": "…"}.'
    raise UserError(f"a JSON {type(value).__name__} where an object is expected.", where=where, remedy=remedy)


def _parquet_rows(path: Path) -> Iterator[Row]:
    if path.suffix.lower() in COMPRESSED:  # Parquet is read from its end, which needs a plain file
        with tempfile.TemporaryDirectory() as folder:
            plain = Path(folder) / "table.parquet"
            with explained(path), open_binary(path) as source, plain.open("wb") as target:
                shutil.copyfileobj(source, target)
            yield from _parquet_rows(plain)
        return
    import duckdb

    with explained(path):
        path.open("rb").close()
    with duckdb.connect(config={"autoinstall_known_extensions": False}) as connection:
        try:
            result = connection.execute("SELECT * FROM read_parquet(?)", [str(path)])
        except duckdb.Error as error:
            raise UserError(f"not a Parquet file ({str(error).splitlines()[0]}).", where=str(path)) from error
        names = [column[0] for column in result.description]
        number = 0
        while batch := result.fetchmany(1000):
            for values in batch:
                number += 1
                yield number, dict(zip(names, values))
