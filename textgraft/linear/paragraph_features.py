"""Texts as paragraph vectors, learned from the n-grams of unlabelled texts: a second opinion beside LSA."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import CountVectorizer

from textgraft.linear.ngram_counts import NgramCounts
from textgraft.linear.ngrams import KINDS
from textgraft.linear.paragraph_vectors import NgramVectors
from textgraft.linear.residual_idf import POWER, residual_idf_shares
from textgraft.linear.split_half_cca import ENOUGH, agreement
from textgraft.linear.state import State

EPOCHS = 4
AXES_FROM = 10_000
"""Texts whose centre and axes are taken."""


class ParagraphFeatures:
    """A paragraph vector a text (linear.paragraph_vectors), turned to what a text's halves agree on
    (linear.split_half_cca).

    n-grams that crowd into few texts hardly count (linear.residual_idf). Fit it once to all the text there is.
    """

    form: ClassVar[str] = "paragraph vectors"

    def __init__(self, *, dimensions: int = 200, epochs: int = EPOCHS, seed: int = 0) -> None:
        self.dimensions, self.epochs, self.seed = dimensions, epochs, seed

    def fit(self, texts: Sequence[str]) -> Self:
        """Raises UserError where no text has a word."""
        return self.fit_counted(NgramCounts.of(texts, seed=self.seed))

    def fit_counted(self, texts: NgramCounts) -> Self:
        """The same of texts that were counted before."""
        whole = texts.whole.counts
        self._kind, self._words = texts.whole.name, texts.whole.words
        self._counter = _counter(self._kind, self._words)
        weights = residual_idf_shares(whole) ** POWER
        self._ngrams = NgramVectors.begin(whole, weights, self.dimensions, self.seed)
        self._ngrams.learn(*texts.halves, epochs=self.epochs, seed=self.seed)
        some = texts.sample(AXES_FROM, seed=self.seed)
        self._centre = self._ngrams.texts(some.whole.counts).mean(axis=0, dtype=np.float64)
        self._axes = np.eye(self.width)
        if len(some) >= ENOUGH:
            one, other = (self._ngrams.texts(half) for half in some.halves)
            self._axes = agreement(one.astype(np.float64), other.astype(np.float64))
        count, ngrams = f"{len(texts):,} texts", f"{len(self._words):,} {self._kind}"
        self.about = f"paragraph vectors of {count} ({self.width} dimensions of {ngrams})"
        return self

    @property
    def width(self) -> int:
        """D."""
        return len(self._centre)

    def transform(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Texts as coordinates (N, D), the strongest first; a text without known n-grams lies at the centre, 0."""
        if len(texts) == 0:
            return np.zeros((0, self.width))
        return self._placed(self._counter.transform(texts))

    def place(self, texts: NgramCounts) -> NDArray[np.float64]:
        """The same of texts that were counted before."""
        return self._placed(texts.whole.of_words(self._words))

    def _placed(self, counts: csr_matrix) -> NDArray[np.float64]:
        known = np.diff(counts.indptr) > 0
        return np.asarray((self._ngrams.texts(counts) - self._centre) * known[:, None] @ self._axes)

    def size_in_bytes(self) -> int:
        """Of the vectors, the n-grams and the axes."""
        words = sum(len(word.encode("utf-8", "surrogatepass")) for word in self._words)
        return words + self._ngrams.vectors.nbytes + self._ngrams.weights.nbytes + self._axes.nbytes

    def state(self) -> State:
        """The n-grams in the order of their vectors, the vectors (V, D) as float16, and the axes."""
        settings: dict[str, Any] = {"dimensions": self.dimensions, "epochs": self.epochs, "seed": self.seed}
        settings |= {"about": self.about, "kind": self._kind}
        arrays = {
            "vectors": self._ngrams.vectors.numpy().astype(np.float16),
            "weights": self._ngrams.weights.numpy(),
            "shares": self._ngrams.shares,
            "centre": self._centre,
            "axes": self._axes,
        }
        return State(settings, arrays, {"words": self._words})

    @classmethod
    def from_state(cls, state: State) -> Self:
        """The inverse of `state`. Raises ValueError for what that cannot have given."""
        dimensions, epochs = state.setting("dimensions", int), state.setting("epochs", int)
        space = cls(dimensions=dimensions, epochs=epochs, seed=state.setting("seed", int))
        space.about, space._kind = state.setting("about", str), state.setting("kind", str)
        if space._kind not in KINDS:
            raise ValueError(f"this is no kind of n-gram: {space._kind}")
        space._words = state.words("words")
        space._counter = _counter(space._kind, space._words)
        count = len(space._words)
        vectors = torch.from_numpy(state.array("vectors", count, None))
        weights, shares = state.array("weights", count), state.array("shares", count)
        for name, array in (("weights", weights), ("shares", shares)):
            if not (np.isfinite(array) & (array >= 0)).all() or not array.sum() > 0:
                raise ValueError(f"these are no {name} of n-grams")
        space._ngrams = NgramVectors(vectors, torch.from_numpy(weights), shares)
        width = vectors.shape[1]
        space._centre, space._axes = state.array("centre", width), state.array("axes", width, width)
        return space


def _counter(kind: str, words: Sequence[str]) -> CountVectorizer:
    return CountVectorizer(vocabulary=words, dtype=np.float32, **KINDS[kind])
