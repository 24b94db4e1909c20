"""What a linear classifier has learned, as something that answers and that can be saved: arrays and words, no code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from textgraft.linear.linear_layer import Output
from textgraft.linear.lsa import FeatureMap, LSAFeatures
from textgraft.linear.ngrams import Ngrams
from textgraft.linear.pair_ngrams import PairNgrams
from textgraft.linear.paragraph_features import ParagraphFeatures
from textgraft.linear.state import State
from textgraft.linear.word_vector_features import WordVectorFeatures

SPACES: dict[str, type[LSAFeatures] | type[WordVectorFeatures] | type[ParagraphFeatures]] = {
    space.form: space for space in (LSAFeatures, WordVectorFeatures, ParagraphFeatures)
}
"""What a saved classifier may look at texts in, by the name that its config has."""


class Fitted(Protocol):
    """A fitted classifier or regressor of raw texts, made of arrays and words alone, so that it can be saved.

    `outputs` gives (N, C) probabilities, or (N,) standardised values for a numeric target; `vectors` (N, D) coordinates
    of the texts, None where it knows none. `state` and `from_state` are inverses (linear.state); `form` names the class
    in an artifact, and `about` says in a sentence what was fitted.
    """

    form: ClassVar[str]

    @property
    def about(self) -> str: ...

    @property
    def width(self) -> int: ...

    def outputs(self, texts: Sequence[str]) -> NDArray[np.float64]: ...

    def vectors(self, texts: Sequence[str]) -> NDArray[np.float64] | None: ...

    def size_in_bytes(self) -> int: ...

    def state(self) -> State: ...

    @classmethod
    def from_state(cls, state: State) -> Self: ...


@dataclass(frozen=True)
class NgramModel:
    """What a LinearBaseline has learned."""

    form: ClassVar[str] = "n-grams"
    ngrams: Ngrams | PairNgrams
    output: Output

    @property
    def about(self) -> str:
        return f"TF-IDF of {self.ngrams.about} -> {self.output.about}"

    @property
    def width(self) -> int:
        return self.output.width

    def outputs(self, texts: Sequence[str]) -> NDArray[np.float64]:
        return self.output.predict(self.ngrams.transform(texts))

    def vectors(self, texts: Sequence[str]) -> None:
        """None: its rows have a column for each n-gram."""
        return None

    def size_in_bytes(self) -> int:
        return self.output.size_in_bytes() + self.ngrams.size_in_bytes()

    def state(self) -> State:
        return State().having({"ngrams": self.ngrams.state(), "output": self.output.state()})

    @classmethod
    def from_state(cls, state: State) -> Self:
        part = state.part("ngrams")
        ngrams = PairNgrams.from_state(part) if part.settings.get("pairs") is True else Ngrams.from_state(part)
        return cls(ngrams, Output.from_state(state.part("output"), features=ngrams.width))


@dataclass(frozen=True)
class FeatureMapModel:
    """What an LsaBaseline has learned."""

    form: ClassVar[str] = "space"
    space: FeatureMap
    output: Output

    @property
    def about(self) -> str:
        return f"{self.space.about} -> {self.output.about}"

    @property
    def width(self) -> int:
        return self.output.width

    def outputs(self, texts: Sequence[str]) -> NDArray[np.float64]:
        return self.output.predict(self.space.transform(texts))

    def vectors(self, texts: Sequence[str]) -> NDArray[np.float64]:
        return self.space.transform(texts)

    def size_in_bytes(self) -> int:
        return self.output.size_in_bytes() + self.space.size_in_bytes()

    def state(self) -> State:
        return State({"form": self.space.form}).having({"space": self.space.state(), "output": self.output.state()})

    @classmethod
    def from_state(cls, state: State) -> Self:
        space = feature_map_from_state(state.setting("form", str), state.part("space"))
        return cls(space, Output.from_state(state.part("output"), features=space.width))


def feature_map_from_state(form: str, state: State) -> FeatureMap:
    """The space whose `state` this is. Raises ValueError for an unknown form and for what does not fit together."""
    if form not in SPACES:
        raise ValueError(f"no space is of form '{form}'")
    return SPACES[form].from_state(state)
