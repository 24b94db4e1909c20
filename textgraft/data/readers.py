"""Texts and labels from files, folders, frames and lists; corpora of any size as a stream of texts."""

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
    guess_kind,
    guess_label_column,
)
from textgraft.data.examples import Choice, Examples, Pair, TargetKind, Unit, as_text
from textgraft.data.huggingface_datasets import dataset_rows, is_dataset
from textgraft.data.multiple_choice import looks_like_choices, read_choices
from textgraft.data.tables import TABLE_SUFFIXES, Row, rows
from textgraft.data.text_files import explained, format_of, lines, open_binary

SUFFIXES = (*TABLE_SUFFIXES, ".txt")
KINDS = ("single", "multi", "numeric", "choice")
_STREAM_SNIFF = 1 << 22  # bytes that decide the encoding of a corpus file, which may be too large to read twice
_GUESSED_FROM = 1000  # rows of a corpus by whose values columns are told apart that no name tells apart
TOKENS = "tokens.json"
"""In a folder, what says that there are tokens in it and not text (tasks.language_modeling.token_shards)."""
_FORMATS = (
    f"Formats: {', '.join(SUFFIXES)}, each also as .gz, .xz, .bz2 or .zst, or a folder with one subfolder a class."
)


def read(
    source: Any,
    *,
    text: str | None = None,
    text2: str | None = None,
    label: str | None = None,
    id: str | None = None,
    kind: TargetKind | None = None,
    encoding: str | None = None,
    delimiter: str | None = None,
    label_separator: str | None = None,
) -> Examples:
    """Texts, and labels if there are any, from `source`, all in memory.

    `source` is the path of a CSV, TSV, JSON-lines, Parquet or text file (one text a line), plain or compressed; a
    folder with one subfolder a class; a pandas or polars frame; a list of strings, of pairs of strings or of dicts; or
    the tuple `(texts, labels)`. `text`, `label` and `id` name columns that are else guessed; `text2` names that of the
    second text of pairs, else guessed where `text` is not named and none looks like a single text; `kind` says what
    labels are ("single", "multi", "numeric", or "choice" where each row has options to choose from, see
    data.multiple_choice; then `text` is the context and `text2` the question), else guessed by `guess_kind`;
    `label_separator` cuts several labels in one CSV cell. Columns are guessed by their names, a label of two columns
    also by its values, with a warning. An `Examples` comes back as it is. Raises UserError for whatever cannot be read,
    is empty, or lacks a column, with the place and the remedy.
    """
    if kind is not None and kind not in KINDS:
        raise UserError(f"unknown kind of label '{kind}'.", remedy=f"Known: {', '.join(KINDS)}.")
    if isinstance(source, Examples):
        return source
    if _is_path(source) and Path(source).is_dir():
        return _read_folder(Path(source), encoding)
    name, unit, found = _all_rows(source, encoding, delimiter)
    cells = Cells(name, unit, [number for number, _ in found])
    columns = list(dict.fromkeys(column for _, row in found for column in row))
    id_column = find_column(columns, id, ID_NAMES, "the id", name)
    table = [row for _, row in found]
    in_memory = isinstance(table[0].get("text"), Choice)
    if not in_memory and (kind == "choice" or (kind is None and looks_like_choices(columns, text, text2))):
        texts, labels = read_choices(columns, table, cells, context=text, question=text2, answer=label)
        kind = "choice"
    else:
        label_column = find_column(columns, label, LABEL_NAMES, "the label", name)
        if label_column is None and text2 is None:
            label_column = _guessed_label(columns, table, text, id_column, name)
        texts, chosen = _texts(columns, table, cells, (text, text2), (label_column, id_column))
        labels = None
        if label_column is not None and label_column not in chosen:
            answers = [row.get(label_column) for row in table]
            kind = "choice" if in_memory else kind or guess_kind(answers, label_separator)
            labels = cells.labels(answers, kind, label_separator)
            if labels is None and label is not None:
                remedy = "Is it the right column?"
                raise UserError(f"the label column '{label_column}' is empty.", where=name, remedy=remedy)
    ids = None if id_column is None else cells.texts([row.get(id_column) for row in table])
    return Examples(texts, labels, kind if labels is not None else None, ids, cells.lines, name, unit)


def read_optional(source: Any) -> Examples | None:
    """What `read` makes of it; None of None."""
    return None if source is None else read(source)


def _guessed_label(
    columns: Sequence[str], table: Sequence[dict[str, Any]], text: str | None, id_column: str | None, source: str
) -> str | None:
    """The column that holds labels by its values, with a warning that says so.

    Raises UserError where its name is one of them: the first line is then a text with its label, and would be lost.
    """
    guessed = guess_label_column(columns, table, id_column)
    if guessed is None or guessed == find_column(columns, text, TEXT_COLUMNS, "the text", source):
        return None
    if any(str(row.get(guessed)).strip() == guessed.strip() for row in table):
        message = f"the first line looks like a text with its label, '{guessed}', and not like names of columns."
        remedy = f"Put names above it, such as text and label; if '{guessed}' is a name, say so with label={guessed}."
        raise UserError(message, where=source, remedy=remedy)
    message = f"{source}: the values of '{guessed}' are read as the labels. Name another column with label=…."
    warnings.warn(message, stacklevel=3)
    return guessed


def _texts(
    columns: Sequence[str],
    table: Sequence[dict[str, Any]],
    cells: Cells,
    named: tuple[str | None, str | None],
    others: Sequence[str | None],
) -> tuple[list[str], Sequence[str]]:
    """The texts, or pairs, of a table, and the columns that they stand in."""
    pair = find_pair_columns(columns, *named, others, cells.source)
    chosen = pair or (find_text_column(columns, named[0], others, cells.source),)
    values = [[row.get(column) for row in table] for column in chosen]
    return cells.pairs(*values) if pair else cells.texts(*values), chosen


def read_texts(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    text: str | None = None,
    encoding: str | None = None,
) -> Iterator[str]:
    """The texts of a corpus one by one, in memory that does not grow with it; empty ones are left out.

    `paths` are files as `read` takes them, folders (every such file inside, sorted), glob patterns, and data sets of
    the Hugging Face library (see data.huggingface_datasets). A .txt file is one text a line; tables give their `text`
    column, guessed from the first rows when not named; both columns of a table of pairs. The encoding is decided by the
    first 4 MB of each file. Paths are looked up at once, files opened as they come.

    Raises UserError for a path or pattern that leads to no file, and for what cannot be read, with its place.
    """
    return _stream(source_files(paths), text, encoding)


def source_files(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[Path]:
    """The files and data sets that `read_texts` reads for `paths`, in its order.

    Raises UserError for a path or pattern that leads to none.
    """
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    files = [file for path in given for file in _expand(path)]
    if not files:
        raise UserError("no files were named to read texts from.", remedy=_FORMATS)
    return files


def read_rows(
    path: str | os.PathLike[str], *, text: str | None = None, text2: str | None = None, encoding: str | None = None
) -> Iterator[tuple[dict[str, Any], str]]:
    """For each row of a file what to know it by (`id`, or else its line or row), and its text or pair.

    Empty texts come too, and memory does not grow with the file. Columns are named, or guessed from the first rows.
    Raises UserError as `read_texts` does, and for a file of no rows.
    """
    empty = True
    for row in _text_rows(Path(path), text, text2, encoding):
        empty = False
        id_column = find_column(list(row.cells), None, ID_NAMES, "the id", str(path))
        key: dict[str, Any] = {row.unit: row.number} if id_column is None else {"id": row.texts(id_column)[0]}
        texts = row.texts(*row.chosen)
        yield key, Pair(*texts) if len(texts) == 2 else texts[0]
    if empty:
        raise UserError(_why_empty(path), where=str(path), remedy="Is it the right file? It takes one text a row.")


def _stream(files: Sequence[Path], text: str | None, encoding: str | None) -> Iterator[str]:
    empty = True
    for path in files:
        for row in _text_rows(path, text, None, encoding):
            for value in row.texts(*row.chosen):
                if value and not value.isspace():
                    empty = False
                    yield value
    if empty:
        raise UserError(
            "there is not one text in it.", where=", ".join(map(str, files[:3])), remedy="Is it the right file?"
        )


@dataclass(frozen=True)
class _TextRow:
    """A row with the columns that were found in the first one to hold the text, or both texts of a pair."""

    source: str
    unit: Unit
    number: int
    cells: Mapping[str, Any]
    chosen: Sequence[str]

    def texts(self, *columns: str) -> list[str]:
        """Raises UserError, with the place, for what is no text."""
        place = Cells(self.source, self.unit, [self.number] * len(columns))
        return place.texts([self.cells.get(column) for column in columns])


def _text_rows(path: Path, text: str | None, text2: str | None, encoding: str | None) -> Iterator[_TextRow]:
    data_set = is_dataset(path)
    unit: Unit = "row" if data_set else _unit(path)
    found = dataset_rows(path) if data_set else _file_rows(path, encoding, None, sniff_bytes=_STREAM_SNIFF)
    head = list(islice(found, 1))
    if not head:
        return
    columns = list(head[0][1])
    label, id_column = (find_column(columns, None, names, "", "") for names in (LABEL_NAMES, ID_NAMES))
    told = text or text2 or find_column(columns, None, (*TEXT_COLUMNS, *LABEL_NAMES), "", "")
    if not told and len(columns) > 1:
        head += islice(found, _GUESSED_FROM - 1)
        label = guess_label_column(columns, [row for _, row in head], id_column)
    pair = find_pair_columns(columns, text, text2, (label, id_column), str(path))
    chosen = pair or [find_text_column(columns, text, (label, id_column), str(path))]
    for number, row in chain(head, found):
        yield _TextRow(str(path), unit, number, row, chosen)


def _expand(path: str | os.PathLike[str]) -> list[Path]:
    found = Path(path)
    if is_dataset(found):
        return [found]
    if (found / TOKENS).is_file():
        raise UserError("this folder holds tokens, and not text.", where=str(found), remedy="Only pretrain reads them.")
    if found.is_dir():
        files = [file for file in _visible_files(found) if format_of(file) in SUFFIXES]
        if not files:
            raise UserError("the folder holds no file of text.", where=str(found), remedy=_FORMATS)
        return files
    if not found.exists() and glob.has_magic(str(found)):
        files = [file for name in sorted(glob.glob(str(found), recursive=True)) for file in _expand(name)]
        if not files:
            raise UserError("the pattern matches no file.", where=str(found))
        return files
    with explained(found):
        found.open("rb").close()
    return [found]


def _visible_files(folder: Path) -> list[Path]:
    return sorted(
        file
        for file in folder.rglob("*")
        if file.is_file() and not any(part.startswith(".") for part in file.relative_to(folder).parts)
    )


def _all_rows(source: Any, encoding: str | None, delimiter: str | None) -> tuple[str, Unit, list[Row]]:
    """What to call the source, what its rows are counted in, and at least one row."""
    if _is_path(source):
        path = Path(source)
        name, unit, found = str(path), _unit(path), list(_file_rows(path, encoding, delimiter))
    else:
        name = "<frame>" if hasattr(source, "columns") else "<memory>"
        unit, found = "row", list(_memory_rows(source))
    if not found:
        remedy = "Is it the right file? It takes one text a row, and a label beside each to learn from."
        raise UserError(_why_empty(source), where=name, remedy=remedy)
    return name, unit, found


def _file_rows(
    path: Path, encoding: str | None, delimiter: str | None, *, sniff_bytes: int | None = None
) -> Iterator[Row]:
    """The rows of a table, or the lines of a .txt file as rows of one column."""
    suffix = format_of(path)
    if suffix not in SUFFIXES and delimiter is None:
        with explained(path):
            path.open("rb").close()
        found = f"the suffix '{suffix}'" if suffix else "no suffix"
        raise UserError(f"cannot tell the format of a file with {found}.", where=str(path), remedy=_FORMATS)
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
            raise UserError(f"{len(texts)} texts but {len(labels)} labels.", remedy="Give one label a text.")
        return enumerate(({"text": as_text(t), "label": y} for t, y in zip(texts, labels)), start=1)
    if not isinstance(source, Iterable) or isinstance(source, (bytes, dict)):
        raise UserError(
            f"cannot read texts from a {type(source).__name__}.",
            remedy="Give a path, a frame, a list of strings, or the tuple (texts, labels).",
        )
    return enumerate((item if isinstance(item, dict) else {"text": as_text(item)} for item in source), start=1)


def _is_path(source: Any) -> bool:
    return isinstance(source, (str, os.PathLike))


def _unit(path: Path) -> Unit:
    return "row" if format_of(path) == ".parquet" else "line"


def _why_empty(source: Any) -> str:
    if not _is_path(source) or format_of(Path(source)) not in (".csv", ".tsv"):
        return "there is not one text in it."
    with explained(Path(source)), open_binary(Path(source)) as file:
        header = file.read(1 << 16).strip(b"\xef\xbb\xbf\xff\xfe\0\r\n\t ")
    return "there is a header but not one row below it." if header else "the file is empty."


def _read_folder(folder: Path, encoding: str | None) -> Examples:
    """One class a subfolder, one text a file, both in sorted order."""
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
