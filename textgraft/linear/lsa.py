"""Latent semantic analysis of unlabelled text, and the protocol of feature maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.decomposition import TruncatedSVD

from textgraft.core.errors import UserError
from textgraft.linear.ngram_counts import NgramCounts
from textgraft.linear.ngrams import Ngrams
from textgraft.linear.residual_idf import CONCENTRATED
from textgraft.linear.split_half_cca import MIN_TEXTS, cca_directions
from textgraft.linear.state import State

MAX_NGRAMS = 50_000
"""n-grams of an analysis, the most frequent ones."""


class FeatureMap(Protocol):
    """A transform from texts to coordinates, learned from unlabelled text.

    Attributes:
        form: Name of the class in saved models.
        about: One sentence that describes the fitted transform.
    """

    form: ClassVar[str]
    about: str

    @property
    def width(self) -> int:
        """Number of dimensions D."""
        ...

    def transform(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Coordinates (N, D) of N texts, the strongest dimension first."""
        ...

    def transform_counts(self, texts: NgramCounts) -> NDArray[np.float64]:
        """Coordinates (N, D) of texts whose n-grams are counted: those that the map was fitted to, or a sample
        of them.
        """
        ...

    def knows(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Mask (N,) of the texts in which something is known."""
        ...

    def size_in_bytes(self) -> int: ...

    def state(self) -> State: ...


class LSAFeatures:
    """Latent semantic analysis: TF-IDF of the most frequent 1-2-grams, truncated SVD, rotated by split-half CCA.

    With MIN_TEXTS texts or more the directions are those of highest correlation between a text's halves, strongest
    first (linear.split_half_cca); with fewer they are the SVD's own. Fit it once to all available text, then pass it to
    any number of `LsaBaseline`.

    Args:
        dimensions: D; fewer where there are fewer texts.
        residual_idf: Reduce the weight of n-grams that are concentrated in few texts (linear.residual_idf).
        seed: Seeds the SVD and the sample of texts.
    """

    form: ClassVar[str] = "lsa"

    def __init__(self, *, dimensions: int = 200, residual_idf: bool = False, seed: int = 0) -> None:
        self.dimensions = dimensions
        self.residual_idf = residual_idf
        self.seed = seed

    def fit(self, texts: Sequence[str]) -> Self:
        """Fit to unlabelled texts. Raises UserError if no text contains a word."""
        return self.fit_counted(NgramCounts.of(texts, seed=self.seed))

    def fit_counted(self, texts: NgramCounts) -> Self:
        """Fit to texts whose n-grams are counted."""
        texts = texts.most_frequent(MAX_NGRAMS)
        self._ngrams = Ngrams(characters=False, max_features=len(texts.whole.words), residual_idf=self.residual_idf)
        rows = self._ngrams.fit_transform_counts([texts.whole])
        if rows.shape[1] < 2:
            message = f"the {rows.shape[0]:,} texts have no two n-grams that differ, which LSA needs."
            raise UserError(message, remedy="Give more texts.")
        rank = max(1, min(self.dimensions, rows.shape[1] - 1, rows.shape[0] - 1))
        components = TruncatedSVD(rank, n_iter=4, random_state=self.seed).fit(rows).components_
        self._components, self._centre = _by_ngram(components), np.zeros(rank)
        if rows.shape[0] >= MIN_TEXTS:
            first, second = (self._ngrams.transform_counts(counts) @ components.T for counts in texts.halves)
            self._components = _by_ngram(cca_directions(first, second).T @ components)
            self._centre = np.asarray(rows.mean(axis=0)).ravel() @ self._components
        description = f"{self._ngrams.about}{CONCENTRATED}" if self.residual_idf else self._ngrams.about
        self.about = f"LSA of {rows.shape[0]:,} texts ({rank} dimensions of {description})"
        return self

    @property
    def width(self) -> int:
        """Number of dimensions D."""
        return self._components.shape[1]

    def transform(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Coordinates (N, D), the strongest dimension first; a text without known n-grams is at the centre, 0."""
        if len(texts) == 0:
            return np.zeros((0, self.width))
        return self._project(self._ngrams.transform(texts))

    def transform_counts(self, texts: NgramCounts) -> NDArray[np.float64]:
        """Coordinates (N, D) of texts whose n-grams are counted."""
        return self._project(self._ngrams.transform_counts(texts.whole.columns(self._ngrams.words)))

    def _project(self, rows: csr_matrix) -> NDArray[np.float64]:
        has_ngrams = np.diff(rows.indptr) > 0
        return np.asarray((rows @ self._components - self._centre) * has_ngrams[:, None]).astype(np.float64)

    def knows(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Mask (N,) of the texts with known n-grams."""
        return self._ngrams.knows(texts)

    def size_in_bytes(self) -> int:
        """Size of the components and of the n-grams."""
        return int(self._components.nbytes) + self._ngrams.size_in_bytes()

    def state(self) -> State:
        """The n-grams, the components (D, V) as float16, and the centre (D,)."""
        settings = {"dimensions": self.dimensions, "even": self.residual_idf, "seed": self.seed, "about": self.about}
        arrays = {"components": self._components.T.astype(np.float16), "centre": self._centre}
        return State(settings, arrays).with_parts({"ngrams": self._ngrams.state()})

    @classmethod
    def from_state(cls, state: State) -> Self:
        """The inverse of `state`. Raises ValueError for an inconsistent state."""
        dimensions, seed = state.setting("dimensions", int), state.setting("seed", int)
        features = cls(dimensions=dimensions, residual_idf=bool(state.settings.get("even", False)), seed=seed)
        features.about = state.setting("about", str)
        features._ngrams = Ngrams.from_state(state.part("ngrams"))
        features._components = _by_ngram(state.array("components", None, features._ngrams.width))
        # Analyses of earlier versions have no centre.
        features._centre = (
            state.array("centre", features.width) if "centre" in state.arrays else np.zeros(features.width)
        )
        return features


def _by_ngram(components: NDArray) -> NDArray:
    """Components (D, V) transposed to (V, D) in C order: a product with one sparse row would first copy all of them, 40
    MB.
    """
    return np.ascontiguousarray(components.T)


def plain_and_residual_idf(texts: NgramCounts, *, seed: int = 0) -> tuple[LSAFeatures, LSAFeatures]:
    """Both LSA variants of the same texts: the plain one separates topics, the residual-IDF weighted one judgements."""
    return LSAFeatures(seed=seed).fit_counted(texts), LSAFeatures(residual_idf=True, seed=seed).fit_counted(texts)
