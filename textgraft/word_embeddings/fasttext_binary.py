"""fastText's binary format (facebookresearch/fastText, version 12), memory-mapped.

Magic and version; 12 int32 of settings and the sub-sampling threshold; the dictionary; the input matrix (V + B, D),
words first, then n-gram buckets; the output matrix. All little-endian. Models of the classifier, quantised and pruned
models have other contents and are rejected.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textgraft.core.errors import UserError
from textgraft.core.files import writing_atomically
from textgraft.data.members import COMPRESSED
from textgraft.data.text_files import explained
from textgraft.word_embeddings.lines import WordDecoder, limited, sound
from textgraft.word_embeddings.subwords import ComposedRows, Subwords
from textgraft.word_embeddings.word_vectors import VectorStream, WordVectors

MAGIC, VERSION = 793712314, 12
SETTINGS = {
    "dim": 100,
    "ws": 5,
    "epoch": 5,
    "minCount": 5,
    "neg": 5,
    "wordNgrams": 1,
    "loss": 2,
    "model": 2,
    "bucket": 2_000_000,
    "minn": 3,
    "maxn": 6,
    "lrUpdateRate": 100,
    "t": 1e-4,
}
"""Header fields in order, named as in args.h, with fastText's defaults; t is a double, the rest int32."""
SUPERVISED = 3
"""`model` of a classifier; 1 is CBOW and 2 skip-gram. `loss` 1 is hierarchical softmax and 2 negative sampling."""

_HEADER = struct.Struct("<2i12id")
_CUT = "The file is cut short or damaged: fetch it again."


def is_fasttext(head: bytes) -> bool:
    """True if a file with these first bytes is fastText's."""
    return head[:4] == struct.pack("<i", MAGIC)


def read(path: Path, limit: int | None, decoder: WordDecoder) -> WordVectors:
    """Open a file, with words in memory and vectors mapped from disk.

    Args:
        path: File.
        limit: Number of most frequent words to load (None: all); n-grams are always complete.
        decoder: Decoding of words.

    Raises:
        UserError: The file is of another kind, a classifier, quantised, pruned, or truncated.
    """
    if path.suffix.lower() in COMPRESSED:
        raise UserError(
            "compressed fastText binary files cannot be memory-mapped.",
            where=str(path),
            remedy="Decompress it and use the result.",
        )
    with explained(path), path.open("rb") as file:
        size = file.seek(0, 2)
        if size < _HEADER.size:
            raise UserError("this is not a fastText model.", where=str(path), remedy=_CUT)
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    settings = _settings(data, path)
    reader = _Reader(data, path, _HEADER.size)
    words, counts, tokens = _dictionary(reader, limit, decoder)
    table = _matrix(reader, (reader.words + settings["bucket"], settings["dim"]))
    output_matrix = _matrix(reader, (reader.words, settings["dim"]))
    if hasattr(data, "madvise"):
        # Access is random; read-ahead would load a hundred kilobytes around each n-gram.
        data.madvise(mmap.MADV_RANDOM)
    subwords = Subwords(settings["minn"], settings["maxn"], table[reader.words :])
    rows = ComposedRows(words, table[: len(words)], subwords, output_matrix[: len(words)])
    run = {"stage": "vectors", "name": path.stem, "fasttext": settings, "tokens_seen": tokens}
    return WordVectors(words, rows, counts=counts, subwords=subwords, lowercase=False, run=run)


def _settings(data: mmap.mmap, path: Path) -> dict[str, Any]:
    magic, version, *values = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise UserError(
            "this is not a fastText model.", where=str(path), remedy="Name another format, or create the file again."
        )
    if version not in (11, VERSION):
        message = f"this is version {version} of fastText's format; versions 11 and {VERSION} can be read."
        raise UserError(message, where=str(path), remedy="Write it again with a current fastText.")
    settings = dict(zip(SETTINGS, values, strict=True))
    if settings["model"] == SUPERVISED:
        message = "this is a fastText classifier, whose vectors are of labels' words."
        raise UserError(message, where=str(path), remedy="Name a model that was trained with skipgram or cbow.")
    if settings["dim"] < 1 or settings["bucket"] < 0 or settings["minn"] < 0:
        raise UserError("its settings are impossible.", where=str(path), remedy=_CUT)
    return settings


class _Reader:
    """Sequential values of the mapped file, with an error at its end."""

    def __init__(self, data: mmap.mmap, path: Path, place: int) -> None:
        self.data, self.path, self.place = data, path, place
        self.words = 0

    def unpack(self, shape: str) -> tuple[int, ...]:
        form = struct.Struct("<" + shape)
        if self.place + form.size > len(self.data):
            raise self.ended()
        values = form.unpack_from(self.data, self.place)
        self.place += form.size
        return values

    def ended(self) -> UserError:
        where = f"{self.path} byte {self.place:,}"
        return UserError(f"the file ends too early, at {len(self.data):,} bytes.", where=where, remedy=_CUT)

    def refuse(self, message: str, remedy: str) -> UserError:
        return UserError(message, where=f"{self.path} byte {self.place:,}", remedy=remedy)


def _dictionary(reader: _Reader, limit: int | None, decoder: WordDecoder) -> tuple[list[str], NDArray[np.int64], int]:
    """Words in the order of their vectors, their counts, and the number of tokens."""
    size, words, labels, tokens, pruned = reader.unpack("3i2q")
    if labels or size != words:
        raise reader.refuse("this model has labels: it is a classifier.", "Name one trained with skipgram or cbow.")
    if pruned >= 0:
        raise reader.refuse("this model was pruned by `fasttext quantize`.", "Name the .bin it was made from.")
    if words < 1:
        raise reader.refuse("it has no words.", _CUT)
    entry = struct.Struct("<qb")
    if words * (1 + entry.size) > len(reader.data):  # before memory is allocated
        raise reader.ended()
    reader.words, count = words, limited(words, limit)
    vocabulary: list[str] = []
    counts = np.zeros(count, dtype=np.int64)
    for number in range(words):
        end = reader.data.find(b"\0", reader.place)
        if end < 0 or end + 1 + entry.size > len(reader.data):
            raise reader.ended()
        if number < count:
            where = f"{reader.path} byte {reader.place:,}"
            vocabulary.append(decoder.word(reader.data[reader.place : end], where))
            counts[number], _ = entry.unpack_from(reader.data, end + 1)
        reader.place = end + 1 + entry.size
    decoder.finish()
    return vocabulary, counts, tokens


def _matrix(reader: _Reader, shape: tuple[int, int]) -> NDArray[np.float32]:
    """The next matrix, on disk, which must have this shape; the reader is then after it."""
    (quantised,) = reader.unpack("B")
    if quantised:
        message = "this model is quantised (.ftz)."
        raise reader.refuse(message, "Name the .bin that it was made from; float16 (half=True) makes that smaller too.")
    stored_shape = reader.unpack("2q")
    if stored_shape != shape:
        raise reader.refuse(f"a matrix has the shape {stored_shape}, expected is {shape}.", _CUT)
    offset = reader.place
    if offset + 4 * shape[0] * shape[1] > len(reader.data):
        raise reader.ended()
    reader.place += 4 * shape[0] * shape[1]
    return np.frombuffer(reader.data, dtype="<f4", count=shape[0] * shape[1], offset=offset).reshape(shape)


def write(stream: VectorStream, path: Path) -> Path:
    """Write vectors with n-grams as a file that fastText and gensim can open.

    Where only the final vectors are known (a textgraft folder), a word's own row is the difference from the sum of its
    n-grams, and the output matrix, which only further training needs, is zeros. Raises UserError for vectors without
    n-grams.
    """
    subwords = stream.subwords
    if subwords is None:
        remedy = "Write them as textgraft, word2vec, word2vec-binary or glove."
        raise UserError("these vectors have no n-grams, which this format is for.", where=str(path), remedy=remedy)
    counts = np.arange(stream.count, 0, -1) if stream.counts is None else stream.counts
    word_rows: list[NDArray[np.float32]] | Iterator[NDArray[np.float32]]
    if stream.composed is not None:
        words, word_rows = list(stream.composed.words), _pieces(stream.composed.word_rows)
    else:
        blocks = list(stream.blocks)
        words = [word for block_words, _ in blocks for word in block_words]
        word_rows = [_word_rows(block_words, rows, subwords) for block_words, rows in blocks]
    output = None if stream.composed is None else stream.composed.output
    settings = _settings_of(stream, subwords)
    with writing_atomically(path) as file:
        file.write(_HEADER.pack(MAGIC, VERSION, *(settings[name] for name in SETTINGS)))
        tokens = int(stream.run.get("tokens_seen") or counts.sum())
        file.write(struct.pack("<3i2q", len(words), len(words), 0, tokens, -1))
        for word, count in zip(words, counts.tolist(), strict=True):
            file.write(sound(word, path).encode() + b"\0" + struct.pack("<qb", count, 0))
        file.write(struct.pack("<B2q", 0, len(words) + len(subwords.table), stream.dimensions))
        for rows in word_rows:
            file.write(rows.astype("<f4").tobytes())
        for rows in _pieces(subwords.table):
            file.write(rows.astype("<f4").tobytes())
        file.write(struct.pack("<B2q", 0, len(words), stream.dimensions))
        for rows in _pieces(np.zeros((len(words), stream.dimensions), np.float32) if output is None else output):
            file.write(rows.astype("<f4").tobytes())
    return path


def _settings_of(stream: VectorStream, subwords: Subwords) -> dict[str, Any]:
    settings = {name: value for name, value in (stream.run.get("fasttext") or {}).items() if name in SETTINGS}
    shape = {"dim": stream.dimensions, "bucket": len(subwords.table), "minn": subwords.minn, "maxn": subwords.maxn}
    return SETTINGS | settings | shape


def _word_rows(words: Any, rows: NDArray[np.float32], subwords: Subwords) -> NDArray[np.float32]:
    totals, sizes = subwords.sums(words)
    word_rows: NDArray[np.float32] = rows * (sizes + 1).astype(np.float32)[:, None] - totals
    return word_rows


def _pieces(rows: NDArray, size: int = 8_192) -> Iterator[NDArray]:
    return (rows[start : start + size] for start in range(0, len(rows), size))
