"""Feature map of a pretrained encoder: the vectors of a frozen network, rotated to the principal axes of a pool."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load as from_safetensors
from safetensors.numpy import save as to_safetensors

from textgraft.core.errors import UserError
from textgraft.linear.ngram_counts import NgramCounts
from textgraft.linear.state import State
from textgraft.models.artifact import Artifact, from_files
from textgraft.models.model_folder import RESTORE
from textgraft.text.visible import RAW, TEXT_FORM

WEIGHTS, CONFIG, TOKENIZER = "model.safetensors", "config.json", "tokenizer.json"


class EncoderFeatures:
    """Vectors of texts by a frozen encoder, centred and rotated so that the direction of most variance is first.

    The rotation keeps all distances; a classifier that is given the first dimensions only (linear.linear_layer) has
    the principal components. Unlike the other feature maps this one needs the text itself, not its n-grams.

    Args:
        encoder: The pretrained model.
        embed: Function from texts to its vectors (N, D), such as one that remembers them; None: its own.
        max_tokens: Length in tokens that longer texts are cut to; None: the model's own.
    """

    form: ClassVar[str] = "encoder"

    def __init__(
        self,
        encoder: Artifact,
        embed: Callable[[Sequence[str]], NDArray[np.float32]] | None = None,
        *,
        max_tokens: int | None = None,
    ) -> None:
        self.encoder, self.max_tokens = encoder, max_tokens
        self._embed = embed or partial(encoder.embed, max_tokens=max_tokens)

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

    def with_embedding(self, embed: Callable[[Sequence[str]], NDArray[np.float32]]) -> EncoderFeatures:
        """The same with another function for the encoder's vectors."""
        other = copy(self)
        other._embed = embed
        return other

    @property
    def width(self) -> int:
        """Number of dimensions D."""
        return len(self._centre)

    def transform(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Coordinates (N, D), the direction of most variance first."""
        if len(texts) == 0:
            return np.zeros((0, self.width))
        return np.asarray((self._embed(texts) - self._centre) @ self._axes)

    def transform_counts(self, texts: NgramCounts) -> NDArray[np.float64]:
        """Coordinates (N, D) of texts whose n-grams are counted."""
        return self.transform(texts.texts)

    def knows(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Mask (N,) of the texts in which the encoder's vocabulary knows something."""
        return self.encoder.knows(texts)

    def size_in_bytes(self) -> int:
        """Size of the encoder's weights and the rotation."""
        weights = sum(value.numel() * value.element_size() for value in self.encoder.model.values().values())
        return int(weights + self._axes.nbytes + self._centre.nbytes)

    def state(self) -> State:
        """The encoder's weights, config and tokenizer, and the rotation."""
        files = self.encoder.files()
        config = json.loads(files[CONFIG])
        arrays = {f"encoder.{name}": value for name, value in from_safetensors(files[WEIGHTS]).items()}
        arrays |= {"centre": self._centre, "axes": self._axes}
        description = {key: value for key, value in config.items() if key not in ("files", "format", "sha256")}
        settings = {"about": self.about, "encoder": description, "run": self.encoder.run, "max_tokens": self.max_tokens}
        return State(settings, arrays, {"tokenizer": json.loads(files[TOKENIZER])})

    @classmethod
    def from_state(cls, state: State) -> Self:
        """The inverse of `state`. Raises ValueError for an inconsistent state."""
        prefix = "encoder."
        weights = {name.removeprefix(prefix): a for name, a in state.arrays.items() if name.startswith(prefix)}
        files = {
            WEIGHTS: to_safetensors(weights),
            TOKENIZER: json.dumps(state.documents.get("tokenizer")).encode(),
            "run.json": json.dumps(state.setting("run", dict)).encode(),
        }
        # Classifiers of earlier versions were fitted to vectors of raw texts.
        config = {TEXT_FORM: RAW, **state.setting("encoder", dict), "files": dict.fromkeys(files, "")}
        try:
            features = cls(from_files(files, config), max_tokens=state.settings.get("max_tokens"))
        except UserError as error:
            raise UserError(error.message, where=error.where, remedy=error.remedy or RESTORE) from error
        features.about = state.setting("about", str)
        features._centre = state.array("centre", None)
        features._axes = state.array("axes", features.width, features.width)
        return features
