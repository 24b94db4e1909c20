"""Files of JSON: an object a line, or one array of objects."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from textgraft.core.errors import UserError
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
            values = _parsed("".join(chain([line], physical)), path, number)
            yield from ((i, _object(value, f"{path} item {i}")) for i, value in enumerate(values, start=1))
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
            remedy=_REMEDY,
        ) from error
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits; very deep nesting
        raise UserError(f"JSON that cannot be read ({error}).", where=f"{path} line {line}") from error


def _object(value: Any, where: str) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise UserError(f"a JSON {type(value).__name__} where an object is expected.", where=where, remedy=_REMEDY)
