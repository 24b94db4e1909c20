"""Files of JSON: an object a line, or one array of objects."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from textgraft.core.errors import UserError
from textgraft.data.annotation_tools import as_row
from textgraft.data.text_files import explained, lines, open_binary

_REMEDY = 'Write one object per line: {"text": "…", "label": "…"}.'
_BEFORE_JSON = b"\xef\xbb\xbf\xff\xfe\0\r\n\t "
"""Byte order marks, white space, and the zero bytes of UTF-16."""


def is_array(path: Path) -> bool:
    """True if the file is one JSON array, and not an object a line."""
    with explained(path), open_binary(path) as file:
        return file.read(1 << 16).lstrip(_BEFORE_JSON).startswith(b"[")


def json_rows(path: Path, encoding: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Objects with their line, or those of an array with their number in it. Raises UserError for anything else."""
    physical = lines(path, encoding=encoding)
    first = True
    for number, line in enumerate(physical, start=1):
        if not line.strip():
            continue
        if first and line.lstrip().startswith("["):  # one array, not lines: it must be parsed whole
            values = parse_json("".join(chain([line], physical)), path, number)
            yield from ((i, _object(value, f"{path} item {i}")) for i, value in enumerate(values, start=1))
            return
        first = False
        yield number, _object(parse_json(line.rstrip(), path, number), f"{path} line {number}")


def parse_json(text: str, source: str | Path, line: int, remedy: str = _REMEDY) -> Any:
    """A value of JSON text that begins at a line of a file. Raises UserError, with the line, for anything else."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where = f"{source} line {line + error.lineno - 1}"
        raise UserError(f"not valid JSON ({error.msg}, column {error.colno}).", where=where, remedy=remedy) from error
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits; very deep nesting
        raise UserError(f"JSON that cannot be read ({error}).", where=f"{source} line {line}") from error


def _object(value: Any, where: str) -> dict[str, Any]:
    if isinstance(value, dict):
        return as_row(value)
    raise UserError(f"a JSON {type(value).__name__} where an object is expected.", where=where, remedy=_REMEDY)
