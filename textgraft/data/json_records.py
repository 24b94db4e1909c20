"""Records of files in any layout: JSON with a record per line, one list of records or a single object; Parquet; Hugging
Face data sets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

from textgraft.data.huggingface_datasets import dataset_rows, is_dataset
from textgraft.data.json_files import parse_json, parse_values, value_of_line
from textgraft.data.json_tables import frame_of
from textgraft.data.members import format_of
from textgraft.data.tables import JSON_SUFFIXES, rows
from textgraft.data.text_files import explained, lines, open_binary

_START = re.compile(r'\s*(?:\{\s*(?:"(?:[^"\\]|\\.)*"\s*:|\})|\[\s*(?:[\[{]|\]\s*$|"(?:[^"\\]|\\.)*"\s*,))')
_HEAD_BYTES = 1 << 16
REMEDY = "Write one object per line, or one list of objects."


class Record(NamedTuple):
    """A value of a file, and where it is: the number of its line or row, or its place in a list."""

    number: int
    unit: Literal["line", "item", "row"]
    value: Any


def starts_like_json(text: str) -> bool:
    """True for the beginning of an object with a key, or of a list of objects, lists or strings.

    >>> starts_like_json('{"text": "Rome"}'), starts_like_json("{ O"), starts_like_json("[ -LRB- O")
    (True, False, False)
    """
    return _START.match(text) is not None


def is_json(path: Path) -> bool:
    """True for a file with the suffix of JSON, and for one that begins like it whatever its suffix."""
    if format_of(path) in JSON_SUFFIXES:
        return True
    if not path.is_file():
        return False
    with explained(path), open_binary(path) as file:
        head = file.read(_HEAD_BYTES)
    return starts_like_json(head.decode("utf-8", "replace").removeprefix("\ufeff"))


def has_records(path: Path) -> bool:
    """True for a file or a folder that `records` reads, not for text and columns."""
    return is_dataset(path) or format_of(path) == ".parquet" or is_json(path)


def records(path: Path) -> Iterator[Record]:
    """Records of JSON, plain or compressed (`json_records`), and rows of Parquet and of Hugging Face data sets."""
    if not is_dataset(path) and format_of(path) != ".parquet":
        return json_records(lines(path), str(path))
    numbered = dataset_rows(path) if is_dataset(path) else rows(path)
    return (Record(number, "row", value) for number, value in numbered)


def json_records(physical: Iterable[str], source: str) -> Iterator[Record]:
    """Records of JSON text; lines are parsed one at a time, a list or an object over several lines as a whole.

    Args:
        physical: The lines.
        source: Name of the file for error messages.

    Raises:
        UserError: This is not JSON; with the line.
    """
    every = enumerate(physical, 1)
    numbered = ((number, line) for number, line in every if line.strip())
    number, line = next(numbered, (0, ""))
    if not number:
        return
    value = value_of_line(line)
    if value is None or _is_list_of_records(value):
        rest = [text for _, text in every]
        values = (
            parse_values("".join([line, *rest]), source, number, REMEDY)
            if value is None or any(map(str.strip, rest))
            else [value]
        )
        yield from _records_of(values[0] if len(values) == 1 else values, number)
        return
    following = list(islice(numbered, 1))
    if isinstance(value, dict) and not following:
        yield from _records_of(value, number)
        return
    yield Record(number, "line", value)
    for number, line in chain(following, numbered):
        yield Record(number, "line", parse_json(line.rstrip(), source, number, REMEDY))


def _records_of(whole: Any, number: int) -> Iterator[Record]:
    """Records of a list or a frame; anything else is one itself."""
    rows = frame_of(whole) if isinstance(whole, dict) else whole
    if not isinstance(rows, list):
        yield Record(number, "line", whole)
        return
    yield from (Record(i, "item", row) for i, row in enumerate(rows, 1))


def _is_list_of_records(value: Any) -> bool:
    """True for a list, unless it is a record itself: a text followed by its annotation."""
    return isinstance(value, list) and not (value and isinstance(value[0], str))


def first_line_and_all(physical: Iterable[str]) -> tuple[str, Iterator[str]]:
    """The first line that is not blank, and all lines again, for a stream that can be read only once."""
    stream, seen = iter(physical), []
    for line in stream:
        seen.append(line)
        if line.strip():
            break
    return (seen[-1] if seen else ""), chain(seen, stream)
