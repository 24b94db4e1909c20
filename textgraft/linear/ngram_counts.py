"""Unlabelled texts as their n-grams are counted, once for all that is learned from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from textgraft.linear.ngrams import Counts, is_space_separated
from textgraft.linear.split_half_cca import half

TEXTS = 100_000
"""Most texts that are counted, a random sample of a larger pool."""
NGRAMS = 100_000
"""Most n-grams that are counted, the most frequent ones."""


@dataclass(frozen=True)
class NgramCounts:
    """N texts, how often each has each n-gram (N, V), and the same of each one's two halves (linear.split_half_cca).

    To cut texts into n-grams takes as long as to learn from them, so the pool's are counted once: latent spaces,
    paragraph vectors and self-training all begin here.
    """

    texts: Sequence[str]
    whole: Counts
    halves: tuple[csr_matrix, csr_matrix]

    @classmethod
    def of(cls, texts: Sequence[str], *, seed: int = 0) -> Self:
        """Of at most TEXTS of the texts, drawn at random. Raises UserError where no text has a word."""
        texts = [texts[i] for i in drawn(len(texts), TEXTS, seed)]
        spaced = is_space_separated(texts)
        kind, least = "word 1-2-grams" if spaced else "character 1-3-grams", 5 if len(texts) >= 1_000 else 2
        whole = Counts.of(texts, kind, max_features=NGRAMS, min_df=least)
        one = whole.again([half(text, spaced=spaced) for text in texts])
        other = (whole.counts - one).maximum(0)  # maximum: a letter's lower case may change where a text is cut
        other.eliminate_zeros()
        return cls(texts, whole, (one, other))

    def __len__(self) -> int:
        return len(self.texts)

    def sample(self, most: int, *, seed: int = 0) -> NgramCounts:
        """At most so many of the texts, drawn at random."""
        rows = drawn(len(self), most, seed)
        whole = Counts(self.whole.name, self.whole.words, self.whole.counts[rows])
        one, other = self.halves
        return NgramCounts([self.texts[i] for i in rows], whole, (one[rows], other[rows]))

    def narrowed(self, most: int) -> NgramCounts:
        """The texts as at most so many n-grams see them, the most frequent ones."""
        found = np.asarray(self.whole.counts.sum(axis=0, dtype=np.float64)).ravel()
        columns = np.sort(np.argsort(-found, kind="stable")[:most])
        words = [self.whole.words[i] for i in columns]
        one, other = self.halves
        whole = Counts(self.whole.name, words, self.whole.counts[:, columns])
        return NgramCounts(self.texts, whole, (one[:, columns], other[:, columns]))


def drawn(count: int, most: int, seed: int) -> NDArray[np.int64]:
    """`most` of so many numbers, ascending; all of them where they are no more."""
    if count <= most:
        return np.arange(count)
    return np.sort(np.random.default_rng(seed).choice(count, most, replace=False))
