"""A text's vector as the mean of its words' vectors: word vectors where a model that embeds texts is wanted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textgraft.core.errors import UserError
from textgraft.nn.layer_aggregation import LAST
from textgraft.word_embeddings import folder
from textgraft.word_embeddings.corpus import words_of
from textgraft.word_embeddings.word_vectors import WordVectors

POOLINGS = ("mean", "max")


class MeanOfWords:
    """An artifact.Predictor that has no labels and gives vectors of texts; zeros for a text without a known word."""

    has_vectors = True
    head_name = "vectors"
    labels = None

    def __init__(self, vectors: WordVectors, path: Path) -> None:
        self.vectors, self._path = vectors, path
        self.run: dict[str, Any] = vectors.run

    @classmethod
    def from_folder(cls, path: Path, config: Mapping[str, Any]) -> MeanOfWords:
        """From a folder of word vectors with this config.json. Raises UserError as folder.from_folder does."""
        return cls(folder.from_folder(path, config), path)

    def outputs(self, texts: Sequence[str], precision: str = "auto") -> NDArray[np.float64]:
        raise AssertionError("word vectors do not answer")

    def embed(
        self, texts: Sequence[str], *, pooling: str = "mean", max_tokens: int = 512, layers: str = LAST
    ) -> NDArray[np.float32]:
        """(N, D) means, or maxima, of the vectors of all of a text's words that have one; nothing is cut.

        There are no `layers` to choose from.

        Raises UserError for a pooling that needs more than a bag of words.
        """
        if pooling not in POOLINGS:
            message = f"word vectors know no order, so there is no pooling '{pooling}' of them."
            raise UserError(message, remedy="Take mean or max.")
        found = np.zeros((len(texts), self.vectors.dimensions), dtype=np.float32)
        for row, text in enumerate(texts):
            words = self.vectors.vectors(words_of(text, lowercase=self.vectors.lowercase))
            known = words[words.any(axis=1)]
            if len(known):
                found[row] = known.mean(axis=0) if pooling == "mean" else known.max(axis=0)
        return found

    def files(self, *, half: bool = False) -> dict[str, bytes]:
        """The folder's files as they are."""
        return folder.files(self._path)
