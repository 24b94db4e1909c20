"""Words and their vectors: look-up, neighbours, analogies, in memory that does not grow with the number of words."""

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
"""Rows that are in memory at once when all are gone through."""

Rows = NDArray | ComposedRows
Block = tuple[Sequence[str], NDArray[np.float32]]
Neighbour = tuple[str, float]


@dataclass
class VectorStream:
    """`count` words and their vectors, most frequent first, in blocks of (words, (n, dimensions)), to be read once.

    `counts` (count,) says how often each word was seen, `run` what is known of how the vectors came to be.
    """

    count: int
    dimensions: int
    blocks: Iterator[Block]
    counts: NDArray[np.int64] | None = None
    subwords: Subwords | None = None
    lowercase: bool | None = None
    run: dict[str, Any] = field(default_factory=dict)
    composed: ComposedRows | None = None
    """What the vectors are put together from, where that is known (fastText's file holds the parts)."""


class WordVectors:
    """V words with vectors of D dimensions, most frequent first, in memory or mapped from a file.

    `rows` is (V, D) in float32 or float16, or composed of a fastText model's n-grams; `counts` (V,) how often each
    word was seen, if that is known. `lowercase` says that words are asked for in lower case; None: if no word has a
    capital letter. Of a word that stands there twice the first vector counts, and a warning says so.
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
        """All of a stream in memory: 4 bytes a number, and the words. Raises UserError where that is too much."""
        words: list[str] = []
        try:
            matrix = np.empty((stream.count, stream.dimensions), dtype=np.float32)
        except (MemoryError, ValueError) as error:
            message = f"{stream.count:,} vectors of {stream.dimensions:,} dimensions do not fit into memory."
            remedy = "Read fewer (limit=…), or convert them once (textgraft vectors convert) to have them mapped."
            raise UserError(message, remedy=remedy) from error
        for some, rows in stream.blocks:
            matrix[len(words) : len(words) + len(some)] = rows
            words.extend(some)
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
        """Whether it has a vector of its own; n-grams do not count."""
        return self.place(word) is not None

    def __getitem__(self, index: slice | NDArray) -> NDArray[np.float32]:
        """Vectors (N, D) by their places."""
        return np.asarray(self.rows[index], dtype=np.float32)

    def vector(self, word: str) -> NDArray[np.float32] | None:
        """(D,): a known word's own, the mean of an unknown one's n-grams where the model has such, else None."""
        place = self.place(word)
        if place is not None:
            return self[np.array([place])][0]
        return None if self.subwords is None else self.subwords.vector(self._asked(word))

    def vectors(self, words: Iterable[str]) -> NDArray[np.float32]:
        """(N, D) as `vector` gives them; zeros where that gives None."""
        asked = [word.lower() for word in words] if self.lowercase else list(words)
        found = np.zeros((len(asked), self.dimensions), dtype=np.float32)
        places = [*map(self._index.get, asked)]
        known = [i for i, place in enumerate(places) if place is not None]
        if known:
            found[known] = self[np.array([places[i] for i in known], dtype=np.int64)]
        if self.subwords is not None:
            for i, place in enumerate(places):
                composed = None if place is not None else self.subwords.vector(asked[i])
                found[i] = found[i] if composed is None else composed
        return found

    def similarity(self, first: str, second: str) -> float:
        """The cosine of two words' vectors. Raises UserError for a word without one."""
        return float(self._unit(first) @ self._unit(second))

    def neighbours(self, word: str | NDArray, n: int = 10) -> list[Neighbour]:
        """The n words with the highest cosine to a word, which is left out, or to a vector (D,); with their cosines.

        Raises UserError for a word without a vector, and ValueError for a vector of another width.
        """
        if isinstance(word, str):
            return self.nearest(self._unit(word)[None], n, [self._places([word])])[0]
        target = np.asarray(word, dtype=np.float32)
        if target.shape != (self.dimensions,):
            raise ValueError(f"a vector of shape {target.shape} among vectors of {self.dimensions} dimensions")
        return self.nearest(unit(target)[None], n, [()])[0]

    def analogy(self, a: str, b: str, c: str, n: int = 1) -> list[Neighbour]:
        """What is to `c` as `b` is to `a`: the n words nearest to b - a + c, none of the three among them.

        3CosAdd on vectors of length 1 (Mikolov et al. 2013, NAACL; Levy & Goldberg 2014, CoNLL, eq. 1). Raises
        UserError for a word without a vector.
        """
        target = self._unit(b) - self._unit(a) + self._unit(c)
        return self.nearest(unit(target)[None], n, [self._places([a, b, c])])[0]

    def nearest(
        self, targets: NDArray[np.float32], n: int, excluded: Sequence[Collection[int]]
    ) -> list[list[Neighbour]]:
        """For each of `targets` (Q, D), of length 1, the n words of highest cosine, without the places `excluded`.

        One block of vectors is in memory at a time.
        """
        n = min(n, len(self))
        best = np.full((len(targets), n), -np.inf, dtype=np.float32)
        places = np.zeros((len(targets), n), dtype=np.int64)
        for piece in _slices(len(self)):
            cosines = targets @ unit(self[piece]).T
            for row, left_out in enumerate(excluded):
                cosines[row, [p - piece.start for p in left_out if piece.start <= p < piece.stop]] = -np.inf
            numbers = np.broadcast_to(np.arange(piece.start, piece.stop), cosines.shape)
            best, places = np.hstack([best, cosines]), np.hstack([places, numbers])
            if n < best.shape[1]:
                some = np.sort(np.argpartition(-best, n - 1, axis=1)[:, :n], axis=1)
                best, places = np.take_along_axis(best, some, 1), np.take_along_axis(places, some, 1)
        order = np.argsort(-best, axis=1, kind="stable")
        best, places = np.take_along_axis(best, order, 1), np.take_along_axis(places, order, 1)
        return [
            [(self.words[place], float(cosine)) for place, cosine in zip(*pair, strict=True) if cosine > -np.inf]
            for pair in zip(places.tolist(), best.tolist(), strict=True)
        ]

    def truncated(self, n: int) -> WordVectors:
        """The n most frequent words alone; a fastText model keeps its n-grams for the others."""
        rows = self.rows.first(n) if isinstance(self.rows, ComposedRows) else self.rows[:n]
        counts = None if self.counts is None else self.counts[:n]
        about: dict[str, Any] = {"subwords": self.subwords, "lowercase": self.lowercase, "run": self.run}
        return WordVectors(self.words[:n], rows, counts=counts, **about)

    def place(self, word: str) -> int | None:
        """Where a word stands, 0 the most frequent; None where it has no vector of its own."""
        return self._index.get(self._asked(word))

    def _asked(self, word: str) -> str:
        return word.lower() if self.lowercase else word

    def _places(self, words: Iterable[str]) -> list[int]:
        return [place for word in words if (place := self.place(word)) is not None]

    def _unit(self, word: str) -> NDArray[np.float32]:
        found = self.vector(word)
        if found is None:
            near = difflib.get_close_matches(self._asked(word), self.words[:10_000], n=1)
            remedy = f"Did you mean '{near[0]}'?" if near else "Ask for a word that they know."
            raise UserError(f"these vectors have no word '{word}'.", remedy=remedy)
        return unit(found)

    @cached_property
    def _index(self) -> dict[str, int]:
        index: dict[str, int] = {}
        for place, word in enumerate(self.words):
            index.setdefault(word, place)
        if len(index) < len(self.words):
            twice = len(self.words) - len(index)
            warnings.warn(f"{twice:,} words stand among the vectors more than once; the first counts.", stacklevel=2)
        return index


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Vectors (..., D) scaled to length 1; zeros stay zeros."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, np.finfo(np.float32).tiny), dtype=np.float32)


def _slices(total: int) -> Iterator[slice]:
    return (slice(start, min(start + BLOCK, total)) for start in range(0, total, BLOCK))
