"""Memory of pooled contextual vectors: the pooled vectors of a word's previous occurrences."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, MutableMapping, Sequence

import numpy as np

from textgraft.core.errors import UserError, did_you_mean

POOLED: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "min": np.minimum,
    "max": np.maximum,
    "mean": np.add,  # the sum is stored, and divided by the count on lookup
}
"""Pooling functions that add a vector to a word's memory."""


class WordMemory:
    """Memory of every word: Akbik, Bergmann & Vollgraf 2019, "Pooled Contextualized Embeddings".

    As published, the memory is cleared at the beginning of an epoch (`clear`), grows through the epoch, and continues
    to grow over the texts that are evaluated or predicted: there the vectors of a word depend on the previous texts.

    Args:
        pooling: Name in POOLED: "min", their default, "max" or "mean".
        only_capitalised: Store only words that begin with a capital; others have their current vector twice. As in
            their code, this saves memory where names are most important. Words are case-sensitive.

    Raises:
        UserError: The pooling is unknown.
    """

    def __init__(self, pooling: str = "min", *, only_capitalised: bool = False) -> None:
        if pooling not in POOLED:
            raise UserError(f"unknown pooling '{pooling}'.", where="pooling", remedy=did_you_mean(pooling, POOLED))
        self.pooling, self.only_capitalised = pooling, only_capitalised
        self._pooled: MutableMapping[str, np.ndarray] = {}
        self._counts: MutableMapping[str, int] = {}

    @classmethod
    def of(cls, pooling: str, words: Sequence[str], vectors: np.ndarray, counts: np.ndarray) -> WordMemory:
        """The memory with this `content`. Raises ValueError where the numbers of elements differ."""
        memory = cls(pooling)
        memory._pooled = dict(zip(words, vectors, strict=True))
        memory._counts = dict(zip(words, counts.tolist(), strict=True))
        return memory

    def content(self) -> tuple[list[str], np.ndarray, np.ndarray]:
        """Words, ascending, their stored vectors (N, D), and their counts (N,)."""
        words = sorted(self._pooled)
        vectors = np.stack([self._pooled[word] for word in words]) if words else np.zeros((0, 0), dtype=np.float32)
        return words, vectors, np.array([self._counts[word] for word in words], dtype=np.int64)

    def branch(self) -> WordMemory:
        """A memory that starts with the content of this one and grows separately; nothing is copied."""
        branch = WordMemory(self.pooling, only_capitalised=self.only_capitalised)
        branch._pooled, branch._counts = ChainMap({}, self._pooled), ChainMap({}, self._counts)
        return branch

    def __len__(self) -> int:
        """Number of words."""
        return len(self._pooled)

    def clear(self) -> None:
        """Clear the memory."""
        self._pooled, self._counts = {}, {}

    def pooled(self, sentences: Sequence[Sequence[str]], vectors: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Vectors (W, 2 D) for each sentence: the words' vectors (W, D), concatenated with their memory after this
        update.

        All sentences are added first, then each word is looked up, as in their code: a batch's last sentence affects
        the memory vectors of its first (algorithm 1 of the paper goes word by word). Raises ValueError where the
        numbers of vectors and words differ.
        """
        for words, sentence_vectors in zip(sentences, vectors, strict=True):
            for word, vector in zip(words, sentence_vectors, strict=True):
                self._update(word, vector)
        return [
            np.concatenate(
                [
                    sentence_vectors,
                    np.stack([self._lookup(word, v) for word, v in zip(words, sentence_vectors, strict=True)]),
                ],
                1,
            )
            for words, sentence_vectors in zip(sentences, vectors, strict=True)
        ]

    def _update(self, word: str, vector: np.ndarray) -> None:
        if self.only_capitalised and not word[:1].isupper():
            return
        if self.pooling == "mean" and vector.dtype == np.float16:
            vector = vector.astype(np.float32)  # a sum needs the range
        stored = self._pooled.get(word)
        self._pooled[word] = vector.copy() if stored is None else POOLED[self.pooling](stored, vector)
        self._counts[word] = self._counts.get(word, 0) + 1

    def _lookup(self, word: str, current: np.ndarray) -> np.ndarray:
        stored = self._pooled.get(word)
        if stored is None:
            return current
        return stored / self._counts[word] if self.pooling == "mean" else stored
