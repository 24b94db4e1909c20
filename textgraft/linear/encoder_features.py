"""The vectors of a pretrained encoder as a feature map: as they are, or rotated to the principal axes of a pool.

The encoder is a network or, in an exported classifier, its ONNX graph.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load as from_safetensors
from safetensors.numpy import save as to_safetensors

from textgraft.core.errors import UserError
from textgraft.core.lazy import resolve
from textgraft.linear.ngram_counts import NgramCounts
from textgraft.linear.state import State
from textgraft.models.encoder_graph import EncoderGraph
from textgraft.models.model_folder import RESTORE
from textgraft.text.visible import RAW, TEXT_FORM

WEIGHTS, CONFIG, TOKENIZER, GRAPH = "model.safetensors", "config.json", "tokenizer.json", "model.onnx"
NETWORK_FROM_FILES = "textgraft.models.artifact:from_files"
"""By name, because torch is not needed for a graph."""


class TextEncoder(Protocol):
    """A network (models.artifact.Artifact), or a graph of one (models.encoder_graph.EncoderGraph)."""

    run: dict[str, Any]

    def embed(self, texts: Sequence[str], *, max_tokens: int | None = None) -> NDArray[np.float32]:
        """Vectors (N, D) of N texts."""
        ...

    def knows(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Mask (N,) of the texts in which its vocabulary knows something."""
        ...

    def files(self) -> dict[str, bytes]: ...


class EncoderVectors:
    """Vectors of texts by a frozen encoder.

    Unlike the other feature maps this one needs the text itself, not its n-grams.

    Args:
        encoder: The pretrained model.
        embed: Function from texts to its vectors (N, D), such as one that remembers them; None: its own.
        max_tokens: Length in tokens that longer texts are cut to; None: the model's own.
    """

    form: ClassVar[str] = "encoder vectors"

    def __init__(
        self,
        encoder: TextEncoder,
        embed: Callable[[Sequence[str]], NDArray[np.float32]] | None = None,
        *,
        max_tokens: int | None = None,
    ) -> None:
        self.max_tokens = max_tokens
        self._take(encoder, embed)
        self.about = f"vectors of {encoder.run.get('name') or 'an encoder'}"

    def _take(self, encoder: Any, embed: Callable[[Sequence[str]], NDArray[np.float32]] | None) -> None:
        self.encoder = encoder
        self._embed = embed or partial(encoder.embed, max_tokens=self.max_tokens)

    def on(self, encoder: TextEncoder, embed: Callable[[Sequence[str]], NDArray[np.float32]] | None = None) -> Self:
        """The same on another encoder of the same vectors, or with another function for them."""
        other = copy(self)
        other._take(encoder, embed)
        return other

    @property
    def width(self) -> int:
        """Number of dimensions D."""
        return int(self._embed([]).shape[1])

    def transform(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Vectors (N, D)."""
        return np.asarray(self._embed(texts), dtype=np.float64)

    def transform_counts(self, texts: NgramCounts) -> NDArray[np.float64]:
        """Vectors (N, D) of texts whose n-grams are counted."""
        return self.transform(texts.texts)

    def knows(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Mask (N,) of the texts in which the encoder's vocabulary knows something."""
        return self.encoder.knows(texts)

    def size_in_bytes(self) -> int:
        """Size of the encoder's weights, or of its graph."""
        if isinstance(self.encoder, EncoderGraph):
            return len(self.encoder.graph)
        return sum(value.numel() * value.element_size() for value in self.encoder.model.values().values())

    def state(self) -> State:
        """The encoder's weights or graph, config and tokenizer."""
        if isinstance(self.encoder, EncoderGraph):
            state = State(
                {"graph": self.encoder.settings(), "run": self.encoder.run}, {}, {}, {GRAPH: self.encoder.graph}
            )
            tokenizer: Any = self.encoder.tokenizer.to_json()
        else:
            files = self.encoder.files()
            config = json.loads(files[CONFIG])
            description = {key: value for key, value in config.items() if key not in ("files", "format", "sha256")}
            arrays = {f"encoder.{name}": value for name, value in from_safetensors(files[WEIGHTS]).items()}
            state = State({"encoder": description, "run": self.encoder.run}, arrays)
            tokenizer = files[TOKENIZER]
        settings: dict[str, Any] = {**state.settings, "about": self.about, "max_tokens": self.max_tokens}
        return State(settings, state.arrays, {"tokenizer": json.loads(tokenizer)}, state.files)

    @classmethod
    def from_state(cls, state: State) -> Self:
        """The inverse of `state`. Raises ValueError for an inconsistent state."""
        try:
            features = cls(_encoder(state), max_tokens=state.settings.get("max_tokens"))
        except UserError as error:
            raise UserError(error.message, where=error.where, remedy=error.remedy or RESTORE) from error
        features.about = state.setting("about", str)
        return features


def _encoder(state: State) -> Any:
    """The encoder of a state. Raises UserError or ValueError for an inconsistent one."""
    run, tokenizer = state.setting("run", dict), json.dumps(state.documents.get("tokenizer"))
    if "graph" in state.settings:
        return EncoderGraph.from_settings(state.files[GRAPH], tokenizer, state.setting("graph", dict), run)
    prefix = "encoder."
    weights = {name.removeprefix(prefix): a for name, a in state.arrays.items() if name.startswith(prefix)}
    files = {WEIGHTS: to_safetensors(weights), TOKENIZER: tokenizer.encode(), "run.json": json.dumps(run).encode()}
    # Classifiers of earlier versions were fitted to vectors of raw texts.
    config = {TEXT_FORM: RAW, **state.setting("encoder", dict), "files": dict.fromkeys(files, "")}
    return resolve(NETWORK_FROM_FILES)(files, config)


class EncoderFeatures(EncoderVectors):
    """Vectors of texts by a frozen encoder, centred and rotated so that the direction of most variance is first.

    The rotation keeps all distances; a classifier that is given the first dimensions only (linear.linear_layer) has
    the principal components. Arguments as those of EncoderVectors.
    """

    form: ClassVar[str] = "encoder"

    def fit(self, texts: Sequence[str]) -> Self:
        """Fit the rotation to unlabelled texts."""
        vectors = self._embed(texts)
        self._centre = vectors.mean(axis=0, dtype=np.float64)
        centred = vectors - self._centre
        variances, axes = np.linalg.eigh(centred.T @ centred)
        self._axes = np.ascontiguousarray(axes[:, np.argsort(-variances, kind="stable")])
        name = self.encoder.run.get("name") or self.encoder.model.family
        self.about = f"vectors of {name} ({self.width} dimensions)"
        return self

    @property
    def width(self) -> int:
        """Number of dimensions D."""
        return len(self._centre)

    def transform(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Coordinates (N, D), the direction of most variance first."""
        if len(texts) == 0:
            return np.zeros((0, self.width))
        return np.asarray((self._embed(texts) - self._centre) @ self._axes)

    def size_in_bytes(self) -> int:
        """Size of the encoder's weights and the rotation."""
        return super().size_in_bytes() + int(self._axes.nbytes + self._centre.nbytes)

    def state(self) -> State:
        """The encoder's weights or graph, config and tokenizer, and the rotation."""
        state = super().state()
        arrays = state.arrays | {"centre": self._centre, "axes": self._axes}
        return State(state.settings, arrays, state.documents, state.files)

    @classmethod
    def from_state(cls, state: State) -> Self:
        """The inverse of `state`. Raises ValueError for an inconsistent state."""
        features = super().from_state(state)
        features._centre = state.array("centre", None)
        features._axes = state.array("axes", features.width, features.width)
        return features
