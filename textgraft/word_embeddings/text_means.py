"""Text vectors as means of word vectors, for use in place of a text embedding model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textgraft.core.errors import UserError
from textgraft.nn.layer_aggregation import LAST
from textgraft.text.visible import visible
from textgraft.word_embeddings import folder
from textgraft.word_embeddings.corpus import words_of
from textgraft.word_embeddings.word_vectors import WordVectors

POOLINGS = ("mean", "max")


class MeanOfWords:
    """An artifact.Predictor without labels that embeds texts; zeros for a text without a known word."""

    has_vectors = True
    head_name = "vectors"
    labels = None

    def __init__(self, vectors: WordVectors, path: Path) -> None:
        self.vectors, self._path = vectors, path
        self.run: dict[str, Any] = vectors.run

    @classmethod
    def from_folder(cls, path: Path, config: Mapping[str, Any]) -> MeanOfWords:
        """Load from a folder of word vectors with this config.json. Raises UserError as folder.from_folder does."""
        return cls(folder.from_folder(path, config), path)

    def outputs(self, texts: Sequence[str], precision: str = "auto") -> NDArray[np.float64]:
        raise AssertionError("word vectors have no outputs")

    def knows(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Mask (N,) of the texts with a word that has a vector."""
        return np.asarray(self.embed(texts).any(axis=1))

    def embed(
        self,
        texts: Sequence[str],
        *,
        pooling: str | None = None,
        max_tokens: int | None = None,
        layers: str = LAST,
        prompt: str | None = None,
    ) -> NDArray[np.float32]:
        """Means or maxima (N, D) of the vectors of a text's known words; texts are not truncated, and `layers` and
        `prompt` are ignored.

        Raises:
            UserError: The pooling needs more than a bag of words.
        """
        pooling = pooling or "mean"
        if pooling not in POOLINGS:
            message = f"pooling '{pooling}' is not defined for word vectors, which have no order."
            raise UserError(message, remedy="Use mean or max.")
        embeddings = np.zeros((len(texts), self.vectors.dimensions), dtype=np.float32)
        for row, text in enumerate(texts):
            words = self.vectors.vectors(words_of(visible(text), lowercase=self.vectors.lowercase))
            known_vectors = words[words.any(axis=1)]
            if len(known_vectors):
                embeddings[row] = known_vectors.mean(axis=0) if pooling == "mean" else known_vectors.max(axis=0)
        return embeddings

    def files(self, *, half: bool = False) -> dict[str, bytes]:
        """The files of the folder."""
        return folder.files(self._path)
