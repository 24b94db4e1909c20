"""Fitted linear models as arrays and word lists, without code, so that they can be saved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from textgraft.linear.encoder_features import EncoderFeatures, EncoderVectors
from textgraft.linear.linear_layer import Output
from textgraft.linear.lsa import FeatureMap, LSAFeatures
from textgraft.linear.ngrams import Ngrams
from textgraft.linear.pair_ngrams import PairNgrams
from textgraft.linear.paragraph_features import ParagraphFeatures
from textgraft.linear.state import State
from textgraft.linear.word_vector_features import WordVectorFeatures

FEATURE_MAPS: dict[str, Any] = {
    features.form: features
    for features in (LSAFeatures, WordVectorFeatures, ParagraphFeatures, EncoderVectors, EncoderFeatures)
}
"""Feature maps of saved classifiers by their `form`."""


class FittedModel(Protocol):
    """A fitted classifier or regressor of raw texts that consists of arrays and word lists and can be saved.

    `state` and `from_state` are inverses (linear.state).

    Attributes:
        form: Name of the class in an artifact.
        about: One sentence that describes the fitted model.
        width: Number of outputs C.
    """

    form: ClassVar[str]

    @property
    def about(self) -> str: ...

    @property
    def width(self) -> int: ...

    def outputs(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Probabilities (N, C), or standardised values (N,) for a numeric target."""
        ...

    def vectors(self, texts: Sequence[str]) -> NDArray[np.float64] | None:
        """Coordinates (N, D) of the texts; None without a dense feature map."""
        ...

    def knows(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Mask (N,) of the texts in which something is known."""
        ...

    def size_in_bytes(self) -> int: ...

    def state(self) -> State: ...

    def with_encoders(self, change: EncoderChange) -> Self:
        """The same with `change` of each feature map that is an encoder's vectors."""
        ...

    @classmethod
    def from_state(cls, state: State) -> Self: ...


EncoderChange = Callable[[EncoderVectors], EncoderVectors]


@dataclass(frozen=True)
class NgramModel:
    """The fitted model of a LinearBaseline: n-gram features and an output layer."""

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

    def with_encoders(self, change: EncoderChange) -> Self:
        """The same model: n-grams have no encoder."""
        return self

    def vectors(self, texts: Sequence[str]) -> None:
        """None: the sparse rows have a column per n-gram."""
        return None

    def knows(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        return self.ngrams.knows(texts)

    def size_in_bytes(self) -> int:
        return self.output.size_in_bytes() + self.ngrams.size_in_bytes()

    def state(self) -> State:
        return State().with_parts({"ngrams": self.ngrams.state(), "output": self.output.state()})

    @classmethod
    def from_state(cls, state: State) -> Self:
        part = state.part("ngrams")
        ngrams = PairNgrams.from_state(part) if part.settings.get("pairs") is True else Ngrams.from_state(part)
        return cls(ngrams, Output.from_state(state.part("output"), features=ngrams.width))


@dataclass(frozen=True)
class FeatureMapModel:
    """The fitted model of an LsaBaseline: a feature map and an output layer."""

    form: ClassVar[str] = "space"
    feature_map: FeatureMap
    output: Output

    @property
    def about(self) -> str:
        return f"{self.feature_map.about} -> {self.output.about}"

    @property
    def width(self) -> int:
        return self.output.width

    def outputs(self, texts: Sequence[str]) -> NDArray[np.float64]:
        return self.output.predict(self.feature_map.transform(texts))

    def with_encoders(self, change: EncoderChange) -> Self:
        feature_map = self.feature_map
        return replace(self, feature_map=change(feature_map)) if isinstance(feature_map, EncoderVectors) else self

    def vectors(self, texts: Sequence[str]) -> NDArray[np.float64]:
        return self.feature_map.transform(texts)

    def knows(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        return self.feature_map.knows(texts)

    def size_in_bytes(self) -> int:
        return self.output.size_in_bytes() + self.feature_map.size_in_bytes()

    def state(self) -> State:
        return State({"form": self.feature_map.form}).with_parts(
            {"space": self.feature_map.state(), "output": self.output.state()}
        )

    @classmethod
    def from_state(cls, state: State) -> Self:
        feature_map = feature_map_from_state(state.setting("form", str), state.part("space"))
        return cls(feature_map, Output.from_state(state.part("output"), features=feature_map.width))


def feature_map_from_state(form: str, state: State) -> FeatureMap:
    """The feature map with this state. Raises ValueError for an unknown form and for an inconsistent state."""
    if form not in FEATURE_MAPS:
        raise ValueError(f"unknown feature map '{form}'")
    feature_map: FeatureMap = FEATURE_MAPS[form].from_state(state)
    return feature_map
