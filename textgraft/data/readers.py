"""Readers of texts and labels from files, folders, frames and lists; corpora of any size as a stream of texts."""

from __future__ import annotations

import glob
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from textgraft.core.errors import UserError
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
from textgraft.data.examples import Choice, Examples, Pair, TargetKind, Unit, as_text
from textgraft.data.huggingface_datasets import dataset_rows, is_dataset
from textgraft.data.label_columns import find_label_columns, read_labels, warn_of_marks
from textgraft.data.multiple_choice import looks_like_choices, read_choices
from textgraft.data.tables import TABLE_SUFFIXES, Row, rows
from textgraft.data.text_files import explained, format_of, lines, open_binary

SUFFIXES = (*TABLE_SUFFIXES, ".txt")
KINDS = ("single", "multi", "numeric", "choice")
_SNIFF_BYTES = 1 << 22  # bytes that decide the encoding of a corpus file, which may be too large to read twice
_SNIFF_ROWS = 1000  # rows of a corpus whose values decide columns that names do not
TOKENS = "tokens.json"
"""File that marks a folder of tokens instead of text (tasks.language_modeling.token_shards)."""
_FORMATS = (
    f"Formats: {', '.join(SUFFIXES)}, each also as .gz, .xz, .bz2 or .zst, or a folder with one subfolder per class."
)


def read(
    source: Any,
    *,
    text: str | None = None,
    text2: str | None = None,
    label: str | Sequence[str] | None = None,
    id: str | None = None,
    kind: TargetKind | None = None,
    encoding: str | None = None,
    delimiter: str | None = None,
    label_separator: str | None = None,
) -> Examples:
    """Read texts, and labels if there are any, into memory.

    Columns are guessed by their names, the label of two columns also by its values, with a warning.

    Args:
        source: Path of a CSV, TSV, JSON-lines, Parquet or text file (one text per line), plain or compressed; a folder
            with one subfolder per class; a pandas or polars frame; a list of strings, pairs of strings or dicts; the
            tuple `(texts, labels)`; or an `Examples`, which is returned as it is.
        text, label, id: Column names; guessed if None. Several columns of 0 and 1 as `label`, in a list or with commas
            between their names, are a label each.
        text2: Column of the second text of pairs; guessed if `text` is not named and no column is named like a single
            text.
        kind: Kind of the labels: "single", "multi", "numeric", or "choice" for rows with options to choose from
            (data.multiple_choice; `text` is then the context and `text2` the question). Guessed by `guess_kind` if
            None.
        encoding: Encoding of a text file; detected if None.
        delimiter: Delimiter of a CSV file; detected if None.
        label_separator: Separator of several labels in one cell.

    Raises:
        UserError: The source cannot be read, is empty, or lacks a column; with location and remedy.

    >>> read([{"text": "fine", "label": "pos"}, {"text": "dull", "label": "neg"}]).labels
    ['pos', 'neg']
    """
    if kind is not None and kind not in KINDS:
        raise UserError(f"unknown kind of label '{kind}'.", remedy=f"Known: {', '.join(KINDS)}.")
    if isinstance(source, Examples):
        return source
    if _is_path(source) and Path(source).is_dir():
        return _read_folder(Path(source), encoding)
    name, unit, numbered_rows = _all_rows(source, encoding, delimiter)
    cells = Cells(name, unit, [number for number, _ in numbered_rows])
    columns = list(dict.fromkeys(column for _, row in numbered_rows for column in row))
    id_column = find_column(columns, id, ID_NAMES, "the id", name)
    table = [row for _, row in numbered_rows]
    in_memory = isinstance(table[0].get("text"), Choice)
    if not in_memory and (kind == "choice" or (kind is None and looks_like_choices(columns, text, text2))):
        answer = label if label is None or isinstance(label, str) else ",".join(label)
        texts, labels = read_choices(columns, table, cells, context=text, question=text2, answer=answer)
        kind = "choice"
    else:
        label_columns = find_label_columns(columns, label, name)
        if not label_columns and text2 is None:
            label_columns = _guessed_label(columns, table, text, id_column, name)
        texts, text_columns = _texts(columns, table, cells, (text, text2), (*label_columns, id_column))
        label_columns = tuple(column for column in label_columns if column not in text_columns)
        labels = None
        if label_columns:
            labels, kind = read_labels(table, label_columns, cells, "choice" if in_memory else kind, label_separator)
            if labels is None and label is not None:
                remedy = "Check that it is the right column."
                raise UserError(f"the label column '{label_columns[0]}' is empty.", where=name, remedy=remedy)
        else:
            warn_of_marks(table, columns, (*text_columns, id_column), name)
    ids = None if id_column is None else cells.texts([row.get(id_column) for row in table])
    return Examples(texts, labels, kind if labels is not None else None, ids, cells.lines, name, unit)


def _guessed_label(
    columns: Sequence[str], table: Sequence[dict[str, Any]], text: str | None, id_column: str | None, source: str
) -> tuple[str, ...]:
    """The label column guessed by its values, with a warning; none if unclear.

    Raises UserError where its name is one of its values: the first line is then an example, not a header.
    """
    guessed = guess_label_column(columns, table, id_column)
    if guessed is None or guessed == find_column(columns, text, TEXT_COLUMNS, "the text", source):
        return ()
    if any(str(row.get(guessed)).strip() == guessed.strip() for row in table):
        message = f"the first line looks like a text with its label, '{guessed}', and not like names of columns."
        remedy = f"Put names above it, such as text and label; if '{guessed}' is a name, say so with label={guessed}."
        raise UserError(message, where=source, remedy=remedy)
    message = f"{source}: the values of '{guessed}' are read as the labels. Name another column with label=…."
    warnings.warn(message, stacklevel=3)
    return (guessed,)


def _texts(
    columns: Sequence[str],
    table: Sequence[dict[str, Any]],
    cells: Cells,
    names: tuple[str | None, str | None],
    others: Sequence[str | None],
) -> tuple[list[str], Sequence[str]]:
    """The texts or pairs of a table, and their columns."""
    pair = find_pair_columns(columns, *names, others, cells.source)
    text_columns = pair or (find_text_column(columns, names[0], others, cells.source),)
    values = [[row.get(column) for row in table] for column in text_columns]
    return cells.pairs(*values) if pair else cells.texts(*values), text_columns


def read_texts(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    text: str | None = None,
    encoding: str | None = None,
) -> Iterator[str]:
    """Stream the texts of a corpus, in constant memory; empty ones are skipped.

    Args:
        paths: Files as for `read`, folders (all such files inside, sorted), glob patterns, and data sets of the Hugging
            Face library (data.huggingface_datasets). They are resolved immediately, files opened during iteration.
        text: Text column of tables, guessed from the first rows if None; tables of pairs give both columns.
        encoding: Encoding; decided by the first 4 MB of each file if None.

    Raises:
        UserError: A path or pattern matches no file, or a file cannot be read; with its location.
    """
    return _stream(source_files(paths), text, encoding)


def source_files(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[Path]:
    """The files and data sets that `read_texts` reads for `paths`, in order. Raises UserError for a path
    without any.
    """
    path_list = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    files = [file for path in path_list for file in _expand(path)]
    if not files:
        raise UserError("no files to read texts from.", remedy=_FORMATS)
    return files


def read_rows(
    path: str | os.PathLike[str], *, text: str | None = None, text2: str | None = None, encoding: str | None = None
) -> Iterator[tuple[dict[str, Any], str]]:
    """Stream the key and the text or pair of each row of a file, in constant memory; empty texts included.

    Args:
        path: The file.
        text, text2: Text columns; guessed from the first rows if None.
        encoding: Encoding; detected if None.

    Yields:
        {"id": …}, or without ids {"line": …} or {"row": …}, and the text or Pair.

    Raises:
        UserError: As for `read_texts`, and for a file without rows.
    """
    empty = True
    for row in _text_rows(Path(path), text, text2, encoding):
        empty = False
        id_column = find_column(list(row.cells), None, ID_NAMES, "the id", str(path))
        key: dict[str, Any] = {row.unit: row.number} if id_column is None else {"id": row.texts(id_column)[0]}
        texts = row.texts(*row.text_columns)
        yield key, Pair(*texts) if len(texts) == 2 else texts[0]
    if empty:
        raise UserError(_why_empty(path), where=str(path), remedy="Check that it is the right file: one text per row.")


def _stream(files: Sequence[Path], text: str | None, encoding: str | None) -> Iterator[str]:
    empty = True
    for path in files:
        for row in _text_rows(path, text, None, encoding):
            for value in row.texts(*row.text_columns):
                if value and not value.isspace():
                    empty = False
                    yield value
    if empty:
        raise UserError(
            "the file contains no text.",
            where=", ".join(map(str, files[:3])),
            remedy="Check that it is the right file.",
        )


@dataclass(frozen=True)
class _TextRow:
    """A row, with the text column or the two columns of a pair."""

    source: str
    unit: Unit
    number: int
    cells: Mapping[str, Any]
    text_columns: Sequence[str]

    def texts(self, *columns: str) -> list[str]:
        """The cells as texts. Raises UserError, with the location, for anything else."""
        cells = Cells(self.source, self.unit, [self.number] * len(columns))
        return cells.texts([self.cells.get(column) for column in columns])


def _text_rows(path: Path, text: str | None, text2: str | None, encoding: str | None) -> Iterator[_TextRow]:
    data_set = is_dataset(path)
    unit: Unit = "row" if data_set else _unit(path)
    rows_read = dataset_rows(path) if data_set else _file_rows(path, encoding, None, sniff_bytes=_SNIFF_BYTES)
    head = list(islice(rows_read, 1))
    if not head:
        return
    columns = list(head[0][1])
    label, id_column = (find_column(columns, None, names, "", "") for names in (LABEL_NAMES, ID_NAMES))
    named = text or text2 or find_column(columns, None, (*TEXT_COLUMNS, *LABEL_NAMES), "", "")
    if not named and len(columns) > 1:
        head += islice(rows_read, _SNIFF_ROWS - 1)
        label = guess_label_column(columns, [row for _, row in head], id_column)
    pair = find_pair_columns(columns, text, text2, (label, id_column), str(path))
    text_columns = pair or [find_text_column(columns, text, (label, id_column), str(path))]
    for number, row in chain(head, rows_read):
        yield _TextRow(str(path), unit, number, row, text_columns)


def _expand(path: str | os.PathLike[str]) -> list[Path]:
    source = Path(path)
    if is_dataset(source):
        return [source]
    if (source / TOKENS).is_file():
        raise UserError(
            "this folder holds tokens, and not text.", where=str(source), remedy="Only pretrain reads them."
        )
    if source.is_dir():
        files = [file for file in _visible_files(source) if format_of(file) in SUFFIXES]
        if not files:
            raise UserError("the folder holds no file of text.", where=str(source), remedy=_FORMATS)
        return files
    if not source.exists() and glob.has_magic(str(source)):
        files = [file for name in sorted(glob.glob(str(source), recursive=True)) for file in _expand(name)]
        if not files:
            raise UserError("the pattern matches no file.", where=str(source))
        return files
    with explained(source):
        source.open("rb").close()
    return [source]


def _visible_files(folder: Path) -> list[Path]:
    return sorted(
        file
        for file in folder.rglob("*")
        if file.is_file() and not any(part.startswith(".") for part in file.relative_to(folder).parts)
    )


def _all_rows(source: Any, encoding: str | None, delimiter: str | None) -> tuple[str, Unit, list[Row]]:
    """Name of the source, unit of its rows, and at least one row."""
    if _is_path(source):
        path = Path(source)
        name, unit, numbered_rows = str(path), _unit(path), list(_file_rows(path, encoding, delimiter))
    else:
        name = "<frame>" if hasattr(source, "columns") else "<memory>"
        unit, numbered_rows = "row", list(_memory_rows(source))
    if not numbered_rows:
        remedy = "Check that it is the right file: one text per row, and a label beside each for training."
        raise UserError(_why_empty(source), where=name, remedy=remedy)
    return name, unit, numbered_rows


def _file_rows(
    path: Path, encoding: str | None, delimiter: str | None, *, sniff_bytes: int | None = None
) -> Iterator[Row]:
    """Rows of a table, or lines of a .txt file as rows of one column."""
    suffix = format_of(path)
    if suffix not in SUFFIXES and delimiter is None:
        with explained(path):
            path.open("rb").close()
        description = f"the suffix '{suffix}'" if suffix else "no suffix"
        raise UserError(f"cannot tell the format of a file with {description}.", where=str(path), remedy=_FORMATS)
    if suffix == ".txt" and delimiter is None:
        return _line_rows(path, encoding, sniff_bytes)
    return rows(path, encoding=encoding, delimiter=delimiter, sniff_bytes=sniff_bytes)


def _line_rows(path: Path, encoding: str | None, sniff_bytes: int | None) -> Iterator[Row]:
    for number, line in enumerate(lines(path, encoding=encoding, sniff_bytes=sniff_bytes), start=1):
        if line.strip():
            yield number, {"text": line.rstrip("\r\n")}


def _memory_rows(source: Any) -> Iterator[Row]:
    """Rows of a frame, of `(texts, labels)`, or of a list of strings or dicts; numbered from 1."""
    if hasattr(source, "columns"):
        columns = list(source.columns)
        values: Iterable[dict[str, Any]] = (
            dict(zip(columns, cells)) for cells in zip(*(source[column].to_list() for column in columns))
        )
        return enumerate(values, start=1)
    if isinstance(source, tuple) and len(source) == 2 and not isinstance(source[0], (str, dict)):
        texts, labels = list(source[0]), list(source[1])
        if len(texts) != len(labels):
            raise UserError(f"{len(texts)} texts but {len(labels)} labels.", remedy="Pass one label per text.")
        return enumerate(({"text": as_text(t), "label": y} for t, y in zip(texts, labels)), start=1)
    if not isinstance(source, Iterable) or isinstance(source, (bytes, dict)):
        raise UserError(
            f"cannot read texts from a {type(source).__name__}.",
            remedy="Pass a path, a frame, a list of strings, or the tuple (texts, labels).",
        )
    return enumerate((item if isinstance(item, dict) else {"text": as_text(item)} for item in source), start=1)


def _is_path(source: Any) -> bool:
    return isinstance(source, (str, os.PathLike))


def _unit(path: Path) -> Unit:
    return "row" if format_of(path) == ".parquet" else "line"


def _why_empty(source: Any) -> str:
    if not _is_path(source) or format_of(Path(source)) not in (".csv", ".tsv"):
        return "the file contains no text."
    with explained(Path(source)), open_binary(Path(source)) as file:
        header = file.read(1 << 16).strip(b"\xef\xbb\xbf\xff\xfe\0\r\n\t ")
    return "there is a header but no row below it." if header else "the file is empty."


def _read_folder(folder: Path, encoding: str | None) -> Examples:
    """One class per subfolder, one text per file, both sorted."""
    classes = sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    files = [(file, cls.name) for cls in classes for file in _visible_files(cls)]
    if not files:
        raise UserError("the folder has no subfolders with files in them.", where=str(folder), remedy=_FORMATS)
    texts = ["".join(lines(file, encoding=encoding)).rstrip("\r\n") for file, _ in files]
    return Examples(
        texts=texts,
        labels=[name for _, name in files],
        kind="single",
        ids=[file.relative_to(folder).as_posix() for file, _ in files],
        source=str(folder),
        unit="file",
    )
