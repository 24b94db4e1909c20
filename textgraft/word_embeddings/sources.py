"""Vectors of words in their sentences, from any frozen model or static word vectors; kept on disk where there is room.

A stack is several such sources side by side (Akbik et al. 2018, §2.3). Vectors go from here on as float16, kept or not,
so that where they come from changes no more than rounding of what is learned from them.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from textgraft.core.errors import UserError
from textgraft.core.files import writing_atomically
from textgraft.core.progress import Meter
from textgraft.models import artifact
from textgraft.models.artifact import Artifact
from textgraft.models.inference import frozen_layer_aggregation
from textgraft.nn.layer_aggregation import LAST
from textgraft.word_embeddings import contextual
from textgraft.word_embeddings import folder as vectors_folder
from textgraft.word_embeddings.word_vectors import WordVectors

AT_ONCE = 256
"""Sentences whose vectors are in memory together."""
MAX_TOKENS = 256
LARGEST = float(np.finfo(np.float16).max)

Words = Sequence[str]


class WordSource(Protocol):
    """Something that gives every word of a sentence a vector, and never learns.

    `name` is what people know it by, `layer_aggregation` which layers are read; `fingerprint` differs where vectors
    may.
    """

    name: str
    layer_aggregation: str
    width: int

    @property
    def fingerprint(self) -> str: ...

    def vectors(self, sentences: Sequence[Words]) -> list[NDArray[Any]]:
        """(W, width) for each sentence of W words, float32 or float16."""

    def files(self) -> dict[str, bytes]:
        """What a folder holds from which it is opened again, by name."""


class FrozenModel:
    """The layers of a model that is read and not trained, at the piece that speaks for each word (data.words).

    Raises UserError for a tagger, for a layer aggregation that its layers do not allow, and for one that it has not
    learned.
    """

    def __init__(
        self,
        model: Artifact,
        name: str,
        layer_aggregation: str = LAST,
        *,
        max_tokens: int = MAX_TOKENS,
        precision: str = "auto",
    ) -> None:
        if model.model.describe()["head"]["name"] == "tagging":
            remedy = "Name the model that it was made from."
            raise UserError("this is a tagger, not a source of vectors.", where=name, remedy=remedy)
        encoder = model.model.encoder
        self.artifact, self.name, self.layer_aggregation, self.precision = model, name, layer_aggregation, precision
        self.max_tokens = min(max_tokens, encoder.max_length or max_tokens)
        read = frozen_layer_aggregation(model.model, layer_aggregation)
        self.width = encoder.output_dim if read is None else read.output_dim
        model.model.eval()

    @cached_property
    def fingerprint(self) -> str:
        """Over all that the vectors depend on."""
        model, tokenizer = self.artifact.model, self.artifact.tokenizer
        about = [model.describe(), tokenizer.fingerprint, self.layer_aggregation, self.max_tokens, self.precision]
        digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
        digest.update(artifact.weights(model))
        return digest.hexdigest()

    def computing_in(self, precision: str) -> FrozenModel:
        """The same source at another precision."""
        return FrozenModel(
            self.artifact, self.name, self.layer_aggregation, max_tokens=self.max_tokens, precision=precision
        )

    def vectors(self, sentences: Sequence[Words]) -> list[NDArray[Any]]:
        """(W, width) float32 for each sentence. Raises UserError for one without a word."""
        options: dict[str, Any] = {
            "window": self.max_tokens,
            "layer_aggregation": self.layer_aggregation,
            "precision": self.precision,
        }
        return list(contextual.word_vectors(self.artifact, sentences, **options))

    def files(self) -> dict[str, bytes]:
        """An artifact's, its weights as float16 where that loses nothing."""
        values = (v for v in self.artifact.model.values().values() if v.is_floating_point())
        return self.artifact.files(half=all(torch.equal(v.half().to(v.dtype), v) for v in values))


class StaticVectors:
    """Word vectors, which know no context: an unknown word's are its n-grams', or zeros.

    Raises UserError for vectors of no words, and for another layer aggregation than the only one.
    """

    def __init__(self, vectors: WordVectors, name: str, fingerprint: str, layer_aggregation: str = LAST) -> None:
        if not len(vectors):
            raise UserError("these are vectors of no words.", where=name, remedy="Name others.")
        if layer_aggregation != LAST:
            message = f"word vectors have no layers, so there is no layer aggregation '{layer_aggregation}' of them."
            raise UserError(message, where=name, remedy=f"Write {name} alone.")
        self.word_vectors, self.name, self.layer_aggregation = vectors, name, layer_aggregation
        self.width, self.fingerprint = vectors.dimensions, fingerprint

    def vectors(self, sentences: Sequence[Words]) -> list[NDArray[Any]]:
        """(W, width) float32 for each sentence."""
        distinct = list(dict.fromkeys(word for words in sentences for word in words))
        places = {word: place for place, word in enumerate(distinct)}
        rows = self.word_vectors.vectors(distinct)
        return [rows[[places[word] for word in words]] for words in sentences]

    def unknown(self, sentences: Iterable[Words]) -> int:
        """How many words, each as often as it comes, have no vector."""
        known: dict[str, bool] = {}
        for word in (word for words in sentences for word in words):
            if word not in known:
                known[word] = self.word_vectors.vector(word) is not None
        return sum(not known[word] for words in sentences for word in words)

    def files(self) -> dict[str, bytes]:
        """A vectors folder's."""
        with tempfile.TemporaryDirectory(prefix="textgraft-") as made:
            path = vectors_folder.write(self.word_vectors.stream(), Path(made) / (Path(self.name).stem or "vectors"))
            return vectors_folder.files(path)


class Kept:
    """A source whose vectors of some sentences lie in a file and are mapped, not computed; those of others are."""

    def __init__(self, source: WordSource, path: Path, places: dict[tuple[str, ...], int], words: int) -> None:
        self.source, self._places = source, places
        self.name, self.layer_aggregation, self.width = source.name, source.layer_aggregation, source.width
        self.fingerprint, self.files = source.fingerprint, source.files
        self._rows = np.memmap(path, dtype=np.float16, mode="r", shape=(words, source.width))

    def vectors(self, sentences: Sequence[Words]) -> list[NDArray[Any]]:
        """(W, width) for each sentence, float16 where it is in the file."""
        places = [self._places.get(tuple(words)) for words in sentences]
        unseen = [words for words, place in zip(sentences, places, strict=True) if place is None]
        computed = iter(self.source.vectors(unseen) if unseen else ())
        return [
            next(computed) if place is None else np.asarray(self._rows[place : place + len(words)])
            for words, place in zip(sentences, places, strict=True)
        ]


def keep(source: WordSource, sentences: Sequence[Words], folder: Path, *, show: bool = False) -> Kept:
    """Compute the source's vectors of `sentences` once, into a file in `folder`, or take those that are there.

    The file's name says what it holds: which source and which sentences. It is whole or not there.
    """
    distinct = _distinct(sentences)
    digest = hashlib.sha256(source.fingerprint.encode())
    places: dict[tuple[str, ...], int] = {}
    count = 0
    for words in distinct:
        digest.update(json.dumps(words).encode())
        places[words] = count
        count += len(words)
    path = folder / f"vectors-{digest.hexdigest()[:32]}.f16"
    if not path.exists() or path.stat().st_size != 2 * count * source.width:
        title = f"vectors of {source.name}"
        with writing_atomically(path) as file, Meter(title, len(distinct), shown=show) as meter:
            for words, vectors in zip(distinct, word_vectors(source, distinct), strict=True):
                file.write(as_kept(vectors).tobytes())
                meter.add(sum(map(len, words)), len(words))
    return Kept(source, path, places, count)


def bytes_kept(source: WordSource, sentences: Iterable[Words]) -> int:
    """What `keep` would take on disk."""
    return 2 * source.width * sum(map(len, _distinct(sentences)))


def _distinct(sentences: Iterable[Words]) -> list[tuple[str, ...]]:
    return list(dict.fromkeys(tuple(words) for words in sentences))


def word_vectors(source: WordSource, sentences: Iterable[Words]) -> Iterator[NDArray[Any]]:
    """(W, D) for each sentence of W words, in order; memory holds AT_ONCE sentences, however many come."""
    rest = iter(sentences)
    while part := list(islice(rest, AT_ONCE)):
        yield from source.vectors(part)


def as_kept(vectors: NDArray[Any]) -> NDArray[np.float16]:
    """The numbers as float16, the largest as the largest that there is."""
    if vectors.dtype == np.float16:
        return vectors
    # By torch, since numpy takes forty times as long for what is nearly 0, which half of a cell's outputs are.
    given = torch.from_numpy(np.require(vectors, np.float32, ["C", "W"]))
    kept: NDArray[np.float16] = given.clamp(-LARGEST, LARGEST).half().numpy()
    return kept
