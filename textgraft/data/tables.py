"""Rows of files, by format: CSV, JSON, Parquet, Feather, Excel, SQLite and plain lines, with the location of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from textgraft.core.errors import UserError
from textgraft.data.column_files import arrow_rows, parquet_rows
from textgraft.data.csv_files import csv_rows
from textgraft.data.examples import Unit
from textgraft.data.excel import excel_rows
from textgraft.data.json_files import is_one_value, json_rows
from textgraft.data.line_files import line_rows
from textgraft.data.members import SEPARATOR, ZIP, chosen_table, format_of, is_in_zip, split_member, zip_names
from textgraft.data.sqlite import sqlite_rows
from textgraft.data.text_files import explained, open_binary, sniff

Row = tuple[int, dict[str, Any]]


@dataclass(frozen=True)
class TextFormat:
    """A format of characters, which have an encoding; `rows` takes it, and the delimiter of columns or None."""

    rows: Callable[[Path, str, str | None], Iterator[Row]]

    def read(self, path: Path, encoding: str | None, delimiter: str | None, sniff_bytes: int | None) -> Iterator[Row]:
        """The rows; the encoding is detected from the first `sniff_bytes` if it is None."""
        return self.rows(path, encoding or sniff(path, sniff_bytes), delimiter)


@dataclass(frozen=True)
class BinaryFormat:
    """A format whose values have types."""

    rows: Callable[[Path], Iterator[Row]]

    def read(self, path: Path, encoding: str | None, delimiter: str | None, sniff_bytes: int | None) -> Iterator[Row]:
        """The rows; what concerns text files is ignored."""
        return self.rows(path)


_CSV = TextFormat(csv_rows)
_JSON = TextFormat(lambda path, encoding, _: json_rows(path, encoding))
_EXCEL = BinaryFormat(excel_rows)
_SQLITE = BinaryFormat(sqlite_rows)
_ARROW = BinaryFormat(arrow_rows)
FORMATS: Mapping[str, TextFormat | BinaryFormat] = {
    ".csv": _CSV,
    ".tsv": TextFormat(lambda path, encoding, delimiter: csv_rows(path, encoding, delimiter or "\t")),
    ".jsonl": _JSON,
    ".ndjson": _JSON,
    ".json": _JSON,
    ".parquet": BinaryFormat(parquet_rows),
    ".feather": _ARROW,
    ".arrow": _ARROW,
    ".xlsx": _EXCEL,
    ".xlsm": _EXCEL,
    ".db": _SQLITE,
    ".sqlite": _SQLITE,
    ".sqlite3": _SQLITE,
    ".txt": TextFormat(lambda path, encoding, _: line_rows(path, encoding)),
}
"""Readers of rows by the suffix of the file."""
TABLE_SUFFIXES = tuple(suffix for suffix in FORMATS if suffix != ".txt")
CSV_SUFFIXES = (".csv", ".tsv")
JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
FOLDER_SUFFIXES = (*CSV_SUFFIXES, *JSON_SUFFIXES, ".parquet", ".txt")
"""Formats of the files that are read where a folder is named."""
_OTHER_SHEETS = (".xls", ".xlsb", ".ods", ".numbers")
"""Formats that are not read, of programs that can save .xlsx."""
KNOWN_FORMATS = (
    f"Formats: {', '.join(FORMATS)}, each also as .gz, .xz, .bz2, .zst or in a .zip, or a folder with one subfolder "
    "per class."
)


def rows(
    path: Path, *, encoding: str | None = None, delimiter: str | None = None, sniff_bytes: int | None = None
) -> Iterator[Row]:
    """Rows of a file as (number, {column: value}), one at a time, in constant memory where the format allows it.

    The number counts from 1, in the unit that `unit_of` gives. CSV values are strings, other formats keep their types.

    Args:
        path: The file, or `located` in it.
        encoding: Encoding of a text file; detected if None.
        delimiter: Delimiter; if given, any suffix is read as CSV.
        sniff_bytes: Bytes that decide the encoding; None for all.

    Raises:
        UserError: The format is unknown, or the file is damaged; with the line where there is one.
    """
    if delimiter is not None and format_of(path) not in CSV_SUFFIXES:
        return _CSV.read(path, encoding, delimiter, sniff_bytes)
    return _format(path).read(path, encoding, delimiter, sniff_bytes)


def unit_of(path: Path, delimiter: str | None = None, encoding: str | None = None) -> Unit:
    """The unit of the numbers that `rows` gives: lines of text, rows, or items of one JSON value."""
    if delimiter is None and isinstance(_format(path), BinaryFormat):
        return "row"
    return "item" if delimiter is None and format_of(path) in JSON_SUFFIXES and is_one_value(path, encoding) else "line"


def located(path: Path) -> Path:
    """The path, with the file to read in it where it is a zip archive: the only one that is a table, or a text.

    Raises UserError for an archive without one, or with several.
    """
    if format_of(path) != ZIP or is_in_zip(path):
        return path
    file, _ = split_member(path)
    with explained(file):
        names = zip_names(file)
    tables, texts = ([name for name in names if format_of(Path(name)) in some] for some in (TABLE_SUFFIXES, (".txt",)))
    if len(texts) > 1 and not tables:
        remedy = f"Unpack them, and name the folder; or name one, as in {file}{SEPARATOR}{texts[0]}."
        raise UserError(f"there are {len(texts):,} files of text in it, and no table.", where=str(path), remedy=remedy)
    return Path(f"{file}{SEPARATOR}{chosen_table(path, None, names, tables or texts, 'table')}")


def why_empty(path: Path) -> str:
    """The reason why a file has no row."""
    if format_of(located(path)) not in CSV_SUFFIXES:
        return "the file contains no text."
    with explained(path), open_binary(located(path)) as file:
        header = file.read(1 << 16).strip(b"\xef\xbb\xbf\xff\xfe\0\r\n\t ")
    return "there is a header but no row below it." if header else "the file is empty."


def _format(path: Path) -> TextFormat | BinaryFormat:
    suffix = format_of(path)
    if suffix in FORMATS:
        return FORMATS[suffix]
    with explained(path):
        split_member(path)[0].open("rb").close()
    description = f"the suffix '{suffix}'" if suffix else "no suffix"
    remedy = "Save it as .xlsx or .csv." if suffix in _OTHER_SHEETS else KNOWN_FORMATS
    raise UserError(f"cannot tell the format of a file with {description}.", where=str(path), remedy=remedy)
