"""Texts as coordinates: a latent semantic analysis of text without labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.decomposition import TruncatedSVD

from textgraft.linear.ngram_counts import NgramCounts
from textgraft.linear.ngrams import Ngrams
from textgraft.linear.split_half_cca import ENOUGH, agreement
from textgraft.linear.state import State

NGRAMS = 50_000
"""n-grams that an analysis is of, the most frequent ones."""


class FeatureMap(Protocol):
    """Texts as coordinates (N, D), the strongest dimension first, learned from text without labels."""

    form: ClassVar[str]
    about: str

    @property
    def width(self) -> int: ...

    def transform(self, texts: Sequence[str]) -> NDArray[np.float64]: ...

    def place(self, texts: NgramCounts) -> NDArray[np.float64]:
        """The same of texts that were counted before, those that the space was learned from or some of them."""
        ...

    def size_in_bytes(self) -> int: ...

    def state(self) -> State: ...


class LSAFeatures:
    """A latent semantic analysis: TF-IDF of the most frequent 1-2-grams, truncated SVD, turned to what halves agree on.

    `dimensions` is D, or fewer where the texts are few. Of ENOUGH texts the directions of the space are those along
    which a text's halves agree, the ones that agree most first and longest (linear.split_half_cca); of fewer they are
    the SVD's own. Fit it once to all the text there is, then hand it to as many `LsaBaseline` as you like. With `even`
    n-grams that crowd into few texts hardly count (linear.residual_idf).
    """

    form: ClassVar[str] = "lsa"

    def __init__(self, *, dimensions: int = 200, even: bool = False, seed: int = 0) -> None:
        self.dimensions = dimensions
        self.even = even
        self.seed = seed

    def fit(self, texts: Sequence[str]) -> Self:
        """Raises UserError where no text has a word."""
        return self.fit_counted(NgramCounts.of(texts, seed=self.seed))

    def fit_counted(self, texts: NgramCounts) -> Self:
        """The same of texts that were counted before."""
        texts = texts.narrowed(NGRAMS)
        self._ngrams = Ngrams(characters=False, max_features=len(texts.whole.words), even=self.even)
        rows = self._ngrams.weigh([texts.whole])
        rank = max(1, min(self.dimensions, rows.shape[1] - 1, rows.shape[0] - 1))
        components = TruncatedSVD(rank, n_iter=4, random_state=self.seed).fit(rows).components_
        self._components, self._centre = _by_ngram(components), np.zeros(rank)
        if rows.shape[0] >= ENOUGH:
            one, other = (self._ngrams.weighed(counts) @ components.T for counts in texts.halves)
            self._components = _by_ngram(agreement(one, other).T @ components)
            self._centre = np.asarray(rows.mean(axis=0)).ravel() @ self._components
        counted = f"even {self._ngrams.about}" if self.even else self._ngrams.about
        self.about = f"LSA of {rows.shape[0]:,} texts ({rank} dimensions of {counted})"
        return self

    @property
    def width(self) -> int:
        """D."""
        return self._components.shape[1]

    def transform(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Texts as coordinates (N, D), the strongest first; a text without known words lies at the centre, 0."""
        if len(texts) == 0:
            return np.zeros((0, self.width))
        return self._placed(self._ngrams.transform(texts))

    def place(self, texts: NgramCounts) -> NDArray[np.float64]:
        """The same of texts that were counted before."""
        return self._placed(self._ngrams.weighed(texts.whole.of_words(self._ngrams.words)))

    def _placed(self, rows: csr_matrix) -> NDArray[np.float64]:
        known = np.diff(rows.indptr) > 0
        return np.asarray((rows @ self._components - self._centre) * known[:, None]).astype(np.float64)

    def size_in_bytes(self) -> int:
        """Of the dimensions and the n-grams they weigh."""
        return int(self._components.nbytes) + self._ngrams.size_in_bytes()

    def state(self) -> State:
        """The n-grams and the components (D, V), these as float16, and the centre (D,)."""
        settings = {"dimensions": self.dimensions, "even": self.even, "seed": self.seed, "about": self.about}
        arrays = {"components": self._components.T.astype(np.float16), "centre": self._centre}
        return State(settings, arrays).having({"ngrams": self._ngrams.state()})

    @classmethod
    def from_state(cls, state: State) -> Self:
        """The inverse of `state`. Raises ValueError for what that cannot have given."""
        dimensions, seed = state.setting("dimensions", int), state.setting("seed", int)
        space = cls(dimensions=dimensions, even=bool(state.settings.get("even", False)), seed=seed)
        space.about = state.setting("about", str)
        space._ngrams = Ngrams.from_state(state.part("ngrams"))
        space._components = _by_ngram(state.array("components", None, space._ngrams.width))
        # Analyses of earlier versions have no centre.
        space._centre = state.array("centre", space.width) if "centre" in state.arrays else np.zeros(space.width)
        return space


def _by_ngram(components: NDArray) -> NDArray:
    """(V, D) of (D, V), in C order: else a product with one sparse row first copies all of it, 40 MB."""
    return np.ascontiguousarray(components.T)


def plain_and_residual_idf(texts: NgramCounts, *, seed: int = 0) -> tuple[LSAFeatures, LSAFeatures]:
    """Both analyses of the texts: topics stand out in the plain one, judgements in the even one."""
    return LSAFeatures(seed=seed).fit_counted(texts), LSAFeatures(even=True, seed=seed).fit_counted(texts)
