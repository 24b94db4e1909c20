"""Feature map of paragraph vectors, learned from the n-grams of unlabelled texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import CountVectorizer

from textgraft.linear.ngram_counts import NgramCounts
from textgraft.linear.ngrams import KINDS, analysis, form_of, knows_ngrams
from textgraft.linear.paragraph_vectors import NgramVectors
from textgraft.linear.residual_idf import POWER, residual_idf_shares
from textgraft.linear.split_half_cca import MIN_TEXTS, cca_directions
from textgraft.linear.state import State
from textgraft.text.visible import TEXT_FORM, VISIBLE, TextForm

EPOCHS = 4
AXES_SAMPLE = 10_000
"""Texts that centre and axes are estimated from."""


class ParagraphFeatures:
    """Paragraph vectors (linear.paragraph_vectors), rotated by split-half CCA (linear.split_half_cca).

    n-grams that are concentrated in few texts get little weight (linear.residual_idf). Fit it once to all available
    text.

    Args:
        dimensions: Number of dimensions D.
        epochs: Epochs of training of the n-gram vectors.
        seed: Seeds initialisation, sampling and order.
    """

    form: ClassVar[str] = "paragraph vectors"

    def __init__(self, *, dimensions: int = 200, epochs: int = EPOCHS, seed: int = 0) -> None:
        self.dimensions, self.epochs, self.seed = dimensions, epochs, seed

    def fit(self, texts: Sequence[str]) -> Self:
        """Fit to unlabelled texts. Raises UserError if no text contains a word."""
        return self.fit_counted(NgramCounts.of(texts, seed=self.seed))

    def fit_counted(self, texts: NgramCounts) -> Self:
        """Fit to texts whose n-grams are counted."""
        whole = texts.whole.counts
        self._kind, self._words = texts.whole.name, texts.whole.words
        self._form = VISIBLE
        self._vectorizer = _vectorizer(self._kind, self._words, VISIBLE)
        weights = residual_idf_shares(whole) ** POWER
        self._ngrams = NgramVectors.initialize(whole, weights, self.dimensions, self.seed)
        self._ngrams.train(*texts.halves, epochs=self.epochs, seed=self.seed)
        sample = texts.sample(AXES_SAMPLE, seed=self.seed)
        self._centre = self._ngrams.infer(sample.whole.counts).mean(axis=0, dtype=np.float64)
        self._axes = np.eye(self.width)
        if len(sample) >= MIN_TEXTS:
            first, second = (self._ngrams.infer(half) for half in sample.halves)
            self._axes = cca_directions(first.astype(np.float64), second.astype(np.float64))
        text_count, ngrams = f"{len(texts):,} texts", f"{len(self._words):,} {self._kind}"
        self.about = f"paragraph vectors of {text_count} ({self.width} dimensions of {ngrams})"
        return self

    @property
    def width(self) -> int:
        """Number of dimensions D."""
        return len(self._centre)

    def transform(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Coordinates (N, D), the strongest dimension first; a text without known n-grams is at the centre, 0."""
        if len(texts) == 0:
            return np.zeros((0, self.width))
        return self._project(self._vectorizer.transform(texts))

    def transform_counts(self, texts: NgramCounts) -> NDArray[np.float64]:
        """Coordinates (N, D) of texts whose n-grams are counted."""
        return self._project(texts.whole.columns(self._words))

    def _project(self, counts: csr_matrix) -> NDArray[np.float64]:
        has_ngrams = np.diff(counts.indptr) > 0
        return np.asarray((self._ngrams.infer(counts) - self._centre) * has_ngrams[:, None] @ self._axes)

    def knows(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Mask (N,) of the texts with known n-grams."""
        return np.array([knows_ngrams(self._vectorizer, self._kind, text) for text in texts], dtype=bool)

    def size_in_bytes(self) -> int:
        """Size of the vectors, the n-grams and the axes."""
        words = sum(len(word.encode("utf-8", "surrogatepass")) for word in self._words)
        return words + self._ngrams.vectors.nbytes + self._ngrams.weights.nbytes + self._axes.nbytes

    def state(self) -> State:
        """The n-grams in the order of their vectors, the vectors (V, D) as float16, and the axes."""
        settings: dict[str, Any] = {"dimensions": self.dimensions, "epochs": self.epochs, "seed": self.seed}
        settings |= {"about": self.about, "kind": self._kind, TEXT_FORM: self._form}
        arrays = {
            "vectors": self._ngrams.vectors.astype(np.float16),
            "weights": self._ngrams.weights,
            "shares": self._ngrams.shares,
            "centre": self._centre,
            "axes": self._axes,
        }
        return State(settings, arrays, {"words": self._words})

    @classmethod
    def from_state(cls, state: State) -> Self:
        """The inverse of `state`. Raises ValueError for an inconsistent state."""
        dimensions, epochs = state.setting("dimensions", int), state.setting("epochs", int)
        features = cls(dimensions=dimensions, epochs=epochs, seed=state.setting("seed", int))
        features.about, features._kind = state.setting("about", str), state.setting("kind", str)
        if features._kind not in KINDS:
            raise ValueError(f"unknown kind of n-gram: {features._kind}")
        features._words = state.word_list("words")
        features._form = form_of(state)
        features._vectorizer = _vectorizer(features._kind, features._words, features._form)
        count = len(features._words)
        vectors = state.array("vectors", count, None)
        weights, shares = state.array("weights", count), state.array("shares", count)
        for name, array in (("weights", weights), ("shares", shares)):
            if not (np.isfinite(array) & (array >= 0)).all() or not array.sum() > 0:
                raise ValueError(f"{name} of n-grams must be finite, not negative and not all 0")
        features._ngrams = NgramVectors(vectors, weights, shares)
        width = vectors.shape[1]
        features._centre, features._axes = state.array("centre", width), state.array("axes", width, width)
        return features


def _vectorizer(kind: str, words: Sequence[str], form: TextForm) -> CountVectorizer:
    return CountVectorizer(vocabulary=words, dtype=np.float32, **analysis(kind, form))
