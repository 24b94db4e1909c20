"""Texts as coordinates: a latent semantic analysis of text without labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import TruncatedSVD

from textgraft.linear.ngrams import Ngrams
from textgraft.linear.state import State

POOL_AT_MOST = 100_000
"""Texts that a latent space is fitted to; a random sample of a larger pool."""


class Space(Protocol):
    """Texts as coordinates (N, D), the strongest dimension first, learned from text without labels."""

    form: ClassVar[str]
    about: str

    @property
    def width(self) -> int: ...

    def transform(self, texts: Sequence[str]) -> NDArray[np.float64]: ...

    def size_in_bytes(self) -> int: ...

    def state(self) -> State: ...


class LatentSpace:
    """A latent semantic analysis: TF-IDF of the most frequent 1-2-grams, truncated SVD.

    `dimensions` is D, or fewer where the texts are few. Fit it once to all the text there is, then hand it to
    as many `LsaBaseline` as you like. With `even` n-grams that crowd into few texts hardly count (linear.evenness).
    """

    form: ClassVar[str] = "lsa"

    def __init__(self, *, dimensions: int = 200, max_features: int = 50_000, even: bool = False, seed: int = 0) -> None:
        self.dimensions = dimensions
        self.max_features = max_features
        self.even = even
        self.seed = seed

    def fit(self, texts: Sequence[str]) -> Self:
        if len(texts) > POOL_AT_MOST:
            chosen = np.random.default_rng(self.seed).choice(len(texts), POOL_AT_MOST, replace=False)
            texts = [texts[i] for i in np.sort(chosen)]
        self._ngrams = Ngrams(characters=False, max_features=self.max_features, min_df=5, even=self.even)
        features = self._ngrams.fit_transform(texts)
        rank = max(1, min(self.dimensions, features.shape[1] - 1, len(texts) - 1))
        self._components = TruncatedSVD(rank, n_iter=4, random_state=self.seed).fit(features).components_
        counted = f"even {self._ngrams.about}" if self.even else self._ngrams.about
        self.about = f"LSA of {len(texts):,} texts ({rank} dimensions of {counted})"
        return self

    @property
    def width(self) -> int:
        """D."""
        return len(self._components)

    def transform(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Texts as coordinates (N, D), the strongest dimension first; a text without known words is all zeros."""
        if len(texts) == 0:
            return np.zeros((0, self.width))
        return np.asarray(self._ngrams.transform(texts) @ self._components.T).astype(np.float64)

    def size_in_bytes(self) -> int:
        """Of the dimensions and the n-grams they weigh."""
        return int(self._components.nbytes) + self._ngrams.size_in_bytes()

    def state(self) -> State:
        """The n-grams and the components (D, V), these as float16."""
        settings = {"dimensions": self.dimensions, "max_features": self.max_features, "seed": self.seed}
        settings |= {"even": self.even}
        arrays = {"components": self._components.astype(np.float16)}
        return State(settings | {"about": self.about}, arrays).having({"ngrams": self._ngrams.state()})

    @classmethod
    def from_state(cls, state: State) -> Self:
        """The inverse of `state`. Raises ValueError for what that cannot have given."""
        numbers: dict[str, Any] = {name: state.setting(name, int) for name in ("dimensions", "max_features", "seed")}
        space = cls(**numbers, even=bool(state.settings.get("even", False)))
        space.about = state.setting("about", str)
        space._ngrams = Ngrams.from_state(state.part("ngrams"))
        space._components = state.array("components", None, space._ngrams.width)
        return space


def plain_and_even(texts: Sequence[str], *, seed: int = 0) -> tuple[LatentSpace, LatentSpace]:
    """Both analyses of the texts: topics stand out in the plain one, judgements in the even one."""
    return LatentSpace(seed=seed).fit(texts), LatentSpace(even=True, seed=seed).fit(texts)
