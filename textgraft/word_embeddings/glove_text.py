"""GloVe's text format: a line a word, without a header."""

from __future__ import annotations

from pathlib import Path

from textgraft.core.errors import UserError
from textgraft.core.files import writing_atomically
from textgraft.word_embeddings.lines import (
    WordDecoder,
    count_lines,
    limited,
    stream_of_lines,
    width,
    written_lines,
)
from textgraft.word_embeddings.word_vectors import VectorStream


def read(path: Path, limit: int | None, decoder: WordDecoder) -> VectorStream:
    """Stream the vectors of a file, compressed or not; with `limit` only the first ones.

    The number of words is counted in a separate pass; D is that of the first lines.

    Raises:
        UserError: A line is not a word and D numbers; the message has file and line.
    """
    dimensions = width(path)
    if dimensions < 1:
        remedy = "Is it the right file?"
        raise UserError("there is no number after the word.", where=f"{path} line 1", remedy=remedy)
    return stream_of_lines(path, limited(count_lines(path), limit), dimensions, decoder, skip=0)


def write(stream: VectorStream, path: Path) -> Path:
    """Write a file that `read` restores to the bit. Raises UserError for a word with a space in it."""
    with writing_atomically(path) as file:
        for line in written_lines(stream.blocks, path):
            file.write(line)
    return path
