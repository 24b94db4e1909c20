"""Word vectors from frozen models or static vectors, cached on disk where there is room.

A stack concatenates several such sources (Akbik et al. 2018, §2.3). Vectors are always float16 from here on, cached or
not, so that caching changes only the rounding.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from textgraft.core.errors import UserError
from textgraft.core.files import temporary_folder, writing_atomically
from textgraft.core.progress import Meter
from textgraft.models import artifact
from textgraft.models.artifact import Artifact
from textgraft.models.inference import frozen_layer_aggregation
from textgraft.nn.layer_aggregation import LAST
from textgraft.word_embeddings import contextual
from textgraft.word_embeddings import folder as vectors_folder
from textgraft.word_embeddings.word_vectors import WordVectors

AT_ONCE = 256
"""Number of sentences whose vectors are in memory together."""
MAX_TOKENS = 256
MAX_FLOAT16 = float(np.finfo(np.float16).max)

Words = Sequence[str]


class WordSource(Protocol):
    """A frozen source of vectors for every word of a sentence.

    Attributes:
        name: Name for users.
        layer_aggregation: Layers that are used.
        width: Number of features.
        fingerprint: Hash that changes with the vectors.
    """

    name: str
    layer_aggregation: str
    width: int

    @property
    def fingerprint(self) -> str: ...

    def vectors(self, sentences: Sequence[Words]) -> list[NDArray[Any]]:
        """Vectors (W, width) for each sentence of W words, float32 or float16."""

    def files(self) -> dict[str, bytes]:
        """Files, by name, from which it can be opened again."""


class FrozenModel:
    """Layers of a frozen model, at the subword that represents each word (data.words).

    Raises:
        UserError: The model is a tagger, or does not have the layer aggregation.
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
            remedy = "Use the model that it was made from."
            raise UserError("this is a tagger, not a source of vectors.", where=name, remedy=remedy)
        encoder = model.model.encoder
        self.artifact, self.name, self.layer_aggregation, self.precision = model, name, layer_aggregation, precision
        self.max_tokens = min(max_tokens, encoder.max_length or max_tokens)
        aggregation = frozen_layer_aggregation(model.model, layer_aggregation)
        self.width = encoder.output_dim if aggregation is None else aggregation.output_dim
        model.model.eval()

    @cached_property
    def fingerprint(self) -> str:
        """Hash of everything that the vectors depend on."""
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
        """Vectors (W, width) float32 for each sentence. Raises UserError for one without words."""
        options: dict[str, Any] = {
            "window": self.max_tokens,
            "layer_aggregation": self.layer_aggregation,
            "precision": self.precision,
        }
        return list(contextual.word_vectors(self.artifact, sentences, **options))

    def files(self) -> dict[str, bytes]:
        """Files of the artifact, with float16 weights where that is exact."""
        values = (v for v in self.artifact.model.values().values() if v.is_floating_point())
        return self.artifact.files(half=all(torch.equal(v.half().to(v.dtype), v) for v in values))


class StaticVectors:
    """Static word vectors: an unknown word has those of its n-grams, or zeros.

    Raises:
        UserError: There are no words, or the layer aggregation is not "last".
    """

    def __init__(self, vectors: WordVectors, name: str, fingerprint: str, layer_aggregation: str = LAST) -> None:
        if not len(vectors):
            raise UserError("these word vectors have no words.", where=name, remedy="Use others.")
        if layer_aggregation != LAST:
            message = f"word vectors have no layers, so there is no layer aggregation '{layer_aggregation}' of them."
            raise UserError(message, where=name, remedy=f"Use {name} without @.")
        self.word_vectors, self.name, self.layer_aggregation = vectors, name, layer_aggregation
        self.width, self.fingerprint = vectors.dimensions, fingerprint

    def vectors(self, sentences: Sequence[Words]) -> list[NDArray[Any]]:
        """Vectors (W, width) float32 for each sentence."""
        distinct = list(dict.fromkeys(word for words in sentences for word in words))
        indices = {word: index for index, word in enumerate(distinct)}
        rows = self.word_vectors.vectors(distinct)
        return [rows[[indices[word] for word in words]] for words in sentences]

    def unknown(self, sentences: Iterable[Words]) -> int:
        """Number of occurrences of words without a vector."""
        covered: dict[str, bool] = {}
        for word in (word for words in sentences for word in words):
            if word not in covered:
                covered[word] = self.word_vectors.vector(word) is not None
        return sum(not covered[word] for words in sentences for word in words)

    def files(self) -> dict[str, bytes]:
        """Files of a vectors folder."""
        with temporary_folder() as temporary:
            path = vectors_folder.write(
                self.word_vectors.stream(), Path(temporary) / (Path(self.name).stem or "vectors")
            )
            return vectors_folder.files(path)


class Kept:
    """A source with a memory-mapped cache of the vectors of some sentences; others are computed."""

    def __init__(self, source: WordSource, path: Path, places: dict[tuple[str, ...], int], words: int) -> None:
        self.source, self._places = source, places
        self.name, self.layer_aggregation, self.width = source.name, source.layer_aggregation, source.width
        self.fingerprint, self.files = source.fingerprint, source.files
        self._rows = np.memmap(path, dtype=np.float16, mode="r", shape=(words, source.width))

    def vectors(self, sentences: Sequence[Words]) -> list[NDArray[Any]]:
        """Vectors (W, width) for each sentence, float16 from the cache."""
        places = [self._places.get(tuple(words)) for words in sentences]
        unseen = [words for words, place in zip(sentences, places, strict=True) if place is None]
        computed = iter(self.source.vectors(unseen) if unseen else ())
        return [
            next(computed) if place is None else np.asarray(self._rows[place : place + len(words)])
            for words, place in zip(sentences, places, strict=True)
        ]


def keep(source: WordSource, sentences: Sequence[Words], folder: Path, *, show: bool = False) -> Kept:
    """Compute the vectors of `sentences` once, into a file in `folder`, or use the existing file.

    The file's name identifies source and sentences; it is written atomically.
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
        with writing_atomically(path) as file, Meter(title, len(distinct), shown=show, unit="sentences") as meter:
            for words, vectors in zip(distinct, word_vectors(source, distinct), strict=True):
                file.write(as_kept(vectors).tobytes())
                meter.add(sum(map(len, words)), len(words))
    return Kept(source, path, places, count)


def bytes_kept(source: WordSource, sentences: Iterable[Words]) -> int:
    """Size of the file of `keep`."""
    return 2 * source.width * sum(map(len, _distinct(sentences)))


def _distinct(sentences: Iterable[Words]) -> list[tuple[str, ...]]:
    return list(dict.fromkeys(tuple(words) for words in sentences))


def word_vectors(source: WordSource, sentences: Iterable[Words]) -> Iterator[NDArray[Any]]:
    """Yield vectors (W, D) for each sentence of W words, in order; memory holds AT_ONCE sentences."""
    remaining = iter(sentences)
    while part := list(islice(remaining, AT_ONCE)):
        yield from source.vectors(part)


def as_kept(vectors: NDArray[Any]) -> NDArray[np.float16]:
    """The vectors as float16, clamped to its range."""
    if vectors.dtype == np.float16:
        return vectors
    # By torch: numpy is forty times slower on denormals, and half of a cell's outputs are nearly 0.
    tensor = torch.from_numpy(np.require(vectors, np.float32, ["C", "W"]))
    half: NDArray[np.float16] = tensor.clamp(-MAX_FLOAT16, MAX_FLOAT16).half().numpy()
    return half
