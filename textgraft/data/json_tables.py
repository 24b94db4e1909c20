"""Tables that are one JSON value, as pandas and services write them: lists of columns, cells by row."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from textgraft.core.errors import UserError
from textgraft.core.formatting import quoted
from textgraft.data.annotation_tools import is_task
from textgraft.data.columns import TEXT_COLUMNS

_AROUND_ROWS = ("data", "rows", "records", "items", "results", "examples", "samples", "documents", "instances")
"""Names under which services put the list of rows, beside facts about it."""


def table_of(value: Mapping[str, Any], source: str = "") -> Sequence[Any] | None:
    """The rows of an object that is a table of texts; None for one that is a row itself.

    Tables are frames, a list of cells for each column, and an object that has a list of objects under a name such as
    "data".

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
    if _are(list, value.values()) and not any(_are(dict, column) for column in value.values()):
        return _by_column(value, source)
    around = [name for name in _AROUND_ROWS if _are(dict, value.get(name))]
    return [_in_service(row) for row in value[around[0]]] if len(around) == 1 and "text" not in value else None


def frame_of(value: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """The rows of what pandas' `to_json` writes with orient "columns" (its default), "index" or "split"; else None.

    >>> frame_of({"text": {"0": "a", "1": "b"}, "label": {"0": "x", "1": "y"}})
    [{'text': 'a', 'label': 'x'}, {'text': 'b', 'label': 'y'}]
    >>> frame_of({"tokens": ["Rome"], "tags": ["B-LOC"]})
    """
    if {"columns", "data"} <= set(value) <= {"columns", "index", "data"}:
        return _split(value["columns"], value["data"])
    return _by_row_or_column(value) if _are(dict, value.values()) and not is_task(value) else None


def _are(kind: type, values: Any) -> bool:
    """True for values, at least one, that are all of a type; False for a string and what is no collection."""
    is_many = isinstance(values, Collection) and not isinstance(values, str)
    return is_many and bool(values) and all(isinstance(one, kind) for one in values)


def _split(columns: Any, data: Any) -> list[dict[str, Any]] | None:
    if not (_are(str, columns) and _are(list, data) and all(len(cells) == len(columns) for cells in data)):
        return None
    return [dict(zip(columns, cells, strict=True)) for cells in data]


def _by_row_or_column(value: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]] | None:
    """Rows of objects with the same keys: by row where the rows are numbered, or have a column for the text."""
    inner = list(next(iter(value.values())))
    if any(list(one) != inner for one in value.values()) or not inner:
        return None
    if all(name.isdigit() for name in value):
        return [dict(row) for row in value.values()]
    if any(name.casefold() in TEXT_COLUMNS for name in inner):
        return [{"id": name, **row} for name, row in value.items()]
    return [{name: cells[row] for name, cells in value.items()} for row in inner]


def _by_column(value: Mapping[str, list[Any]], source: str) -> list[dict[str, Any]] | None:
    """Rows of a list for each column; None for lists of one, which are rather a row."""
    lengths = {name: len(cells) for name, cells in value.items()}
    if len(set(lengths.values())) > 1:
        shown = quoted([f"{name}: {length:,}" for name, length in lengths.items()])
        remedy = "Give each text a value, or null."
        raise UserError(f"the columns have different lengths: {shown}.", where=source, remedy=remedy)
    rows = [dict(zip(value, cells, strict=True)) for cells in zip(*value.values(), strict=True)]
    return rows if len(rows) > 1 else None


def _in_service(row: dict[str, Any]) -> dict[str, Any]:
    """A row as Hugging Face's data-set server sends it, beside its number."""
    return row["row"] if isinstance(row.get("row"), dict) and "row_idx" in row else row
