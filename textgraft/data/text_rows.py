"""Rows of files as a stream: each with its text or pair, its id or place, and all its cells."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from textgraft.core.errors import UserError
from textgraft.data.cells_as_written import columns_without_content
from textgraft.data.columns import (
    ID_NAMES,
    LABEL_NAMES,
    TEXT_COLUMNS,
    Cells,
    find_column,
    find_pair_columns,
    find_text_column,
    guess_label_column,
)
from textgraft.data.examples import Pair, Unit
from textgraft.data.huggingface_datasets import dataset_rows, is_dataset
from textgraft.data.tables import located, rows, unit_of, why_empty

_SNIFF_BYTES = 1 << 22  # bytes that decide the encoding of a corpus file, which may be too large to read twice
_SNIFF_ROWS = 1000  # rows of a corpus whose values decide columns that names do not


@dataclass(frozen=True)
class TextRow:
    """A row of a file, with the text column or the two columns of a pair.

    Attributes:
        source, unit, number: Its location.
        cells: All its values by column.
        text_columns: One column, or two for pairs.
        id_column: The column of the ids, if there is one.
    """

    source: str
    unit: Unit
    number: int
    cells: Mapping[str, Any]
    text_columns: Sequence[str]
    id_column: str | None = None

    @property
    def text(self) -> str:
        """The text or Pair; raises UserError, with the location, where it is neither."""
        texts = self.texts
        return Pair(*texts) if len(texts) == 2 else texts[0]

    @property
    def texts(self) -> list[str]:
        """The text, or both texts of a pair."""
        return self._as_texts(self.text_columns)

    @property
    def key(self) -> dict[str, Any]:
        """The id, under the name of its column; without ids {"line": …}, {"row": …} or {"item": …}."""
        if self.id_column is None:
            return {self.unit: self.number}
        return {self.id_column: self._as_texts([self.id_column])[0]}

    def _as_texts(self, columns: Sequence[str]) -> list[str]:
        cells = Cells(self.source, self.unit, [self.number] * len(columns))
        return cells.texts([self.cells.get(column) for column in columns])


def read_rows(
    path: str | os.PathLike[str],
    *,
    text: str | None = None,
    text2: str | None = None,
    id: str | None = None,
    encoding: str | None = None,
    delimiter: str | None = None,
) -> Iterator[TextRow]:
    """Stream the rows of a file, each with its text or pair, in constant memory; empty texts included.

    Args:
        path: The file.
        text, text2: Text columns; guessed from the first rows if None.
        id: The id column; guessed by its name if None.
        encoding: Encoding; detected if None.
        delimiter: Delimiter of a CSV file; detected if None.

    Raises:
        UserError: As for `read_texts`, and for a file without rows.
    """
    empty = True
    names = {"text": text, "text2": text2, "id": id}
    for row in text_rows(located(Path(path)), names, encoding, delimiter):
        empty = False
        yield row
    if empty:
        remedy = "Check that it is the right file: one text per row."
        raise UserError(why_empty(Path(path)), where=str(path), remedy=remedy)


def read_cells(
    path: str | os.PathLike[str], *, id: str | None = None, encoding: str | None = None, delimiter: str | None = None
) -> Iterator[TextRow]:
    """`read_rows` without texts, for tables whose texts are read by other means."""
    file = located(Path(path))
    unit = unit_of(file, delimiter, encoding)
    for number, cells in rows(file, encoding=encoding, delimiter=delimiter):
        id_column = find_column(list(cells), id, ID_NAMES, "the id", str(file))
        yield TextRow(str(file), unit, number, cells, (), id_column)


def text_rows(
    path: Path, names: Mapping[str, str | None], encoding: str | None, delimiter: str | None = None
) -> Iterator[TextRow]:
    """Rows of a file or data set, which may be none.

    Args:
        path: The file, `located`, or the data set.
        names: Columns that the user named, of "text", "text2" and "id".
        encoding, delimiter: As for `read_rows`.
    """
    data_set = is_dataset(path)
    unit: Unit = "row" if data_set else unit_of(path, delimiter, encoding)
    if data_set:
        rows_read = dataset_rows(path)
    else:
        rows_read = rows(path, encoding=encoding, delimiter=delimiter, sniff_bytes=_SNIFF_BYTES)
    head = list(islice(rows_read, 1))
    if not head:
        return
    columns = list(head[0][1])
    label = find_column(columns, None, LABEL_NAMES, "", "")
    id_column = find_column(columns, names.get("id"), ID_NAMES, "the id", str(path))
    text, text2 = names.get("text"), names.get("text2")
    others = [label, id_column]
    if not (text or text2 or find_column(columns, None, TEXT_COLUMNS, "", "")) and len(columns) > 1:
        head += islice(rows_read, _SNIFF_ROWS - 1)
        table = [row for _, row in head]
        unread = columns_without_content(columns, table)
        if label is None:
            label = guess_label_column([column for column in columns if column not in unread], table, id_column)
        others = [label, id_column, *unread]
    pair = find_pair_columns(columns, text, text2, others, str(path))
    text_columns = pair or [find_text_column(columns, text, others, str(path))]
    for number, row in chain(head, rows_read):
        yield TextRow(str(path), unit, number, row, text_columns, id_column)
