"""Readers of texts and labels from files, folders, frames and lists; corpora of any size as a stream of texts."""

from __future__ import annotations

import glob
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from textgraft.core.errors import UserError
from textgraft.data.cells_as_written import columns_without_content
from textgraft.data.columns import (
    ID_NAMES,
    TEXT_COLUMNS,
    Cells,
    find_column,
    find_pair_columns,
    find_text_column,
    guess_label_column,
)
from textgraft.data.examples import Choice, Examples, TargetKind, Unit, as_text
from textgraft.data.huggingface_datasets import is_dataset
from textgraft.data.label_columns import find_label_columns, read_labels, warn_of_marks
from textgraft.data.members import format_of, split_member
from textgraft.data.multiple_choice import looks_like_choices, read_choices
from textgraft.data.remote_files import is_url
from textgraft.data.tables import FOLDER_SUFFIXES, KNOWN_FORMATS, Row, located, rows, unit_of, why_empty
from textgraft.data.text_files import explained, lines
from textgraft.data.text_rows import text_rows

KINDS = ("single", "multi", "numeric", "choice")
TOKENS = "tokens.json"
"""File that marks a folder of tokens instead of text (tasks.language_modeling.token_shards)."""


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
        source: Path of a CSV, TSV, JSON, Parquet, Feather, Excel, SQLite or text file (one text per line), plain,
            compressed or in a zip archive, with `::NAME` for one of several sheets, tables or files in it; a folder
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
        delimiter: Delimiter of a CSV file, which may have any suffix; detected if None.
        label_separator: Separator of several labels in one cell.

    Raises:
        UserError: The source cannot be read, is empty, or lacks a column; with location and remedy.

    >>> read([{"text": "fine", "label": "pos"}, {"text": "dull", "label": "neg"}]).labels
    ['pos', 'neg']
    """
    validate_kind(kind)
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
    if not in_memory and has_choices(columns, kind, text, text2):
        answer = label if label is None or isinstance(label, str) else ",".join(label)
        texts, labels = read_choices(columns, table, cells, context=text, question=text2, answer=answer)
        kind = "choice"
    else:
        layout = layout_of(columns, table, name, (text, text2), label, id_column)
        label_columns = layout.labels
        values = [[row.get(column) for row in table] for column in layout.texts]
        texts = cells.pairs(*values) if len(values) == 2 else cells.texts(*values)
        labels = None
        if label_columns:
            labels, kind = read_labels(table, label_columns, cells, "choice" if in_memory else kind, label_separator)
            if labels is None and label is not None:
                remedy = "Check that it is the right column."
                raise UserError(f"the label column '{label_columns[0]}' is empty.", where=name, remedy=remedy)
        else:
            warn_of_marks(table, columns, (*layout.texts, id_column), name)
    ids = None if id_column is None else cells.texts([row.get(id_column) for row in table])
    return Examples(texts, labels, kind if labels is not None else None, ids, cells.lines, name, unit)


def has_choices(columns: Sequence[str], kind: str | None, text: str | None, text2: str | None) -> bool:
    """True for a table of questions with options, named so (`kind`) or by the names of its columns."""
    return kind == "choice" or (kind is None and looks_like_choices(columns, text, text2))


def validate_kind(kind: str | None) -> None:
    """Raise UserError for a kind of label that is not in KINDS."""
    if kind is not None and kind not in KINDS:
        raise UserError(f"unknown kind of label '{kind}'.", remedy=f"Known: {', '.join(KINDS)}.")


@dataclass(frozen=True)
class Layout:
    """What the columns of a table are.

    Attributes:
        texts: The column of the texts, or the two columns of pairs.
        labels: The column of labels, a column for each label, or none.
    """

    texts: Sequence[str]
    labels: tuple[str, ...]


def layout_of(
    columns: Sequence[str],
    table: Sequence[Mapping[str, Any]],
    source: str,
    texts: tuple[str | None, str | None],
    label: str | Sequence[str] | None,
    id_column: str | None,
) -> Layout:
    """Find the columns of texts and labels, by their names and, where these do not decide, their values.

    Args:
        columns: Names of all columns.
        table: The rows, or the first of them.
        source: Name of the data for messages.
        texts: Names that the user gave of the text and of the second text of pairs.
        label: Name or names that the user gave of the label.
        id_column: The column of the ids.

    Raises:
        UserError: A named column does not exist, or it is unclear which one is the text.
    """
    unread = columns_without_content(columns, table)
    labels = find_label_columns(columns, label, source)
    if not labels and texts[1] is None:
        labels = _guessed_label([c for c in columns if c not in unread], table, texts[0], id_column, source)
    others = (*labels, id_column, *unread)
    found: Sequence[str] = find_pair_columns(columns, *texts, others, source) or (
        find_text_column(columns, texts[0], others, source),
    )
    return Layout(found, tuple(column for column in labels if column not in found))


def _guessed_label(
    columns: Sequence[str], table: Sequence[Mapping[str, Any]], text: str | None, id_column: str | None, source: str
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
        raise UserError("no files to read texts from.", remedy=KNOWN_FORMATS)
    return files


def _stream(files: Sequence[Path], text: str | None, encoding: str | None) -> Iterator[str]:
    empty = True
    for path in files:
        for row in text_rows(path, {"text": text}, encoding):
            for value in row.texts:
                if value and not value.isspace():
                    empty = False
                    yield value
    if empty:
        raise UserError(
            "the file contains no text.",
            where=", ".join(map(str, files[:3])),
            remedy="Check that it is the right file.",
        )


def _expand(path: str | os.PathLike[str]) -> list[Path]:
    if is_url(path):
        message = "a URL is read by textgraft pretrain --streaming and textgraft tokenize only."
        raise UserError(message, where=os.fspath(path), remedy="Copy the file to this machine first.")
    source = Path(path)
    if is_dataset(source):
        return [source]
    if (source / TOKENS).is_file():
        raise UserError(
            "this folder holds tokens, and not text.", where=str(source), remedy="Only pretrain reads them."
        )
    if source.is_dir():
        files = [file for file in _visible_files(source) if format_of(file) in FOLDER_SUFFIXES]
        if not files:
            raise UserError("the folder holds no file of text.", where=str(source), remedy=KNOWN_FORMATS)
        return files
    if not source.exists() and glob.has_magic(str(source)):
        files = [file for name in sorted(glob.glob(str(source), recursive=True)) for file in _expand(name)]
        if not files:
            raise UserError("the pattern matches no file.", where=str(source))
        return files
    with explained(source):
        split_member(source)[0].open("rb").close()
    return [located(source)]


def _visible_files(folder: Path) -> list[Path]:
    return sorted(
        file
        for file in folder.rglob("*")
        if file.is_file() and not any(part.startswith(".") for part in file.relative_to(folder).parts)
    )


def _all_rows(source: Any, encoding: str | None, delimiter: str | None) -> tuple[str, Unit, list[Row]]:
    """Name of the source, unit of its rows, and at least one row."""
    if _is_path(source):
        path = located(Path(source))
        name, unit = str(path), unit_of(path, delimiter, encoding)
        numbered_rows = list(rows(path, encoding=encoding, delimiter=delimiter))
    else:
        name = "<frame>" if hasattr(source, "columns") else "<memory>"
        unit, numbered_rows = "row", list(_memory_rows(source))
    if not numbered_rows:
        remedy = "Check that it is the right file: one text per row, and a label beside each for training."
        why = why_empty(Path(source)) if _is_path(source) else "the data contains no text."
        raise UserError(why, where=name, remedy=remedy)
    return name, unit, numbered_rows


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


def _read_folder(folder: Path, encoding: str | None) -> Examples:
    """One class per subfolder, one text per file, both sorted."""
    classes = sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    files = [(file, cls.name) for cls in classes for file in _visible_files(cls)]
    if not files:
        raise UserError("the folder has no subfolders with files in them.", where=str(folder), remedy=KNOWN_FORMATS)
    texts = ["".join(lines(file, encoding=encoding)).rstrip("\r\n") for file, _ in files]
    return Examples(
        texts=texts,
        labels=[name for _, name in files],
        kind="single",
        ids=[file.relative_to(folder).as_posix() for file, _ in files],
        source=str(folder),
        unit="file",
    )
