"""n-gram counts of the unlabelled texts, computed once for all methods that are fitted to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from textgraft.linear.ngrams import Counts, is_space_separated
from textgraft.linear.split_half_cca import first_half

MAX_TEXTS = 100_000
"""Texts that are counted, a random sample of a larger pool."""
MAX_NGRAMS = 100_000
"""n-grams that are counted, the most frequent ones."""


@dataclass(frozen=True)
class NgramCounts:
    """Occurrences of n-grams in N texts and in each text's two halves (linear.split_half_cca).

    Splitting texts into n-grams takes as long as fitting a method to them, so LSA, paragraph vectors and co-training
    share these counts.

    Attributes:
        texts: The counted texts.
        whole: Occurrences (N, V) in whole texts.
        halves: Occurrences (N, V) in the first and in the second halves.
    """

    texts: Sequence[str]
    whole: Counts
    halves: tuple[csr_matrix, csr_matrix]

    @classmethod
    def of(cls, texts: Sequence[str], *, seed: int = 0) -> Self:
        """Count the n-grams of at most MAX_TEXTS texts, a random sample. Raises UserError if no text contains a
        word.
        """
        texts = [texts[i] for i in random_subset(len(texts), MAX_TEXTS, seed)]
        spaced = is_space_separated(texts)
        kind, min_df = "word 1-2-grams" if spaced else "character 1-3-grams", 5 if len(texts) >= 1_000 else 2
        whole = Counts.of(texts, kind, max_features=MAX_NGRAMS, min_df=min_df)
        first = whole.count([first_half(text, spaced=spaced) for text in texts])
        second = (whole.counts - first).maximum(0)  # maximum: a letter's lower case may change where a text is cut
        second.eliminate_zeros()
        return cls(texts, whole, (first, second))

    def __len__(self) -> int:
        return len(self.texts)

    def sample(self, limit: int, *, seed: int = 0) -> NgramCounts:
        """A random sample of at most `limit` of the texts."""
        rows = random_subset(len(self), limit, seed)
        whole = Counts(self.whole.name, self.whole.words, self.whole.counts[rows])
        first, second = self.halves
        return NgramCounts([self.texts[i] for i in rows], whole, (first[rows], second[rows]))

    def most_frequent(self, limit: int) -> NgramCounts:
        """The counts of the `limit` most frequent n-grams."""
        occurrences = np.asarray(self.whole.counts.sum(axis=0, dtype=np.float64)).ravel()
        columns = np.sort(np.argsort(-occurrences, kind="stable")[:limit])
        words = [self.whole.words[i] for i in columns]
        first, second = self.halves
        whole = Counts(self.whole.name, words, self.whole.counts[:, columns])
        return NgramCounts(self.texts, whole, (first[:, columns], second[:, columns]))


def random_subset(count: int, limit: int, seed: int) -> NDArray[np.int64]:
    """Ascending random subset of range(count).

    Args:
        count: Number of items.
        limit: Size of the subset; all items if there are no more.
        seed: Seed of the choice.

    >>> random_subset(3, 5, 0).tolist(), len(random_subset(5, 3, 0))
    ([0, 1, 2], 3)
    """
    if count <= limit:
        return np.arange(count)
    return np.sort(np.random.default_rng(seed).choice(count, limit, replace=False))
