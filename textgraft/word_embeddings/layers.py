"""Vectors of words in their sentences at every layer of a model, for a few sentences at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from textgraft.core.progress import Meter
from textgraft.data.contexts import Context, WordPosition
from textgraft.encoders.base import Encoder
from textgraft.word_embeddings.contextual import layer_vectors
from textgraft.word_embeddings.sources import StaticVectors
from textgraft.word_embeddings.stack import open_unpooled

AT_ONCE = 64
"""Number of sentences whose vectors of all layers are in memory together."""
EMBEDDINGS = "embeddings"

Layers = list[NDArray[np.float32]]
"""For each layer, bottom to top, vectors of the same words (W, D_l)."""


def layer_names(encoder: Encoder) -> list[str]:
    """Names of an encoder's layers, bottom to top."""
    return [EMBEDDINGS, *(f"layer {number}" for number in range(1, len(encoder.widths)))]


class WordLayers:
    """The layers of a model, or word vectors as a single layer.

    `names` are the layers' names, bottom to top; `name` is the model's, without its path. Raises UserError as
    open_unpooled does: for a missing model, an ensemble, a tagger, and pooled vectors.
    """

    def __init__(self, name: str | Path, *, precision: str = "auto") -> None:
        (source,) = open_unpooled([name], precision=precision)
        self.source, self.name = source, Path(source.name).name
        if isinstance(source, StaticVectors):
            self.names, self.run = ["word vectors"], source.word_vectors.run
        else:
            self.names = layer_names(source.artifact.model.encoder)
            self.run = source.artifact.run

    @property
    def fingerprint(self) -> str:
        """A hash that changes with the vectors."""
        return self.source.fingerprint

    def knows(self, word: str) -> bool:
        """True if a word has a vector; for a model every word has."""
        return not isinstance(self.source, StaticVectors) or self.source.word_vectors.vector(word) is not None

    def read(self, contexts: Sequence[Context], *, title: str, show: bool = False) -> Iterator[Layers]:
        """Yield the vectors of the words of each sentence, in order; none for a sentence without words."""
        with Meter(title, len(contexts), shown=show, unit="sentences") as meter:
            for start in range(0, len(contexts), AT_ONCE):
                part = [context.words for context in contexts[start : start + AT_ONCE]]
                for words, layers in zip(part, self._of(part), strict=True):
                    meter.add(sum(map(len, words)), len(words))
                    yield layers

    def at(
        self, contexts: Sequence[Context], places: Sequence[WordPosition], *, title: str, show: bool = False
    ) -> Layers:
        """Vectors (N, D_l) of each layer at `places`, in their order; each sentence is encoded once.

        Memory holds the N vectors and AT_ONCE sentences.
        """
        rows_by_sentence: dict[int, list[int]] = {}
        for row, place in enumerate(places):
            rows_by_sentence.setdefault(place.sentence, []).append(row)
        numbers = sorted(rows_by_sentence)
        result: Layers = []
        for number, layers in zip(numbers, self.read([contexts[n] for n in numbers], title=title, show=show)):
            if not result:
                result = [np.empty((len(places), layer.shape[1]), dtype=np.float32) for layer in layers]
            for target, layer in zip(result, layers, strict=True):
                for row in rows_by_sentence[number]:
                    target[row] = layer[places[row].word]
        return result

    def _of(self, sentences: Sequence[list[str]]) -> list[Layers]:
        if isinstance(self.source, StaticVectors):
            return [[np.asarray(vectors, dtype=np.float32)] for vectors in self.source.vectors(sentences)]
        source = self.source
        return layer_vectors(source.artifact, sentences, window=source.max_tokens, precision=source.precision)
