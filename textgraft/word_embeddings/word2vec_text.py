"""word2vec's text format, also fastText's .vec: a line with V and D, then a line a word."""

from __future__ import annotations

from pathlib import Path

from textgraft.core.errors import UserError
from textgraft.core.files import writing_atomically
from textgraft.word_embeddings.lines import (
    WordDecoder,
    count_lines,
    first_line,
    limited,
    stream_of_lines,
    written_lines,
)
from textgraft.word_embeddings.word_vectors import VectorStream


def parse_header(line: bytes, where: str) -> tuple[int, int]:
    """V and D. Raises UserError for anything but two positive whole numbers."""
    fields = line.split()
    if len(fields) != 2 or not all(field.isdigit() and len(field) < 13 for field in fields):
        shown = line[:60].decode("utf-8", "replace")
        remedy = "Files without such a line are GloVe's: name the format glove."
        raise UserError(f"'{shown}' is not the number of words and of dimensions.", where=where, remedy=remedy)
    count, dimensions = map(int, fields)
    if not count or not dimensions:
        raise UserError("it announces no vectors.", where=where, remedy="Is it the right file?")
    return count, dimensions


def read(path: Path, limit: int | None, decoder: WordDecoder) -> VectorStream:
    """Stream the vectors of a file, compressed or not, in one pass; with `limit` only the first ones.

    Raises:
        UserError: The header is wrong, or a line is not a word and D numbers; the message has file and line.
    """
    count, dimensions = parse_header(first_line(path), f"{path} line 1")
    lines = count_lines(path) - 1
    # Before memory is allocated: a damaged first line may have any number.
    if lines < limited(count, limit) or (limit is None and lines > count):
        message = f"the first line announces {count:,} vectors, and {lines:,} lines follow."
        remedy = "The file is cut short or damaged; limit=… reads the first words."
        raise UserError(message, where=f"{path} line 1", remedy=remedy)
    return stream_of_lines(path, limited(count, limit), dimensions, decoder, skip=1)


def write(stream: VectorStream, path: Path) -> Path:
    """Write a file that `read` restores to the bit. Raises UserError for a word with a space in it."""
    with writing_atomically(path) as file:
        file.write(f"{stream.count} {stream.dimensions}\n".encode())
        for line in written_lines(stream.blocks, path):
            file.write(line)
    return path
