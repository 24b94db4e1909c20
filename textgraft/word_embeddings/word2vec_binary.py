"""word2vec's binary format: a line with V and D, then for each word its bytes, a space, and D little-endian float32."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np

from textgraft.core.errors import UserError
from textgraft.core.files import writing_atomically
from textgraft.data.members import COMPRESSED
from textgraft.data.text_files import explained, open_binary
from textgraft.word_embeddings.lines import WordDecoder, limited, sound
from textgraft.word_embeddings.word2vec_text import parse_header
from textgraft.word_embeddings.word_vectors import Block, VectorStream

ROWS = 1_024
LONGEST_WORD = 4_096
_CUT = "The file is cut short or damaged; fetch it again, or read the first words with limit=…."


def read(path: Path, limit: int | None, decoder: WordDecoder) -> VectorStream:
    """Stream the vectors of a file, compressed or not, in one pass; with `limit` only the first ones.

    Raises:
        UserError: The file ends too early, a word is not UTF-8 or a number not finite; the message has the file and the
            byte offset (before compression).
    """
    with explained(path), open_binary(path) as file:
        header = file.readline(100)
    count, dimensions = parse_header(header.rstrip(), f"{path} line 1")
    size = path.stat().st_size
    # Before memory is allocated: a damaged first line may have any number.
    if path.suffix.lower() not in COMPRESSED and limited(count, limit) * (4 * dimensions + 2) > size:
        message = f"{count:,} vectors of {dimensions:,} dimensions are announced; the file has {size:,} bytes."
        raise UserError(message, where=str(path), remedy=_CUT)
    count = limited(count, limit)
    return VectorStream(count, dimensions, _blocks(path, len(header), count, dimensions, decoder))


def _blocks(path: Path, start: int, count: int, dimensions: int, decoder: WordDecoder) -> Iterator[Block]:
    with explained(path), open_binary(path) as file:
        file.read(start)
        reader = _Records(file, start, path, 4 * dimensions, decoder)
        for done in range(0, count, ROWS):
            size = min(ROWS, count - done)
            words, raw = zip(*(reader.next() for _ in range(size)), strict=True)
            rows = np.frombuffer(b"".join(raw), dtype="<f4").reshape(size, dimensions).astype(np.float32)
            wrong = np.flatnonzero(~np.isfinite(rows).all(axis=1))
            if len(wrong):
                message = f"the vector of '{words[wrong[0]]}', word {done + wrong[0] + 1:,}, is not finite."
                raise UserError(message, where=f"{path} byte {reader.place:,} or before", remedy=_CUT)
            yield list(words), rows
    decoder.finish()


class _Records:
    """Sequential records of a file that is loaded in large chunks; `place` is the offset of the next record."""

    def __init__(
        self, file: IO[bytes] | gzip.GzipFile, place: int, path: Path, width: int, decoder: WordDecoder
    ) -> None:
        self.place, self._file, self._path, self._width = place, file, path, width
        self._decoder = decoder
        self._buffer, self._at = b"", 0

    def next(self) -> tuple[str, bytes]:
        """A word and the bytes of its vector. Some programs end a record with a line end, others do not."""
        end = self._buffer.find(b" ", self._at)
        if end < 0 or end + 1 + self._width > len(self._buffer):
            self._fill()
            end = self._buffer.find(b" ", self._at)
        where = f"{self._path} byte {self.place:,}"
        stop = end + 1 + self._width
        if end < 0 or stop > len(self._buffer):
            raise UserError("the file ends in the middle of a word or its vector.", where=where, remedy=_CUT)
        raw = self._buffer[self._at : end].lstrip(b"\n")
        if not raw or len(raw) > LONGEST_WORD or b"\n" in raw:
            raise UserError("there is no word where one should begin.", where=where, remedy=_CUT)
        vector = self._buffer[end + 1 : stop]
        self.place, self._at = self.place + stop - self._at, stop
        return self._decoder.word(raw, where), vector

    def _fill(self) -> None:
        self._buffer = self._buffer[self._at :] + self._file.read((1 << 20) + LONGEST_WORD + self._width)
        self._at = 0


def write(stream: VectorStream, path: Path) -> Path:
    """Write a file as word2vec's own program does, with a line end after each vector; `read` restores it to the bit.

    Raises:
        UserError: A word has a space in it.
    """
    with writing_atomically(path) as file:
        file.write(f"{stream.count} {stream.dimensions}\n".encode())
        for words, rows in stream.blocks:
            for word, row in zip(words, rows.astype("<f4"), strict=True):
                file.write(sound(word, path).encode() + b" " + row.tobytes() + b"\n")
    return path
