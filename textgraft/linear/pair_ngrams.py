"""Pairs of texts as rows of n-grams: each side, what both have, what only the second has, and how much that is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, hstack

from textgraft.core.errors import UserError
from textgraft.data.examples import Pair
from textgraft.linear.ngrams import Ngrams
from textgraft.linear.state import State

MEASURES = 5


class PairNgrams:
    """TF-IDF rows of the first text, of the second, of what both share and of what is the second's alone; and overlap.

    One vocabulary, of both sides together, serves all four (textgraft.linear.ngrams). The overlap is five measures: the
    cosine of the two rows, the share of each one's n-grams that the other has, the share of both together, and the log
    of the ratio of their numbers. They tell similar sentences, and sentences that follow from another, without a word
    of meaning. Raises UserError for a text that is no pair.
    """

    def __init__(self, ngrams: Ngrams) -> None:
        self.ngrams = ngrams

    def fit(self, texts: Sequence[str]) -> Self:
        self.ngrams.fit([side for pair in _pairs(texts) for side in (pair.first, pair.second)])
        return self

    @property
    def about(self) -> str:
        return f"{self.ngrams.about} of each text, of both, of the second alone, and measures of their overlap"

    @property
    def width(self) -> int:
        return 4 * self.ngrams.width + MEASURES

    def transform(self, texts: Sequence[str]) -> csr_matrix:
        pairs = _pairs(texts)
        first = self.ngrams.transform([pair.first for pair in pairs])
        second = self.ngrams.transform([pair.second for pair in pairs])
        shared = first.minimum(second)
        alone = second - second.multiply(first > 0)
        return hstack([first, second, shared, alone, csr_matrix(overlap(first, second))]).tocsr()

    def size_in_bytes(self) -> int:
        return self.ngrams.size_in_bytes()

    def state(self) -> State:
        """The n-grams' state, marked as one of pairs."""
        return State({"pairs": True}).having({"sides": self.ngrams.state()})

    @classmethod
    def from_state(cls, state: State) -> Self:
        """The inverse of `state`. Raises ValueError for what that cannot have given."""
        return cls(Ngrams.from_state(state.part("sides")))


def overlap(first: csr_matrix, second: csr_matrix) -> NDArray[np.float64]:
    """(N, 5) measures of how much two rows of TF-IDF (N, V), of length 1 each, have in common; 0 where one is empty."""
    cosine = np.asarray(first.multiply(second).sum(axis=1), dtype=np.float64).ravel()
    in_first, in_second = (np.diff(rows.tocsr().indptr).astype(np.float64) for rows in (first, second))
    in_both = np.diff(first.multiply(second).tocsr().indptr).astype(np.float64)
    together = np.maximum(in_first + in_second - in_both, 1)
    of_first, of_second = in_both / np.maximum(in_first, 1), in_both / np.maximum(in_second, 1)
    ratio = np.log((in_first + 1) / (in_second + 1))
    return np.stack([cosine, of_first, of_second, in_both / together, ratio], axis=1)


def _pairs(texts: Sequence[str]) -> list[Pair]:
    pairs = [text for text in texts if isinstance(text, Pair)]
    if len(pairs) < len(texts):
        message = "this classifier reads pairs, and here is a single text."
        raise UserError(message, remedy="Give two texts for each.")
    return pairs
