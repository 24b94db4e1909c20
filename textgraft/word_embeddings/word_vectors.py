"""Word vectors: look-up, nearest neighbours, analogies."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textgraft.core.errors import UserError
from textgraft.word_embeddings.subwords import ComposedRows, Subwords

BLOCK = 8_192
"""Number of rows in memory at once during a pass over all."""

Rows = NDArray | ComposedRows
Block = tuple[Sequence[str], NDArray[np.float32]]
Neighbour = tuple[str, float]


@dataclass
class VectorStream:
    """Words and vectors, most frequent first, in blocks of (words, (n, dimensions)), to be consumed once.

    Attributes:
        count: Number of words.
        dimensions: D.
        blocks: The blocks.
        counts: Counts (count,) of the words.
        subwords: n-grams of a fastText model.
        lowercase: Words are looked up in lower case.
        run: Provenance.
        composed: The parts of composed vectors, if known (fastText's file stores the parts).
    """

    count: int
    dimensions: int
    blocks: Iterator[Block]
    counts: NDArray[np.int64] | None = None
    subwords: Subwords | None = None
    lowercase: bool | None = None
    run: dict[str, Any] = field(default_factory=dict)
    composed: ComposedRows | None = None


class WordVectors:
    """V words with vectors of D dimensions, most frequent first, in memory or memory-mapped.

    Where a word occurs twice, the first vector is used, with a warning.

    Args:
        words: Words.
        rows: (V, D) in float32 or float16, or composed of a fastText model's n-grams.
        counts: Counts (V,) of the words, if known.
        subwords: n-grams of a fastText model.
        lowercase: Look words up in lower case (None: if no word has a capital letter).
        run: Provenance.
    """

    def __init__(
        self,
        words: Sequence[str],
        rows: Rows,
        *,
        counts: NDArray[np.int64] | None = None,
        subwords: Subwords | None = None,
        lowercase: bool | None = None,
        run: dict[str, Any] | None = None,
    ) -> None:
        if rows.shape[0] != len(words):
            raise ValueError(f"{len(words)} words but {rows.shape[0]} vectors")
        self.words, self.rows, self.counts, self.subwords = words, rows, counts, subwords
        self.lowercase = all(word == word.lower() for word in words) if lowercase is None else lowercase
        self.run = run or {}

    @classmethod
    def from_stream(cls, stream: VectorStream) -> WordVectors:
        """Load a whole stream: 4 bytes a number, and the words. Raises UserError where memory is too small."""
        words: list[str] = []
        try:
            matrix = np.empty((stream.count, stream.dimensions), dtype=np.float32)
        except (MemoryError, ValueError) as error:
            message = f"{stream.count:,} vectors of {stream.dimensions:,} dimensions do not fit into memory."
            remedy = "Read fewer (limit=…), or convert them once (textgraft vectors convert) to have them mapped."
            raise UserError(message, remedy=remedy) from error
        for block_words, rows in stream.blocks:
            matrix[len(words) : len(words) + len(block_words)] = rows
            words.extend(block_words)
        about: dict[str, Any] = {"lowercase": stream.lowercase, "run": stream.run}
        return cls(words, matrix, counts=stream.counts, subwords=stream.subwords, **about)

    def stream(self) -> VectorStream:
        """The same, block by block."""
        blocks = ((self.words[s], self[s]) for s in _slices(len(self)))
        about: dict[str, Any] = {"lowercase": self.lowercase, "run": self.run}
        about["composed"] = self.rows if isinstance(self.rows, ComposedRows) else None
        return VectorStream(len(self), self.dimensions, blocks, self.counts, self.subwords, **about)

    @property
    def dimensions(self) -> int:
        """D."""
        return int(self.rows.shape[1])

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        """True if the word has a vector of its own, without n-grams."""
        return self.place(word) is not None

    def __getitem__(self, index: slice | NDArray) -> NDArray[np.float32]:
        """Vectors (N, D) by index."""
        return np.asarray(self.rows[index], dtype=np.float32)

    def vector(self, word: str) -> NDArray[np.float32] | None:
        """Vector (D,) of a word: its own, the mean of its n-grams where it is unknown and the model has some, else
        None.
        """
        index = self.place(word)
        if index is not None:
            return self[np.array([index])][0]
        return None if self.subwords is None else self.subwords.vector(self._normalised(word))

    def vectors(self, words: Iterable[str]) -> NDArray[np.float32]:
        """Vectors (N, D) as `vector` returns them; zeros in place of None."""
        normalised = [word.lower() for word in words] if self.lowercase else list(words)
        result = np.zeros((len(normalised), self.dimensions), dtype=np.float32)
        indices = [*map(self._index.get, normalised)]
        own_rows = [i for i, index in enumerate(indices) if index is not None]
        if own_rows:
            result[own_rows] = self[np.array([indices[i] for i in own_rows], dtype=np.int64)]
        if self.subwords is not None:
            for i, index in enumerate(indices):
                composed = None if index is not None else self.subwords.vector(normalised[i])
                result[i] = result[i] if composed is None else composed
        return result

    def similarity(self, first: str, second: str) -> float:
        """Cosine of two words' vectors. Raises UserError for a word without one."""
        return float(self._unit(first) @ self._unit(second))

    def neighbours(self, word: str | NDArray, n: int = 10) -> list[Neighbour]:
        """The n words with the highest cosine to a word, which is left out, or to a vector (D,); with their cosines.

        Raises:
            UserError: The word has no vector.
            ValueError: The vector has another width.
        """
        if isinstance(word, str):
            return self.nearest(self._unit(word)[None], n, [self._places([word])])[0]
        target = np.asarray(word, dtype=np.float32)
        if target.shape != (self.dimensions,):
            raise ValueError(f"a vector of shape {target.shape} among vectors of {self.dimensions} dimensions")
        return self.nearest(unit(target)[None], n, [()])[0]

    def analogy(self, a: str, b: str, c: str, n: int = 1) -> list[Neighbour]:
        """The n words nearest to b - a + c, without a, b and c: `c` is to the answer as `a` is to `b`.

        3CosAdd on unit vectors (Mikolov et al. 2013, NAACL; Levy & Goldberg 2014, CoNLL, eq. 1).

        Raises:
            UserError: A word has no vector.
        """
        target = self._unit(b) - self._unit(a) + self._unit(c)
        return self.nearest(unit(target)[None], n, [self._places([a, b, c])])[0]

    def nearest(
        self, targets: NDArray[np.float32], n: int, excluded: Sequence[Collection[int]]
    ) -> list[list[Neighbour]]:
        """The n words of highest cosine for each of `targets` (Q, D), unit vectors, without the indices in `excluded`.

        One block of vectors is in memory at a time.
        """
        n = min(n, len(self))
        best = np.full((len(targets), n), -np.inf, dtype=np.float32)
        indices = np.zeros((len(targets), n), dtype=np.int64)
        for block in _slices(len(self)):
            cosines = targets @ unit(self[block]).T
            for row, left_out in enumerate(excluded):
                cosines[row, [p - block.start for p in left_out if block.start <= p < block.stop]] = -np.inf
            numbers = np.broadcast_to(np.arange(block.start, block.stop), cosines.shape)
            best, indices = np.hstack([best, cosines]), np.hstack([indices, numbers])
            if n < best.shape[1]:
                best_columns = np.sort(np.argpartition(-best, n - 1, axis=1)[:, :n], axis=1)
                best, indices = np.take_along_axis(best, best_columns, 1), np.take_along_axis(indices, best_columns, 1)
        order = np.argsort(-best, axis=1, kind="stable")
        best, indices = np.take_along_axis(best, order, 1), np.take_along_axis(indices, order, 1)
        return [
            [(self.words[index], float(cosine)) for index, cosine in zip(*pair, strict=True) if cosine > -np.inf]
            for pair in zip(indices.tolist(), best.tolist(), strict=True)
        ]

    def truncated(self, n: int) -> WordVectors:
        """The n most frequent words alone; a fastText model keeps its n-grams for the others."""
        rows = self.rows.first(n) if isinstance(self.rows, ComposedRows) else self.rows[:n]
        counts = None if self.counts is None else self.counts[:n]
        about: dict[str, Any] = {"subwords": self.subwords, "lowercase": self.lowercase, "run": self.run}
        return WordVectors(self.words[:n], rows, counts=counts, **about)

    def place(self, word: str) -> int | None:
        """Index of a word, 0 the most frequent; None where it has no vector of its own."""
        return self._index.get(self._normalised(word))

    def _normalised(self, word: str) -> str:
        return word.lower() if self.lowercase else word

    def _places(self, words: Iterable[str]) -> list[int]:
        return [place for word in words if (place := self.place(word)) is not None]

    def _unit(self, word: str) -> NDArray[np.float32]:
        vector = self.vector(word)
        if vector is None:
            near = difflib.get_close_matches(self._normalised(word), self.words[:10_000], n=1)
            remedy = f"Did you mean '{near[0]}'?" if near else "Use a word in the vocabulary."
            raise UserError(f"these vectors have no word '{word}'.", remedy=remedy)
        return unit(vector)

    @cached_property
    def _index(self) -> dict[str, int]:
        index: dict[str, int] = {}
        for place, word in enumerate(self.words):
            index.setdefault(word, place)
        if len(index) < len(self.words):
            duplicates = len(self.words) - len(index)
            warnings.warn(f"{duplicates:,} words have more than one vector; the first is used.", stacklevel=2)
        return index


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Vectors (..., D) scaled to unit length; zeros stay zero."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, np.finfo(np.float32).tiny), dtype=np.float32)


def _slices(total: int) -> Iterator[slice]:
    return (slice(start, min(start + BLOCK, total)) for start in range(0, total, BLOCK))
