"""Feature map of weighted means of word vectors, from co-occurrence counts of unlabelled text: minutes, not hours."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from textgraft.linear.ngram_counts import NgramCounts
from textgraft.linear.ngrams import form_of
from textgraft.linear.pool_words import PoolWords, Segmenter, encode
from textgraft.linear.residual_idf import CONCENTRATED, POWER, residual_idf_shares
from textgraft.linear.split_half_cca import MIN_TEXTS, cca_directions, split_halves
from textgraft.linear.state import State
from textgraft.text.tokenizer import Tokenizer
from textgraft.text.visible import TEXT_FORM
from textgraft.word_embeddings.word_vectors import WordVectors

RARITY = 1e-3
"""Smoothing a of a word's weight a / (a + p) in a text."""


class WordVectorFeatures:
    """Weighted mean of a text's word vectors (linear.pool_words), rare words heavier, on the pool's axes.

    A word of probability p weighs a / (a + p) (Arora, Liang & Ma 2017); the first principal component, which that paper
    removes, is kept. Words are those of the linear baseline; where spaces do not separate them, subwords trained on the
    pool. The axes are the principal ones, or with residual-IDF weighting and MIN_TEXTS texts those of split-half CCA
    (linear.split_half_cca).

    Args:
        dimensions: Number of dimensions D of vectors from co-occurrence counts.
        residual_idf: Reduce the weight of words that are concentrated in few texts (linear.residual_idf).
        seed: Seed of samples and SVD.
        pretrained: Word vectors to use in place of counted ones; the pool still sets weights and axes. All their words
            are kept, with p = 0 for those that a small pool lacks.
    """

    form: ClassVar[str] = "word vectors"

    def __init__(
        self, *, dimensions: int = 200, residual_idf: bool = False, seed: int = 0, pretrained: WordVectors | None = None
    ) -> None:
        self.dimensions = dimensions
        self.residual_idf = residual_idf
        self.seed = seed
        self._pretrained = pretrained

    def fit(self, texts: Sequence[str]) -> Self:
        """Fit to texts. Raises UserError if no word occurs five times, or too few have a pretrained vector."""
        return self.fit_words(
            PoolWords.of(texts, dimensions=self.dimensions, seed=self.seed, pretrained=self._pretrained)
        )

    def fit_words(self, pool: PoolWords) -> Self:
        """Fit to texts whose words have vectors."""
        self._segmenter, self.vectors = pool.segmenter, pool.vectors
        self._ids = {word: i for i, word in enumerate(pool.words)}
        self._weights = RARITY / (RARITY + pool.share)
        if self.residual_idf:
            self._weights = self._weights * residual_idf_shares(pool.counts()) ** POWER
        means = self._means(pool.documents[i] for i in pool.sample)
        self._centre = means.mean(axis=0)
        if self.residual_idf and len(pool.documents) >= MIN_TEXTS:
            first, second = (self._means(half) for half in zip(*map(split_halves, pool.documents), strict=True))
            self._axes, axes_name = cca_directions(first, second), "CCA axes"
        else:
            # The covariance has as many axes as there are dimensions, however few the texts.
            _, eigenvectors = np.linalg.eigh(np.cov(means - self._centre, rowvar=False).reshape(means.shape[1], -1))
            self._axes, axes_name = np.ascontiguousarray(eigenvectors[:, ::-1]), "principal axes"
        self.about = f"{self.width} {axes_name} of means of {pool.about}{CONCENTRATED if self.residual_idf else ''}"
        return self

    @property
    def width(self) -> int:
        """Number of dimensions D."""
        return len(self._centre)

    def transform(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Coordinates (N, D), the widest axis first; a text without known words is at the centre, 0."""
        if len(texts) == 0:
            return np.zeros((0, self.width))
        documents = [self._encode(text) for text in texts]
        has_words = np.array([len(ids) > 0 for ids in documents])[:, None]
        return ((self._means(documents) - self._centre) * has_words @ self._axes).astype(np.float64)

    def transform_counts(self, texts: NgramCounts) -> NDArray[np.float64]:
        """Coordinates (N, D) of counted texts, which are segmented again: words are not n-grams, nor are subwords."""
        return self.transform(texts.texts)

    def knows(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Mask (N,) of the texts with a known word, or subword of two characters or more."""
        least = 1 if self._segmenter.tokenizer is None else 2
        segments = [self._segmenter.segment(text) for text in texts]
        known = [any(w in self._ids and len(w.strip("▁")) >= least for w in words) for words in segments]
        return np.array(known, dtype=bool)

    def size_in_bytes(self) -> int:
        """Size of the vectors, the words and the axes."""
        words = sum(len(word.encode("utf-8", "surrogatepass")) for word in self._ids)
        return words + self.vectors.nbytes + self._weights.nbytes + self._axes.nbytes

    def state(self) -> State:
        """The words in the order of their vectors, the vectors (V, D) as float16, and the axes."""
        settings: dict[str, Any] = {"dimensions": self.dimensions, "even": self.residual_idf, "seed": self.seed}
        settings |= {"about": self.about, TEXT_FORM: self._segmenter.form}
        arrays = {
            "vectors": self.vectors.astype(np.float16),
            "weights": self._weights,
            "centre": self._centre,
            "axes": self._axes,
        }
        tokenizer = self._segmenter.tokenizer
        documents: dict[str, Any] = {"words": list(self._ids)}
        documents |= {"tokenizer": json.loads(tokenizer.to_json())} if tokenizer else {}
        return State(settings, arrays, documents)

    @classmethod
    def from_state(cls, state: State) -> Self:
        """The inverse of `state`. Raises ValueError for an inconsistent state."""
        dimensions, seed = state.setting("dimensions", int), state.setting("seed", int)
        features = cls(dimensions=dimensions, residual_idf=bool(state.settings.get("even", False)), seed=seed)
        features.about, words = state.setting("about", str), state.word_list("words")
        features._ids = {word: i for i, word in enumerate(words)}
        features.vectors = state.array("vectors", len(words), None)
        width = features.vectors.shape[1]
        features._weights = state.array("weights", len(words))
        features._centre, features._axes = state.array("centre", width), state.array("axes", width, width)
        tokenizer = state.documents.get("tokenizer")
        subwords = None if tokenizer is None else Tokenizer.from_json(json.dumps(tokenizer))
        features._segmenter = Segmenter(subwords, form_of(state))
        return features

    def _encode(self, text: str) -> NDArray[np.int32]:
        return encode(self._segmenter.segment(text), self._ids)

    def _means(self, documents: Iterable[NDArray[np.int32]]) -> NDArray[np.float64]:
        """Weighted means (N, D); zeros for a text without words."""
        return np.stack([self._weights[ids] @ self.vectors[ids] / max(1, len(ids)) for ids in documents])


def plain_and_residual_idf_words(
    texts: Sequence[str], *, seed: int = 0
) -> tuple[WordVectorFeatures, WordVectorFeatures]:
    """Both variants on the same word vectors: the plain one separates topics, the residual-IDF weighted one
    judgements.
    """
    words = PoolWords.of(texts, seed=seed)
    return WordVectorFeatures(seed=seed).fit_words(words), WordVectorFeatures(residual_idf=True, seed=seed).fit_words(
        words
    )
