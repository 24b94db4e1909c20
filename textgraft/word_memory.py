"""Pooled contextual vectors: what a word's earlier vectors were, beside its present one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from textgraft.errors import UserError, did_you_mean

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
        self._pooled: dict[str, np.ndarray] = {}
        self._counts: dict[str, int] = {}

    def __len__(self) -> int:
        """How many words are remembered."""
        return len(self._pooled)

    def clear(self) -> None:
        """Forget everything."""
        self._pooled.clear()
        self._counts.clear()

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
        known = self._pooled.get(word)
        self._pooled[word] = vector.copy() if known is None else POOLED[self.pooling](known, vector)
        self._counts[word] = self._counts.get(word, 0) + 1

    def _read(self, word: str, present: np.ndarray) -> np.ndarray:
        known = self._pooled.get(word)
        if known is None:
            return present
        return known / self._counts[word] if self.pooling == "mean" else known
