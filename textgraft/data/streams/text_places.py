"""Texts of one file from any place in it: plain text, JSON lines and Parquet, local or behind a URL.

A place is a row and, in files of lines, the byte where it begins, so that a stopped run continues in the middle of a
file: of Parquet without reading the row groups before, of plain files without reading the lines before. A compressed
file is decompressed up to the place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NamedTuple

from textgraft.core.errors import UserError
from textgraft.data.columns import Cells, find_text_column
from textgraft.data.damaged import as_user_errors
from textgraft.data.examples import MAX_CHARACTERS
from textgraft.data.json_files import parse_json
from textgraft.data.members import COMPRESSED
from textgraft.data.remote_files import is_url, name_of, open_url, open_url_at_random, reading
from textgraft.data.text_files import decompressed, explained

_BATCH_ROWS = 1000
_CHUNK = 1 << 20
_UTF8_MARK, _UTF16_MARKS = b"\xef\xbb\xbf", (b"\xff\xfe", b"\xfe\xff")
_SAVE_AS_UTF8 = "Save it as UTF-8; pretrain without --streaming reads other encodings."


class Place(NamedTuple):
    """Rows of a file that have been read, and their bytes in files of lines."""

    row: int = 0
    byte: int = 0


START = Place()


class _Line(NamedTuple):
    text: str
    after: Place


def texts_from(file: str, column: str | None, place: Place = START) -> Iterator[tuple[str, Place]]:
    """Texts of a file from a place on, each with the place after it; blank ones are skipped.

    Args:
        file: A path or URL.
        column: The column of the texts (`text_column`); ignored in plain text.
        place: Where to begin.

    Raises:
        UserError: The file cannot be read, is damaged, is not UTF-8, or lacks the column.
    """
    reader = _READERS[validated_format(file)]
    for value, after in reader(file, column, place):
        if value and not value.isspace():
            yield value, after


def validated_format(file: str) -> str:
    """The suffix of the format. Raises UserError for a format that is not streamed."""
    suffix = format_suffix(file)
    if suffix not in _READERS:
        kind = f"the suffix '{suffix}'" if suffix else "no suffix"
        remedy = f"Streamed are {', '.join(_READERS)}, those of lines also as .gz, .xz, .bz2 or .zst."
        raise UserError(f"a file with {kind} cannot be streamed.", where=file, remedy=remedy)
    return suffix


def format_suffix(file: str) -> str:
    """The suffix that names the format, without that of a compression.

    >>> format_suffix("s3://bucket/part-1.jsonl.gz"), format_suffix("README")
    ('.jsonl', '')
    """
    name = name_of(file)
    return (name.with_suffix("") if name.suffix.lower() in COMPRESSED else name).suffix.lower()


def text_column(file: str, named: str | None) -> str | None:
    """The column of the texts: named, or guessed by the names; None for plain text.

    Raises:
        UserError: There is no such column, or none looks like the text.
    """
    suffix = validated_format(file)
    if suffix == ".txt":
        return None
    if suffix == ".parquet":
        with ExitStack() as stack:
            columns = list(_parquet(file, stack).schema_arrow.names)
    else:
        first = next(((line, number) for number, (line, _) in enumerate(_lines(file), 1) if line.strip()), None)
        if first is None:
            return named
        columns = list(_object(*first, file))
    return find_text_column(columns, named, (), file)


def _plain_texts(file: str, column: str | None, place: Place) -> Iterator[tuple[str, Place]]:
    for line, after in _lines(file, place):
        yield line.rstrip("\r\n"), after


def _json_texts(file: str, column: str | None, place: Place) -> Iterator[tuple[str, Place]]:
    for line, after in _lines(file, place):
        if line.strip():
            cell = _object(line, after.row, file).get(column or "")
            yield _as_text(cell, file, "line", after.row), after


def _object(line: str, number: int, file: str) -> dict[str, Any]:
    value = parse_json(line.rstrip(), file, number)
    if not isinstance(value, dict):
        remedy = 'Write one object per line: {"text": "…"}.'
        message = f"a JSON {type(value).__name__} where an object is expected."
        raise UserError(message, where=f"{file} line {number}", remedy=remedy)
    return value


def _as_text(cell: Any, file: str, unit: str, number: int) -> str:
    return cell if type(cell) is str and cell.isascii() else Cells(file, unit, [number]).text(cell, 0)


def _lines(file: str, place: Place = START) -> Iterator[_Line]:
    """Lines of a UTF-8 file from a place on, each with the place after it."""
    row, byte = place
    with _explained(file), ExitStack() as stack:
        stream = _open(file, stack)
        _advance(stream, byte)
        while raw := stream.readline(MAX_CHARACTERS + 1):
            row, byte, where = row + 1, byte + len(raw), f"{file} line {row + 1}"
            if len(raw) > MAX_CHARACTERS:
                message = f"a line has more than {MAX_CHARACTERS:,} bytes."
                raise UserError(message, where=where, remedy="Cut it into several texts.")
            if row == 1:
                if raw.startswith(_UTF16_MARKS):
                    raise UserError("this file is UTF-16.", where=file, remedy=_SAVE_AS_UTF8)
                raw = raw.removeprefix(_UTF8_MARK)
            yield _Line(_decoded(raw, where), Place(row, byte))


def _decoded(raw: bytes, where: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        bad = error.object[error.start : error.start + 1].hex()
        raise UserError(f"byte 0x{bad} is not UTF-8.", where=where, remedy=_SAVE_AS_UTF8) from None


def _advance(stream: IO[bytes], byte: int) -> None:
    """Move a freshly opened file to a byte; one that cannot seek, as of some web servers, is read up to it."""
    if not byte:
        return
    try:
        stream.seek(byte)
    except (OSError, ValueError, NotImplementedError):
        while byte and (chunk := stream.read(min(byte, _CHUNK))):
            byte -= len(chunk)


def _parquet_texts(file: str, column: str | None, place: Place) -> Iterator[tuple[str, Place]]:
    with ExitStack() as stack:
        table = _parquet(file, stack)
        column = find_text_column(list(table.schema_arrow.names), column, (), file)
        number = 0
        for group in range(table.num_row_groups):
            rows = table.metadata.row_group(group).num_rows
            if number + rows <= place.row:
                number += rows
                continue
            for values in _cells(file, table, group, column):
                for value in values:
                    number += 1
                    if number > place.row:
                        yield _as_text(value, file, "row", number), Place(number)


def _parquet(file: str, stack: ExitStack) -> Any:
    """A Parquet file, of which only the footer has been read; `stack` closes it."""
    try:
        parquet: Any = import_module("pyarrow.parquet")
    except ImportError as error:
        remedy = "Install it: pip install 'textgraft[stream]'."
        raise UserError("streaming Parquet needs the package pyarrow.", where=file, remedy=remedy) from error
    with _explained(file):
        stream = open_url_at_random(file) if is_url(file) else Path(file).open("rb")  # noqa: SIM115
        stack.enter_context(stream)
    with _intact_parquet(file):
        return stack.enter_context(parquet.ParquetFile(stream))


def _cells(file: str, table: Any, group: int, column: str) -> Iterator[list[Any]]:
    """The values of a column in a row group, some at a time."""
    with _intact_parquet(file):
        batches = table.iter_batches(batch_size=_BATCH_ROWS, row_groups=[group], columns=[column])
    while True:
        with _intact_parquet(file):
            batch = next(batches, None)
            values = None if batch is None else batch.column(0).to_pylist()
        if values is None:
            return
        yield values


def _intact_parquet(file: str) -> AbstractContextManager[None]:
    return as_user_errors(file, "not a Parquet file, or a damaged one", "Download or write it again.")


def _explained(file: str) -> AbstractContextManager[None]:
    return reading(file) if is_url(file) else explained(Path(file))


def _open(file: str, stack: ExitStack) -> IO[bytes]:
    raw: IO[bytes] = stack.enter_context(open_url(file) if is_url(file) else Path(file).open("rb"))  # noqa: SIM115
    stream: Any = decompressed(Path(name_of(file)), raw)
    return raw if stream is raw else stack.enter_context(stream)


_READERS: dict[str, Callable[[str, str | None, Place], Iterator[tuple[str, Place]]]] = {
    ".txt": _plain_texts,
    ".jsonl": _json_texts,
    ".ndjson": _json_texts,
    ".json": _json_texts,
    ".parquet": _parquet_texts,
}
"""Readers by the suffix of the file."""
STREAMED_SUFFIXES = tuple(_READERS)
