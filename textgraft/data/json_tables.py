"""Tables that are one JSON value, as pandas and services write them: lists of columns, cells by row."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from textgraft.core.errors import UserError
from textgraft.core.formatting import quoted
from textgraft.data.annotation_tools import is_task
from textgraft.data.columns import ID_NAMES, LABEL_NAMES, PAIR_NAMES, TEXT_COLUMNS

_AROUND_ROWS = ("data", "rows", "records", "items", "results", "examples", "samples", "documents", "instances")
"""Names under which services put the list of rows, beside facts about it."""
_TEXTS = frozenset((*TEXT_COLUMNS, "context", *(name for pair in PAIR_NAMES for name in pair)))
_COLUMNS = _TEXTS.union(LABEL_NAMES, ID_NAMES, ("tokens", "words", "ner_tags", "spans", "entities", "answers", "title"))
"""Usual names of columns, by which columns are told from ids."""


def table_of(value: Mapping[str, Any], source: str = "") -> Sequence[Any] | None:
    """The rows of an object that is a table of texts; None for one that is a row itself.

    Tables are frames, a list of cells for each column, and an object that has a list of objects under a name such as
    "data" and no text beside it.

    Args:
        value: The object.
        source: Name of the file for error messages.

    Raises:
        UserError: There is a list for each column, and their lengths differ.

    >>> table_of({"text": ["a", "b"], "label": ["x", "y"]})
    [{'text': 'a', 'label': 'x'}, {'text': 'b', 'label': 'y'}]
    >>> table_of({"text": "a", "label": "x"})
    """
    if (frame := frame_of(value)) is not None:
        return frame
    if _are(list, value.values()) and not all(_are(dict, cells) for cells in value.values()):
        return _by_column(value, source)
    around = [name for name in _AROUND_ROWS if _are(dict, value.get(name))]
    if len(around) != 1 or any(isinstance(value[name], str) for name in value if name.casefold() in _TEXTS):
        return None
    return [_in_service(row) for row in value[around[0]]]


def frame_of(value: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """The rows of what pandas' `to_json` writes with any orient but "records" and "values"; None for anything else.

    >>> frame_of({"text": {"0": "a", "1": "b"}, "label": {"0": "x", "1": "y"}})
    [{'text': 'a', 'label': 'x'}, {'text': 'b', 'label': 'y'}]
    >>> frame_of({"tokens": ["Rome"], "tags": ["B-LOC"]})
    """
    if {"columns", "data"} <= set(value) <= {"columns", "index", "data"}:
        return _split(value["columns"], value["data"])
    if set(value) == {"schema", "data"} and _are(dict, value["data"]):
        return list(value["data"])
    return _by_row_or_column(value) if _are(dict, value.values()) and not is_task(value) else None


def _are(kind: type, values: Any) -> bool:
    """True for values, at least one, that are all of a type; False for a string and what is no collection."""
    is_many = isinstance(values, Collection) and not isinstance(values, str)
    return is_many and bool(values) and all(isinstance(one, kind) for one in values)


def _is_usual(names: Iterable[str]) -> bool:
    return any(name.casefold() in _COLUMNS for name in names)


def _are_numbers(names: Iterable[str]) -> bool:
    return all(name.isdigit() for name in names)


def _split(columns: Any, data: Any) -> list[dict[str, Any]] | None:
    if not isinstance(columns, list) or any(isinstance(name, list | dict) for name in columns):
        return None
    if not isinstance(data, list) or any(not isinstance(row, list) or len(row) != len(columns) for row in data):
        return None
    return [dict(zip(map(str, columns), row, strict=True)) for row in data]


def _by_row_or_column(value: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]] | None:
    """Rows of objects in an object.

    Usual names tell which are the columns, the outer or the inner ones; else those that are no numbers; else the outer,
    as pandas writes a frame where nobody asks for anything else.
    """
    inner = set[str]().union(*value.values())
    if not inner:
        return [] if len(value) > 1 else None
    if _is_usual(value):
        by_row = False
    elif _are_numbers(value) != _are_numbers(inner):
        by_row = _are_numbers(value)
    else:
        by_row = _is_usual(inner)
    if by_row:
        numbered = _are_numbers(value)
        return [dict(row) if numbered else {"id": name, **row} for name, row in value.items()]
    if any(set(cells) != inner for cells in value.values()):
        return None
    return [{name: cells[row] for name, cells in value.items()} for row in next(iter(value.values()))]


def _by_column(value: Mapping[str, list[Any]], source: str) -> list[dict[str, Any]] | None:
    """Rows of a list for each column; None for a single cell, which is rather a row."""
    lengths = {name: len(cells) for name, cells in value.items()}
    if len(set(lengths.values())) > 1:
        shown = quoted([f"{name}: {length:,}" for name, length in lengths.items()])
        remedy = "Give each text a value, or null."
        raise UserError(f"the columns have different lengths: {shown}.", where=source, remedy=remedy)
    rows = [dict(zip(value, cells, strict=True)) for cells in zip(*value.values(), strict=True)]
    return rows if len(rows) * len(value) > 1 else None


def _in_service(row: dict[str, Any]) -> dict[str, Any]:
    """A row as Hugging Face's data-set server sends it, beside its number."""
    return row["row"] if isinstance(row.get("row"), dict) and "row_idx" in row else row
