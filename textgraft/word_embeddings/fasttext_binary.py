"""fastText's binary format (facebookresearch/fastText, version 12): words and n-grams stay on disk, memory-mapped.

Magic and version; 12 int32 of settings and the sub-sampling threshold; the dictionary; the input matrix (V + B, D) with
words first and n-gram buckets behind; the output matrix. All little-endian. Models of the classifier, quantised and
pruned ones have other contents and are refused.
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
from textgraft.data.text_files import COMPRESSED, explained
from textgraft.word_embeddings.lines import decoded, limited, sound
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
"""The header's fields in their order, as args.h names them, with fastText's defaults; t is a double, the rest int32."""
SUPERVISED = 3
"""`model` of a classifier; 1 is CBOW and 2 skip-gram. `loss` 1 is hierarchical softmax and 2 negative sampling."""

_HEADER = struct.Struct("<2i12id")
_CUT = "The file is cut short or damaged: fetch it again."


def is_fasttext(head: bytes) -> bool:
    """Whether a file that begins so is one of fastText's."""
    return head[:4] == struct.pack("<i", MAGIC)


def read(path: Path, limit: int | None = None) -> WordVectors:
    """Words in memory, vectors on disk: a file larger than memory opens as fast as its words are read.

    With `limit` only the most frequent words; n-grams all the same. Raises UserError for what is no such file, for a
    classifier, a quantised or pruned model, and where the file ends too early, with the byte.
    """
    if path.suffix.lower() in COMPRESSED:
        raise UserError(
            "fastText's binary files are mapped, not unpacked.",
            where=str(path),
            remedy="Unpack it and name the result.",
        )
    with explained(path), path.open("rb") as file:
        size = file.seek(0, 2)
        if size < _HEADER.size:
            raise UserError("this is no fastText model.", where=str(path), remedy=_CUT)
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    settings = _settings(data, path)
    reader = _Reader(data, path, _HEADER.size)
    words, counts, tokens = _dictionary(reader, limit)
    table = _matrix(reader, (reader.words + settings["bucket"], settings["dim"]))
    behind = _matrix(reader, (reader.words, settings["dim"]))
    if hasattr(data, "madvise"):
        # N-grams lie all over the table; the system would read a hundred kilobytes around each.
        data.madvise(mmap.MADV_RANDOM)
    subwords = Subwords(settings["minn"], settings["maxn"], table[reader.words :])
    rows = ComposedRows(words, table[: len(words)], subwords, behind[: len(words)])
    run = {"stage": "vectors", "name": path.stem, "fasttext": settings, "tokens_seen": tokens}
    return WordVectors(words, rows, counts=counts, subwords=subwords, lowercase=False, run=run)


def _settings(data: mmap.mmap, path: Path) -> dict[str, Any]:
    magic, version, *values = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise UserError("this is no fastText model.", where=str(path), remedy="Name another format, or make it anew.")
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
    """Values off the mapped file, one after another, with an error for its end."""

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


def _dictionary(reader: _Reader, limit: int | None) -> tuple[list[str], NDArray[np.int64], int]:
    """The words in the order of their vectors, how often each was seen, and how many tokens there were."""
    size, words, labels, tokens, pruned = reader.unpack("3i2q")
    if labels or size != words:
        raise reader.refuse("this model has labels: it is a classifier.", "Name one trained with skipgram or cbow.")
    if pruned >= 0:
        raise reader.refuse("this model was pruned by `fasttext quantize`.", "Name the .bin it was made from.")
    if words < 1:
        raise reader.refuse("it has no words.", _CUT)
    entry = struct.Struct("<qb")
    if words * (1 + entry.size) > len(reader.data):  # before memory is asked for
        raise reader.ended()
    reader.words, kept = words, limited(words, limit)
    found: list[str] = []
    counts = np.zeros(kept, dtype=np.int64)
    for number in range(words):
        end = reader.data.find(b"\0", reader.place)
        if end < 0 or end + 1 + entry.size > len(reader.data):
            raise reader.ended()
        if number < kept:
            where = f"{reader.path} byte {reader.place:,}"
            found.append(decoded(reader.data[reader.place : end], where))
            counts[number], _ = entry.unpack_from(reader.data, end + 1)
        reader.place = end + 1 + entry.size
    return found, counts, tokens


def _matrix(reader: _Reader, shape: tuple[int, int]) -> NDArray[np.float32]:
    """The next matrix, on disk, which must have this shape; the reader then stands behind it."""
    (quantised,) = reader.unpack("B")
    if quantised:
        message = "this model is quantised (.ftz)."
        raise reader.refuse(message, "Name the .bin that it was made from; float16 (--half) makes that smaller too.")
    found = reader.unpack("2q")
    if found != shape:
        raise reader.refuse(f"a matrix of {found} where {shape} belongs.", _CUT)
    begins = reader.place
    if begins + 4 * shape[0] * shape[1] > len(reader.data):
        raise reader.ended()
    reader.place += 4 * shape[0] * shape[1]
    return np.frombuffer(reader.data, dtype="<f4", count=shape[0] * shape[1], offset=begins).reshape(shape)


def write(stream: VectorStream, path: Path) -> Path:
    """Write vectors with n-grams as a file that fastText and gensim open.

    Where only the finished vectors are known (a folder of ours), a word's own row is what its vector lacks of the sum
    of its n-grams, and the output matrix, which nothing but more training needs, is zeros. Raises UserError for
    vectors without n-grams.
    """
    subwords = stream.subwords
    if subwords is None:
        remedy = "Write them as textgraft, word2vec, word2vec-binary or glove."
        raise UserError("these vectors have no n-grams, which this format is for.", where=str(path), remedy=remedy)
    counts = np.arange(stream.count, 0, -1) if stream.counts is None else stream.counts
    own: list[NDArray[np.float32]] | Iterator[NDArray[np.float32]]
    if stream.composed is not None:
        words, own = list(stream.composed.words), _pieces(stream.composed.own)
    else:
        blocks = list(stream.blocks)
        words = [word for some, _ in blocks for word in some]
        own = [_own_rows(some, rows, subwords) for some, rows in blocks]
    output = None if stream.composed is None else stream.composed.output
    settings = _own_settings(stream, subwords)
    with writing_atomically(path) as file:
        file.write(_HEADER.pack(MAGIC, VERSION, *(settings[name] for name in SETTINGS)))
        tokens = int(stream.run.get("tokens_seen") or counts.sum())
        file.write(struct.pack("<3i2q", len(words), len(words), 0, tokens, -1))
        for word, count in zip(words, counts.tolist(), strict=True):
            file.write(sound(word, path).encode() + b"\0" + struct.pack("<qb", count, 0))
        file.write(struct.pack("<B2q", 0, len(words) + len(subwords.table), stream.dimensions))
        for rows in own:
            file.write(rows.astype("<f4").tobytes())
        for rows in _pieces(subwords.table):
            file.write(rows.astype("<f4").tobytes())
        file.write(struct.pack("<B2q", 0, len(words), stream.dimensions))
        for rows in _pieces(np.zeros((len(words), stream.dimensions), np.float32) if output is None else output):
            file.write(rows.astype("<f4").tobytes())
    return path


def _own_settings(stream: VectorStream, subwords: Subwords) -> dict[str, Any]:
    known = {name: value for name, value in (stream.run.get("fasttext") or {}).items() if name in SETTINGS}
    shape = {"dim": stream.dimensions, "bucket": len(subwords.table), "minn": subwords.minn, "maxn": subwords.maxn}
    return SETTINGS | known | shape


def _own_rows(words: Any, rows: NDArray[np.float32], subwords: Subwords) -> NDArray[np.float32]:
    totals, sizes = subwords.sums(words)
    own: NDArray[np.float32] = rows * (sizes + 1).astype(np.float32)[:, None] - totals
    return own


def _pieces(rows: NDArray, size: int = 8_192) -> Iterator[NDArray]:
    return (rows[start : start + size] for start in range(0, len(rows), size))
