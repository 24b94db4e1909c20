"""n-gram features of text pairs: each text, the shared part, the second text's own part, and overlap measures."""

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
"""Number of overlap measures."""


class PairNgrams:
    """TF-IDF rows of the first text, of the second, of the shared n-grams and of those of the second only; and overlap.

    One vocabulary, fitted to both texts, serves all four (textgraft.linear.ngrams). They and the overlap measures
    identify similar sentences, and sentences that follow from another, without any knowledge of meaning. Raises
    UserError for a text that is not a pair.

    Args:
        ngrams: The unfitted n-gram features.
    """

    def __init__(self, ngrams: Ngrams) -> None:
        self.ngrams = ngrams

    def fit(self, texts: Sequence[str]) -> Self:
        """Fit the n-grams to both texts of all pairs."""
        self.ngrams.fit([text for pair in _pairs(texts) for text in (pair.first, pair.second)])
        return self

    @property
    def about(self) -> str:
        """Description of the features."""
        return f"{self.ngrams.about} of each text, of both, of the second alone, and measures of their overlap"

    @property
    def width(self) -> int:
        """Number of columns, 4 V + MEASURES."""
        return 4 * self.ngrams.width + MEASURES

    def transform(self, texts: Sequence[str]) -> csr_matrix:
        """Rows (N, 4 V + MEASURES) of N pairs."""
        pairs = _pairs(texts)
        first = self.ngrams.transform([pair.first for pair in pairs])
        second = self.ngrams.transform([pair.second for pair in pairs])
        shared = first.minimum(second)
        second_only = second - second.multiply(first > 0)
        return hstack([first, second, shared, second_only, csr_matrix(overlap(first, second))]).tocsr()

    def knows(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Mask (N,) of the pairs of which one text's n-grams are known."""
        return self.ngrams.knows(texts)

    def size_in_bytes(self) -> int:
        return self.ngrams.size_in_bytes()

    def state(self) -> State:
        """The n-grams' state, marked as one of pairs."""
        return State({"pairs": True}).with_parts({"sides": self.ngrams.state()})

    @classmethod
    def from_state(cls, state: State) -> Self:
        """The inverse of `state`. Raises ValueError for an inconsistent state."""
        return cls(Ngrams.from_state(state.part("sides")))


def overlap(first: csr_matrix, second: csr_matrix) -> NDArray[np.float64]:
    """Overlap measures of two texts' TF-IDF rows.

    Args:
        first, second: Rows (N, V) of length 1.

    Returns:
        Measures (N, 5): cosine of the rows, share of the first's n-grams in the second, of the second's in the first,
            Jaccard index, and log ratio of the numbers of n-grams. Shares and cosine are 0 where a row is empty.
    """
    cosine = np.asarray(first.multiply(second).sum(axis=1), dtype=np.float64).ravel()
    in_first, in_second = (np.diff(rows.tocsr().indptr).astype(np.float64) for rows in (first, second))
    in_both = np.diff(first.multiply(second).tocsr().indptr).astype(np.float64)
    union = np.maximum(in_first + in_second - in_both, 1)
    of_first, of_second = in_both / np.maximum(in_first, 1), in_both / np.maximum(in_second, 1)
    ratio = np.log((in_first + 1) / (in_second + 1))
    return np.stack([cosine, of_first, of_second, in_both / union, ratio], axis=1)


def _pairs(texts: Sequence[str]) -> list[Pair]:
    pairs = [text for text in texts if isinstance(text, Pair)]
    if len(pairs) < len(texts):
        message = "this classifier is for pairs of texts, and got a single text."
        raise UserError(message, remedy="Pass two texts per example.")
    return pairs
