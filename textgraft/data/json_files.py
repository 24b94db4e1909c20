"""Files of JSON: an object a line, one array of objects, or a table that is one value."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from textgraft.core.errors import UserError
from textgraft.data.annotation_tools import as_row
from textgraft.data.json_tables import table_of
from textgraft.data.text_files import encoding_from_start, explained, lines, open_binary

_REMEDY = 'Write one object per line: {"text": "…", "label": "…"}.'
_LINE_END = re.compile(r"\r\n?|\n")
_FILLED = re.compile(r"\S")
_BEFORE_JSON = b"\xef\xbb\xbf\xff\xfe\0\r\n\t "
"""Byte order marks, white space, and the zero bytes of UTF-16."""


def is_one_value(path: Path, encoding: str | None = None) -> bool:
    """True if the file is one array or table, or has objects over several lines, and not an object a line."""
    with explained(path), open_binary(path) as file:
        head = file.read(1 << 16)
    if head.lstrip(_BEFORE_JSON).startswith(b"["):
        return True
    # Nearly all encodings share the characters that structure JSON.
    physical = lines(path, encoding=encoding or encoding_from_start(head) or "latin-1")
    try:
        return _items(physical, path) is not None
    except UserError:  # which whoever reads the rows will see
        return False


def json_rows(path: Path, encoding: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Objects with their line, or those of an array, of a table or over several lines with their number.

    Raises UserError for anything else.
    """
    items = _items(lines(path, encoding=encoding), path)
    if items is not None:
        yield from ((i, _object(value, f"{path} item {i}")) for i, value in enumerate(items, start=1))
        return
    for number, line in enumerate(lines(path, encoding=encoding), start=1):
        if line.strip():
            yield number, _object(parse_json(line.rstrip(), path, number), f"{path} line {number}")


def _items(physical: Iterator[str], path: Path) -> Sequence[Any] | None:
    """The items of a file that has to be parsed as a whole; None for an object a line, of which two lines are read."""
    opening = list(_until_second(physical))
    first, second = ([line for line in opening if line.strip()] + ["", ""])[:2]
    if first.lstrip().startswith("["):
        items: list[Any] = parse_json("".join(chain(opening, physical)), path, 1)
        return items
    value = value_of_line(first)
    if value is not None:
        return table_of(value, str(path)) if isinstance(value, dict) and not second else None
    if not _goes_on(first, second):
        return None
    values = parse_values("".join(chain(opening, physical)), path, 1)
    table = table_of(values[0], str(path)) if len(values) == 1 else None
    return values if table is None else table


def _until_second(physical: Iterator[str]) -> Iterator[str]:
    """Lines up to the second that is not blank."""
    seen = 0
    for line in physical:
        yield line
        seen += bool(line.strip())
        if seen == 2:
            return


def _goes_on(line: str, following: str) -> bool:
    """True where an object ends in a line after its first, and False for a damaged line of JSON lines."""
    text = line.strip()
    if not text.startswith("{"):
        return False
    if following.lstrip().startswith("{") and not text.endswith("["):
        return text.endswith(":") and value_of_line(following) is None
    try:
        json.loads(text)
    except json.JSONDecodeError as error:  # of a comma at the end, the place is that of the comma or after it
        return error.pos >= len(text) - text.endswith(",") and not error.msg.startswith("Extra data")
    except (ValueError, RecursionError):
        return False
    return False


def value_of_line(line: str) -> Any:
    """The value of a line; None where it is only a part of one, or damaged."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def parse_values(text: str, source: str | Path, line: int, remedy: str = _REMEDY) -> list[Any]:
    """All values of JSON text, one after another, that begins at a line of a file. Raises UserError as `parse_json`."""
    decoder, values, position = json.JSONDecoder(), list[Any](), 0
    with _json_explained(source, line, remedy):
        while (value_at := _FILLED.search(text, position)) is not None:
            value, position = decoder.raw_decode(text, value_at.start())
            values.append(value)
    return values


def parse_json(text: str, source: str | Path, line: int, remedy: str = _REMEDY) -> Any:
    """A value of JSON text that begins at a line of a file. Raises UserError, with the line, for anything else."""
    with _json_explained(source, line, remedy):
        return json.loads(text)


@contextmanager
def _json_explained(source: str | Path, line: int, remedy: str) -> Iterator[None]:
    """Convert errors of a parser of JSON, whose text begins at a line of a file, to UserError."""
    try:
        yield
    except json.JSONDecodeError as error:
        where = f"{source} line {line + len(_LINE_END.findall(error.doc, 0, error.pos))}"
        raise UserError(f"not valid JSON ({error.msg}, column {error.colno}).", where=where, remedy=remedy) from error
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits; very deep nesting
        raise UserError(f"JSON that cannot be read ({error}).", where=f"{source} line {line}") from error


def _object(value: Any, where: str) -> dict[str, Any]:
    if isinstance(value, dict):
        return as_row(value)
    raise UserError(f"a JSON {type(value).__name__} where an object is expected.", where=where, remedy=_REMEDY)
