"""What every layer of a model says of words in their sentences, a few sentences in memory at a time."""

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
"""Sentences whose vectors of all layers are in memory together."""
EMBEDDINGS = "embeddings"

Layers = list[NDArray[np.float32]]
"""Of each layer, bottom -> top, vectors of the same words (W, D_l)."""


def layer_names(encoder: Encoder) -> list[str]:
    """What the layers of an encoder are called, bottom -> top."""
    return [EMBEDDINGS, *(f"layer {number}" for number in range(1, len(encoder.widths)))]


class WordLayers:
    """A model's layers, or word vectors as the one layer that they are, by the name that `--model` takes.

    `names` are the layers' names, bottom -> top; `name` is the model's, without the folders around it. Raises UserError
    as open_unpooled does: for what is not there, for an ensemble, for a tagger, and for pooled vectors.
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
        """Differs where vectors may."""
        return self.source.fingerprint

    def knows(self, word: str) -> bool:
        """Whether a word has a vector; of a model every word has."""
        return not isinstance(self.source, StaticVectors) or self.source.word_vectors.vector(word) is not None

    def read(self, contexts: Sequence[Context], *, title: str, show: bool = False) -> Iterator[Layers]:
        """For each sentence, in order, the vectors of its words; one without words has none."""
        with Meter(title, len(contexts), shown=show) as meter:
            for start in range(0, len(contexts), AT_ONCE):
                part = [context.words for context in contexts[start : start + AT_ONCE]]
                for words, layers in zip(part, self._of(part), strict=True):
                    meter.add(sum(map(len, words)), len(words))
                    yield layers

    def at(
        self, contexts: Sequence[Context], places: Sequence[WordPosition], *, title: str, show: bool = False
    ) -> Layers:
        """Of each layer the vectors at `places`, (N, D_l) in their order; each sentence is read once.

        Memory is that of the N vectors and AT_ONCE sentences.
        """
        wanted: dict[int, list[int]] = {}
        for row, place in enumerate(places):
            wanted.setdefault(place.sentence, []).append(row)
        numbers = sorted(wanted)
        found: Layers = []
        for number, layers in zip(numbers, self.read([contexts[n] for n in numbers], title=title, show=show)):
            if not found:
                found = [np.empty((len(places), layer.shape[1]), dtype=np.float32) for layer in layers]
            for kept, layer in zip(found, layers, strict=True):
                for row in wanted[number]:
                    kept[row] = layer[places[row].word]
        return found

    def _of(self, sentences: Sequence[list[str]]) -> list[Layers]:
        if isinstance(self.source, StaticVectors):
            return [[np.asarray(one, dtype=np.float32)] for one in self.source.vectors(sentences)]
        source = self.source
        return layer_vectors(source.artifact, sentences, window=source.max_tokens, precision=source.precision)
