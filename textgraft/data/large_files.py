"""Files of texts that are read without keeping texts and ids in memory."""

from __future__ import annotations

import warnings
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from textgraft.core.errors import UserError
from textgraft.data.annotation_tools import is_rejected
from textgraft.data.columns import ID_NAMES, Cells, find_column
from textgraft.data.examples import Examples, Label, TargetKind
from textgraft.data.huggingface_datasets import is_dataset
from textgraft.data.label_columns import read_labels, warn_of_marks
from textgraft.data.members import format_of
from textgraft.data.readers import has_choices, layout_of, read, validate_kind
from textgraft.data.tables import JSON_SUFFIXES, Row, located, rows, unit_of, why_empty
from textgraft.data.texts_on_disk import TextsOnDisk

LARGE = 1 << 26
"""Bytes of a file from which on its texts stay on disk."""
_REJECTION = ("answer", "_task_hash")
"""The columns by which an annotation tool says that an example is rejected."""
HEAD = 10_000
"""Rows whose values decide columns that names do not."""


@dataclass(frozen=True)
class _Asked:
    """Arguments of `textgraft.read`."""

    text: str | None = None
    text2: str | None = None
    label: str | Sequence[str] | None = None
    id: str | None = None
    kind: TargetKind | None = None
    encoding: str | None = None
    delimiter: str | None = None
    label_separator: str | None = None


def read_large(source: str | Path, **options: Any) -> Examples:
    """`textgraft.read`, with the texts of a file of LARGE bytes or more on disk (data.texts_on_disk).

    In memory are a few bytes a text. It differs from `read` where no name and no value of the first HEAD rows tells
    which column is which. Folders, data sets and questions with options are in memory.

    Args:
        source: Path of a file.
        options: Further arguments of `textgraft.read`.

    Raises:
        UserError: As `textgraft.read`.
    """
    asked = _Asked(**options)
    validate_kind(asked.kind)
    path = Path(source)
    if path.is_dir() or is_dataset(path) or (path.is_file() and path.stat().st_size < LARGE):
        return read(source, **options)
    path, kind = located(path), asked.kind
    name, unit = str(path), unit_of(path, asked.delimiter, asked.encoding)
    table, numbered = _begin(path, asked)
    if not table:
        remedy = "Check that it is the right file: one text per row, and a label beside each for training."
        raise UserError(why_empty(path), where=name, remedy=remedy)
    columns = list(dict.fromkeys(column for row in table for column in row))
    if has_choices(columns, kind, asked.text, asked.text2):
        return read(source, **options)
    id_column = find_column(columns, asked.id, ID_NAMES, "the id", name)
    layout = layout_of(columns, table, name, (asked.text, asked.text2), asked.label, id_column)
    lines, texts = array("q"), TextsOnDisk(pairs=len(layout.texts) == 2)
    ids = None if id_column is None else TextsOnDisk()
    answers: list[Mapping[str, Any]] = []
    shared = _SharedRows(layout.labels)
    for number, row in _counted(numbered, lines):
        cells = Cells(name, unit, [number])
        values = [[row.get(column)] for column in layout.texts]
        texts.append((cells.pairs(*values) if len(values) == 2 else cells.texts(*values))[0])
        if ids is not None and id_column is not None:
            ids.append(cells.texts([row.get(id_column)])[0])
        if layout.labels:
            answers.append(shared.of(row))
    labels = None
    if layout.labels:
        labels, kind = read_labels(answers, layout.labels, Cells(name, unit, lines), kind, asked.label_separator)
        if labels is None and asked.label is not None:
            remedy = "Check that it is the right column."
            raise UserError(f"the label column '{layout.labels[0]}' is empty.", where=name, remedy=remedy)
    else:
        warn_of_marks(table, columns, (*layout.texts, id_column), name)
    labels = None if labels is None else _shared(labels)
    return Examples(texts, labels, kind if labels is not None else None, ids, lines, name, unit)


def _begin(path: Path, asked: _Asked) -> tuple[list[Mapping[str, Any]], Iterator[Row]]:
    """The first HEAD rows, of JSON also each later one with a column that none before has; and all rows with places."""
    numbered = rows(path, encoding=asked.encoding, delimiter=asked.delimiter)
    head = list(islice(numbered, HEAD))
    sample: list[Mapping[str, Any]] = [row for _, row in head]
    if len(head) < HEAD or asked.delimiter is not None or format_of(path) not in JSON_SUFFIXES:
        return sample, chain(head, numbered)
    known = {column for row in sample for column in row}
    for _, row in numbered:
        if not row.keys() <= known:
            known.update(row)
            sample.append(row)
    again = rows(path, encoding=asked.encoding, delimiter=asked.delimiter)
    with warnings.catch_warnings(action="ignore"):  # what there is to say of the encoding has been said
        return sample, chain(list(islice(again, HEAD)), again)


class _SharedRows:
    """The cells of rows that labels are read from, as rows of these columns alone; equal ones are one object."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns, self._known = columns, dict[Any, Mapping[str, Any]]()

    def of(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """The cells of a row."""
        columns = [*self._columns, *(_REJECTION if is_rejected(row) else ())]
        cells = {column: row.get(column) for column in columns}
        try:  # 1, 1.0 and True are equal, and other labels
            return self._known.setdefault(tuple((column, type(cell), cell) for column, cell in cells.items()), cells)
        except TypeError:  # a list of labels
            return cells


def _shared(labels: Sequence[Label]) -> list[Label]:
    """The labels, of which equal ones are one object."""
    known: dict[Label, Label] = {}
    return [known.setdefault(label, label) for label in labels]


def _counted(numbered: Iterator[Row], lines: array[int]) -> Iterator[Row]:
    for number, row in numbered:
        lines.append(number)
        yield number, row
