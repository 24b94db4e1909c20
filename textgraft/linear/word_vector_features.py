"""Texts as means of word vectors, which are learned from unlabelled text by counting: minutes, not hours."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from textgraft.linear.ngram_counts import NgramCounts
from textgraft.linear.pool_words import Cutter, PoolWords, encode
from textgraft.linear.residual_idf import POWER, residual_idf_shares
from textgraft.linear.split_half_cca import ENOUGH, agreement, halves
from textgraft.linear.state import State
from textgraft.text.tokenizer import Tokenizer
from textgraft.word_embeddings.word_vectors import WordVectors

RARITY = 1e-3
"""a in the weight a / (a + p) of a word in a text."""


class WordVectorFeatures:
    """A vector a text: the mean of its words' vectors (pool_words), the rare words heavier, on the pool's own axes.

    A text weighs each by a / (a + p) (Arora, Liang & Ma 2017); we keep the first principal component, which that paper
    removes. Words are those of the linear baseline; where spaces do not part them, subwords learned from the pool stand
    in for them. The axes are principal ones. With `even` words that crowd into few texts hardly weigh (residual-IDF
    weighting.py), and of ENOUGH texts the axes are those along which a text's halves agree (halves.py).

    `given` are word vectors from elsewhere, to be used in place of counted ones; the pool still weighs words and sets
    axes. Their words are kept whether or not the pool has them (p is 0 then), for it may be small.
    """

    form: ClassVar[str] = "word vectors"

    def __init__(
        self, *, dimensions: int = 200, even: bool = False, seed: int = 0, given: WordVectors | None = None
    ) -> None:
        self.dimensions = dimensions
        self.even = even
        self.seed = seed
        self._given = given

    def fit(self, texts: Sequence[str]) -> Self:
        """Raises UserError where no word is seen five times, or hardly any has a given vector."""
        return self.fit_words(PoolWords.of(texts, dimensions=self.dimensions, seed=self.seed, given=self._given))

    def fit_words(self, pool: PoolWords) -> Self:
        """The same of texts whose words have vectors already."""
        self._cutter, self.vectors = pool.cutter, pool.vectors
        self._ids = {word: i for i, word in enumerate(pool.words)}
        self._weights = RARITY / (RARITY + pool.share)
        if self.even:
            self._weights = self._weights * residual_idf_shares(pool.counts()) ** POWER
        means = self._means(pool.documents[i] for i in pool.sample)
        self._centre = means.mean(axis=0)
        if self.even and len(pool.documents) >= ENOUGH:
            one, other = (self._means(side) for side in zip(*map(halves, pool.documents), strict=True))
            self._axes, axes = agreement(one, other), "axes on which halves agree"
        else:
            # Of the covariance, which has as many axes as there are dimensions, however few the texts.
            _, found = np.linalg.eigh(np.cov(means - self._centre, rowvar=False).reshape(means.shape[1], -1))
            self._axes, axes = np.ascontiguousarray(found[:, ::-1]), "principal axes"
        self.about = f"{self.width} {axes} of means of {'even ' if self.even else ''}{pool.about}"
        return self

    @property
    def width(self) -> int:
        """D."""
        return len(self._centre)

    def transform(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Texts as coordinates (N, D), the widest axis first; a text without known words lies at the centre."""
        if len(texts) == 0:
            return np.zeros((0, self.width))
        documents = [self._encode(text) for text in texts]
        known = np.array([len(ids) > 0 for ids in documents])[:, None]
        return ((self._means(documents) - self._centre) * known @ self._axes).astype(np.float64)

    def place(self, texts: NgramCounts) -> NDArray[np.float64]:
        """The same of texts that were counted before, which are read again: words are not n-grams, nor are subwords."""
        return self.transform(texts.texts)

    def size_in_bytes(self) -> int:
        """Of the vectors, the words and the axes."""
        words = sum(len(word.encode("utf-8", "surrogatepass")) for word in self._ids)
        return words + self.vectors.nbytes + self._weights.nbytes + self._axes.nbytes

    def state(self) -> State:
        """The words in the order of their vectors, the vectors (V, D) as float16, and the axes."""
        settings = {"dimensions": self.dimensions, "even": self.even, "seed": self.seed, "about": self.about}
        arrays = {
            "vectors": self.vectors.astype(np.float16),
            "weights": self._weights,
            "centre": self._centre,
            "axes": self._axes,
        }
        tokenizer = self._cutter.tokenizer
        documents: dict[str, Any] = {"words": list(self._ids)}
        documents |= {"tokenizer": json.loads(tokenizer.to_json())} if tokenizer else {}
        return State(settings, arrays, documents)

    @classmethod
    def from_state(cls, state: State) -> Self:
        """The inverse of `state`. Raises ValueError for what that cannot have given."""
        dimensions, seed = state.setting("dimensions", int), state.setting("seed", int)
        space = cls(dimensions=dimensions, even=bool(state.settings.get("even", False)), seed=seed)
        space.about, words = state.setting("about", str), state.words("words")
        space._ids = {word: i for i, word in enumerate(words)}
        space.vectors = state.array("vectors", len(words), None)
        width = space.vectors.shape[1]
        space._weights = state.array("weights", len(words))
        space._centre, space._axes = state.array("centre", width), state.array("axes", width, width)
        tokenizer = state.documents.get("tokenizer")
        space._cutter = Cutter(None if tokenizer is None else Tokenizer.from_json(json.dumps(tokenizer)))
        return space

    def _encode(self, text: str) -> NDArray[np.int32]:
        return encode(self._cutter.cut(text), self._ids)

    def _means(self, documents: Iterable[NDArray[np.int32]]) -> NDArray[np.float64]:
        """(N, D), zeros for a text without words."""
        return np.stack([self._weights[ids] @ self.vectors[ids] / max(1, len(ids)) for ids in documents])


def plain_and_residual_idf_words(
    texts: Sequence[str], *, seed: int = 0
) -> tuple[WordVectorFeatures, WordVectorFeatures]:
    """Both spaces of the texts on the same word vectors: topics stand out in the plain one, judgements in the even."""
    words = PoolWords.of(texts, seed=seed)
    return WordVectorFeatures(seed=seed).fit_words(words), WordVectorFeatures(even=True, seed=seed).fit_words(words)
