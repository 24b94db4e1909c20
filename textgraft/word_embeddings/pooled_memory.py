"""Pooled contextual vectors: what a word's earlier vectors were, beside its present one."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, MutableMapping, Sequence

import numpy as np

from textgraft.core.errors import UserError, did_you_mean

POOLED: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "min": np.minimum,
    "max": np.maximum,
    "mean": np.add,  # the sum is kept, and divided by how many there were when it is read
}
"""How a word's memory takes in another vector."""


class WordMemory:
    """What has been seen of every word so far: Akbik, Bergmann & Vollgraf 2019, "Pooled Contextualized Embeddings".

    A word is its spelling, case and all. `pooling` is a name of POOLED: "min", their default, "max" or "mean". With
    `only_capitalised` only words that begin with a capital are remembered, the others have their present vector twice,
    as in their code, which saves memory where names are what matters.

    As published, the memory is emptied when an epoch of training begins (`clear`), grows through the epoch, and goes on
    growing over the texts that are evaluated or predicted: there the vectors of a word depend on what was read before.
    Raises UserError for an unknown pooling.
    """

    def __init__(self, pooling: str = "min", *, only_capitalised: bool = False) -> None:
        if pooling not in POOLED:
            raise UserError(f"unknown pooling '{pooling}'.", where="pooling", remedy=did_you_mean(pooling, POOLED))
        self.pooling, self.only_capitalised = pooling, only_capitalised
        self._pooled: MutableMapping[str, np.ndarray] = {}
        self._counts: MutableMapping[str, int] = {}

    @classmethod
    def of(cls, pooling: str, words: Sequence[str], vectors: np.ndarray, counts: np.ndarray) -> WordMemory:
        """The memory whose `content` this is. Raises ValueError where there are not as many of each."""
        memory = cls(pooling)
        memory._pooled = dict(zip(words, vectors, strict=True))
        memory._counts = dict(zip(words, counts.tolist(), strict=True))
        return memory

    def content(self) -> tuple[list[str], np.ndarray, np.ndarray]:
        """The words, ascending, what is kept of each (N, D), and how often each was seen (N,)."""
        words = sorted(self._pooled)
        vectors = np.stack([self._pooled[word] for word in words]) if words else np.zeros((0, 0), dtype=np.float32)
        return words, vectors, np.array([self._counts[word] for word in words], dtype=np.int64)

    def branch(self) -> WordMemory:
        """A memory that begins with all that this one has and takes in more by itself; nothing is copied."""
        branch = WordMemory(self.pooling, only_capitalised=self.only_capitalised)
        branch._pooled, branch._counts = ChainMap({}, self._pooled), ChainMap({}, self._counts)
        return branch

    def __len__(self) -> int:
        """How many words are remembered."""
        return len(self._pooled)

    def clear(self) -> None:
        """Forget everything."""
        self._pooled, self._counts = {}, {}

    def pooled(self, sentences: Sequence[Sequence[str]], vectors: Sequence[np.ndarray]) -> list[np.ndarray]:
        """(W, 2 D) for each sentence: the words' vectors (W, D) and behind them their memory, with these taken in.

        First all sentences are taken in, then each word is read, as in their code: a batch's last sentence shows in
        the memory of its first (algorithm 1 of the paper goes word by word). Raises ValueError where there are not as
        many vectors as words.
        """
        for words, found in zip(sentences, vectors, strict=True):
            for word, vector in zip(words, found, strict=True):
                self._take_in(word, vector)
        return [
            np.concatenate([found, np.stack([self._read(word, v) for word, v in zip(words, found, strict=True)])], 1)
            for words, found in zip(sentences, vectors, strict=True)
        ]

    def _take_in(self, word: str, vector: np.ndarray) -> None:
        if self.only_capitalised and not word[:1].isupper():
            return
        if self.pooling == "mean" and vector.dtype == np.float16:
            vector = vector.astype(np.float32)  # a sum needs the room
        known = self._pooled.get(word)
        self._pooled[word] = vector.copy() if known is None else POOLED[self.pooling](known, vector)
        self._counts[word] = self._counts.get(word, 0) + 1

    def _read(self, word: str, present: np.ndarray) -> np.ndarray:
        known = self._pooled.get(word)
        if known is None:
            return present
        return known / self._counts[word] if self.pooling == "mean" else known
