"""Labels of a table: in one column, or in a column of 0 and 1 for each label."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from textgraft.core.errors import UserError
from textgraft.data.annotation_tools import is_rejected
from textgraft.data.cells_as_written import label_cells, number_in_another_notation, without_decimals
from textgraft.data.columns import LABEL_NAMES, Cells, find_column, guess_kind, whole_numbers
from textgraft.data.examples import Label, TargetKind
from textgraft.data.label_cells import SEPARATORS, LabelCells, is_list, is_no_label, unpack
from textgraft.data.label_kinds import MOST_NUMBER_CLASSES, SAY_QUANTITY, reading_of_whole_numbers
from textgraft.data.targets import TARGETS

_MARKS = {"1": True, "1.0": True, "true": True, "yes": True, "x": True}
_MARKS |= {"0": False, "0.0": False, "false": False, "no": False, "": False}

_SEVERAL = re.compile(rf"[\s{re.escape(SEPARATORS)}:()\[\]{{}}]")
"""What may stand between labels, or around them."""


def find_label_columns(columns: Sequence[str], named: str | Sequence[str] | None, source: str) -> tuple[str, ...]:
    """The column of labels, or the columns of 0 and 1, each for one label.

    Args:
        columns: Names of all columns.
        named: A name, several, or several in one string with commas between them; None: guessed by the name.
        source: Name of the data for error messages.

    Returns:
        The columns; none if nothing is named and no name looks like a label.

    Raises:
        UserError: A named column does not exist, or is named twice.

    >>> find_label_columns(["text", "culture", "sport"], "culture, sport", "train.csv")
    ('culture', 'sport')
    """
    if isinstance(named, str):
        is_column = named.strip().casefold() in {str(column).strip().casefold() for column in columns}
        named = [named] if is_column or "," not in named else [part for part in named.split(",") if part.strip()]
    names: Sequence[str | None] = [None] if named is None else list(named)
    found = [find_column(columns, name, LABEL_NAMES, "the label", source) for name in names]
    if repeated := sorted({str(column) for column in found if found.count(column) > 1}):
        raise UserError(f"the label column '{repeated[0]}' is named twice.", where=source, remedy="Name it once.")
    return tuple(column for column in found if column is not None)


def read_labels(
    table: Sequence[Mapping[str, Any]],
    columns: Sequence[str],
    cells: Cells,
    kind: TargetKind | None,
    separator: str | None,
) -> tuple[list[Label] | None, TargetKind]:
    """The labels of a table and their kind, with a warning where it was guessed and may be another.

    Args:
        table: The rows.
        columns: The column of the labels, or a column for each label.
        cells: Conversion and error locations.
        kind: Kind of the labels; guessed if None.
        separator: Separator of several labels in one cell.

    Returns:
        Labels as in `Examples.labels`, None if all are missing, and their kind.

    Raises:
        UserError: A cell cannot be a label of the kind, with its location.
    """
    name = ", ".join(f"'{column}'" for column in columns)
    if rejected := sum(map(is_rejected, table)):
        message = f"{rejected:,} examples were not accepted by their annotator, and count as texts without a label."
        warnings.warn(f"{cells.source}: {message}", stacklevel=3)
        table = [dict.fromkeys(row) if is_rejected(row) else row for row in table]
    values = label_cells([row.get(columns[0]) for row in table], kind, cells)
    if kind is not None and not TARGETS[kind].shares_classes:
        return cells.labels(values, kind), kind
    unpacked = unpack(values, separator) if len(columns) == 1 else _marked(table, columns, cells)
    if kind is not None and TARGETS[kind].has_sets and not unpacked.has_lists:
        unpacked = _in_lists(unpacked)
    if kind is None:
        kind = guess_kind(unpacked.values, str(columns[0]))
        for note in _notes(unpacked, kind, name):
            warnings.warn(f"{cells.source}: {note}", stacklevel=3)
    if not TARGETS[kind].has_one_label:
        return cells.labels(unpacked.values, kind), kind
    return cells.labels(_one_each(unpacked.values if unpacked.is_certain else values), kind), kind


def warn_of_marks(
    table: Sequence[Mapping[str, Any]], columns: Sequence[str], others: Sequence[str | None], source: str
) -> None:
    """Warn of a table without a label column if two columns or more hold marks only, such as 0 and 1."""
    marked = [
        column
        for column in columns
        if column not in others and {_known_mark(row.get(column)) for row in table} == {True, False}
    ]
    if len(marked) > 1:
        named = ",".join(map(str, marked))
        message = f"{source}: no column is named like a label. If columns of 0 and 1 are labels, say label={named}."
        warnings.warn(message, stacklevel=3)


def _marked(table: Sequence[Mapping[str, Any]], columns: Sequence[str], cells: Cells) -> LabelCells:
    """The names of the columns that each row has a mark in; None for a row in which all are empty."""
    rows: list[Any] = []
    for index, row in enumerate(table):
        marks = [_mark(row.get(column), str(column), index, cells) for column in columns]
        empty = all(is_no_label(row.get(column)) for column in columns)
        rows.append(None if empty else [str(column) for column, mark in zip(columns, marks, strict=True) if mark])
    return LabelCells(rows)


def _mark(value: Any, column: str, index: int, cells: Cells) -> bool:
    mark = _known_mark(value)
    if mark is None:
        remedy = "Write 1 where a text has the label and 0 where it has not, or name one column of labels."
        cells.fail(f"column '{column}' of labels has {value!r} where 0 or 1 is expected.", index, remedy)
    return mark


def _known_mark(value: Any) -> bool | None:
    """True for 1, x or yes, False for 0, no or nothing; None for anything else."""
    return False if is_no_label(value) else _MARKS.get(str(value).strip().casefold())


def _in_lists(cells: LabelCells) -> LabelCells:
    """Lists of one label, where no cell could be several in one string."""
    if any(isinstance(value, str) and _SEVERAL.search(value) for value in cells.values):
        return cells
    return LabelCells([value if is_no_label(value) else [value] for value in cells.values])


def _one_each(values: Sequence[Any]) -> list[Any]:
    """Values with a list of one label replaced by the label."""
    return without_decimals([value[0] if is_list(value) and len(value) == 1 else value for value in values])


def _notes(unpacked: LabelCells, kind: TargetKind, name: str) -> Iterator[str]:
    """What was guessed, and how to say otherwise."""
    numbers = whole_numbers(unpacked.values)
    if numbers is not None and (count := len(set(numbers))) > MOST_NUMBER_CLASSES:
        yield reading_of_whole_numbers(count, name, kind)
    if TARGETS[kind].has_one_label and (number := number_in_another_notation(unpacked.values)) is not None:
        yield f"the numbers of {name}, such as '{number}', are read as classes. {SAY_QUANTITY}"
    if unpacked.numbered:
        yield (
            f"the vectors of 0 and 1 in {name} are read as {unpacked.numbered} labels, numbered from 0. To name them, "
            "write a column of 0 and 1 for each and name the columns, as in label=first,second,third."
        )
    if not unpacked.is_certain:
        yield f'the cells of {name} are read as lists of labels. If each is one name, say kind="single".'
    lists = [value for value in unpacked.values if is_list(value)]
    if len(lists) > 1 and all(len(value) == 1 for value in lists):
        yield (
            f"{name} can have several labels a text, and every text has exactly one. If no text can have several, say "
            'kind="single".'
        )
