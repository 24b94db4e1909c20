"""Blocks: consecutive rows of one file, which are read, processed and written together.

Where a block begins depends on the file and the number of rows alone, so that every run has the same blocks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from textgraft.core.errors import UserError
from textgraft.data.column_files import parquet_types
from textgraft.data.fingerprint import fingerprint
from textgraft.data.huggingface_datasets import PREFIX, dataset_files, is_dataset
from textgraft.data.members import format_of
from textgraft.data.output_rows import ALL, Kept
from textgraft.data.readers import source_files
from textgraft.data.text_rows import TextRow, text_rows

BLOCK_ROWS = 8192
"""Default number of rows of a block: a multiple of predictor.STREAM_TEXTS, so that texts meet the same others."""
BLOCK_CHARACTERS = 1 << 25
"""Characters of texts with which a block ends early, since it is held in memory."""
TEXT_TYPE = "VARCHAR"
LONGEST_NAME = 100


@dataclass(frozen=True)
class SourceFile:
    """A file to read.

    Attributes:
        number: Its place among all files.
        path: Where it is; absolute, since other processes read it.
        name: Its path inside the folder that was named, else its name.
        done: Indices of the blocks that are not to be read again.
    """

    number: int
    path: str
    name: str
    done: frozenset[int] = frozenset()

    def output_name(self, block: int, suffix: str) -> str:
        """Name of the file of a block's results; by name they are in the order of the rows."""
        return f"{self.prefix}{block:05d}.{suffix}"

    @property
    def prefix(self) -> str:
        """The beginning of the names of the file's results."""
        readable = re.sub(r"[^\w.-]+", "_", self.name)[-LONGEST_NAME:]
        return f"{self.number:05d}-{readable}-"


@dataclass(frozen=True)
class Block:
    """Rows of a file.

    Attributes:
        source: The file.
        index: Number of the block in it, from 0.
        rows: The rows, each with its text.
        types: DuckDB's type of each column of the file.
    """

    source: SourceFile
    index: int
    rows: list[TextRow] = field(repr=False)
    types: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True)
class FileEnd:
    """The end of a file, with the number of its blocks and rows."""

    source: SourceFile
    blocks: int
    rows: int


@dataclass(frozen=True)
class BlockReader:
    """Reader of a file's blocks.

    Attributes:
        columns: Columns that the user named, as for text_rows.read_rows, encoding and delimiter.
        kept: Columns of the input in the output.
        block_rows: Number of rows of a block.
    """

    columns: Mapping[str, str | None]
    kept: Kept = ALL
    block_rows: int = BLOCK_ROWS

    def __call__(self, source: SourceFile) -> Iterator[Block | FileEnd]:
        """Yield the blocks that are not done, then the end.

        Raises:
            UserError: The file cannot be read, with the place.
        """
        path = Path(source.path)
        names = {name: self.columns.get(name) for name in ("text", "text2", "id")}
        rows = text_rows(path, names, self.columns.get("encoding"), self.columns.get("delimiter"))
        blocks = total = 0
        types: Mapping[str, str] = {}
        for index, block in enumerate(_blocks(rows, self.block_rows)):
            if index == 0:
                self.kept.validate(block[0].cells)
                types = _types(path, block[0].cells)
            blocks, total = index + 1, total + len(block)
            if index not in source.done:
                yield Block(source, index, block, types)
        yield FileEnd(source, blocks, total)


def _blocks(rows: Iterable[TextRow], most_rows: int) -> Iterator[list[TextRow]]:
    block: list[TextRow] = []
    characters = 0
    for row in rows:
        block.append(row)
        characters += sum(map(len, row.texts))
        if len(block) == most_rows or characters >= BLOCK_CHARACTERS:
            yield block
            block, characters = [], 0
    if block:
        yield block


def _types(path: Path, cells: Mapping[str, Any]) -> dict[str, str]:
    """The types of a Parquet file; text for formats whose values may be of any type in any row."""
    known = parquet_types(path) if not is_dataset(path) and format_of(path) == ".parquet" else {}
    return {name: known.get(name, TEXT_TYPE) for name in cells}


def find_sources(paths: Iterable[str | Path]) -> list[SourceFile]:
    """The files of paths, folders and glob patterns, in order.

    Raises:
        UserError: There is no path, one matches no file, or a file is named twice.
    """
    if not (paths := list(paths)):
        raise UserError("there are no files to read texts from.", remedy="Name files, folders or patterns.")
    files: list[tuple[Path, str]] = []
    for path in paths:
        folder = Path(path)
        for file in source_files([path]):
            inside = folder.is_dir() and file != folder
            files.append((file, file.relative_to(folder).as_posix() if inside else file.name))
    places = Counter(_place(file) for file, _ in files)
    if twice := next((place for place, count in places.items() if count > 1), None):
        raise UserError("this file is named twice.", where=twice, remedy="Name it once.")
    return [SourceFile(number, _place(file), name) for number, (file, name) in enumerate(files)]


def _place(file: Path) -> str:
    """The path from the root; the name of a data set as it is."""
    return str(file) if str(file).startswith(PREFIX) else str(file.absolute())


def source_fingerprints(sources: Iterable[SourceFile]) -> list[dict[str, Any]]:
    """Fingerprints of files (data.fingerprint), by their names in the folder. Raises UserError as `fingerprint`."""
    prints = []
    for source in sources:
        path = Path(source.path)
        for file in dataset_files(path) if is_dataset(path) else [path]:
            prints.append(fingerprint(file) | {"name": source.name})
    return prints
