"""Pooled vectors in a stack: contextual word vectors, concatenated with the pooled vectors of the word's previous
occurrences.

Source: Akbik, Bergmann & Vollgraf 2019, "Pooled Contextualized Embeddings" (NAACL). Their memory is cleared at the
beginning of an epoch and grows batch by batch, in random order. Here it grows in the order of the file, so that a
sentence has the same vectors in every epoch: they are computed once, and a resumed run is bit-equal. In prediction the
memory of all training sentences continues to grow, as theirs does, but over one file (or one call) only, in its order.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as from_safetensors
from safetensors.numpy import save as to_safetensors

from textgraft.core.errors import UserError
from textgraft.core.files import writing_atomically
from textgraft.core.progress import Meter
from textgraft.models.model_folder import RESTORE
from textgraft.word_embeddings.pooled_memory import WordMemory
from textgraft.word_embeddings.sources import StaticVectors, Words, WordSource, as_kept, word_vectors

PREFIXES = {"pooled:": "min", "pooled-max:": "max", "pooled-mean:": "mean"}
"""Prefix of a pooled source's name, and its pooling (word_embeddings.pooled_memory.POOLED)."""
WORDS, VECTORS = "memory.json", "memory.safetensors"
"""Files of the memory, beside the source's own files."""


def parted(name: str) -> tuple[str, str | None]:
    """Name of the underlying source, and the pooling; None where the name has no pooling prefix."""
    for prefix, pooling in PREFIXES.items():
        if name.startswith(prefix):
            return name.removeprefix(prefix), pooling
    return name, None


class Pooled:
    """Contextual vectors of a frozen model concatenated with their memory: twice as wide. Every call updates the
    memory, in order.

    Raises:
        UserError: The source is static word vectors, which would equal their memory.
    """

    def __init__(self, source: WordSource, memory: WordMemory) -> None:
        if isinstance(source, StaticVectors):
            message = "static word vectors do not depend on context, so pooling has no effect."
            raise UserError(message, where=source.name, remedy=f"Use {source.name} without pooling.")
        prefix = next(prefix for prefix, pooling in PREFIXES.items() if pooling == memory.pooling)
        self.source, self.memory = source, memory
        self.name, self.layer_aggregation, self.width = prefix + source.name, source.layer_aggregation, 2 * source.width

    @cached_property
    def fingerprint(self) -> str:
        """Hash of everything that the vectors depend on, except the sentences before."""
        return hashlib.sha256(json.dumps([self.memory.pooling, self.source.fingerprint]).encode()).hexdigest()

    def over(self, source: WordSource) -> Pooled:
        """The same memory (shared) over the same source in another form: cached on disk, or at another precision."""
        return Pooled(source, self.memory)

    def reading(self) -> Pooled:
        """A branch for tagging a file: its additions to the memory are discarded with it."""
        return Pooled(self.source, self.memory.branch())

    def vectors(self, sentences: Sequence[Words]) -> list[NDArray[Any]]:
        """Vectors (W, 2 D) for each sentence; the memory is updated sentence by sentence, before the sentence's own
        vectors.
        """
        pairs = zip(sentences, self.source.vectors(sentences), strict=True)
        return [self.memory.pooled([words], [as_kept(vectors)])[0] for words, vectors in pairs]

    def files(self) -> dict[str, bytes]:
        """Files of the source and the memory."""
        words, vectors, counts = self.memory.content()
        listed = json.dumps({"pooling": self.memory.pooling, "words": words}, ensure_ascii=True).encode()
        return {**self.source.files(), WORDS: listed, VECTORS: to_safetensors({"vectors": vectors, "counts": counts})}


class Remembered(Pooled):
    """A pooled source that has processed the training sentences once, in order, and stored the memory vectors of each.

    They are in a memory-mapped file in `folder`; a repeated sentence has those of its first occurrence.
    """

    def __init__(self, pooled: Pooled, sentences: Sequence[Words], folder: Path, *, show: bool = False) -> None:
        super().__init__(pooled.source, pooled.memory)
        self.memory.clear()
        width, count = self.source.width, 0
        self._places: dict[tuple[str, ...], int] = {}
        path = folder / f"memory-{self.fingerprint[:32]}.f16"
        with (
            writing_atomically(path) as file,
            Meter(f"memory of {self.name}", len(sentences), shown=show, unit="sentences") as meter,
        ):
            for words, vectors in zip(sentences, word_vectors(self.source, sentences), strict=True):
                concatenated = self.memory.pooled([words], [as_kept(vectors)])[0]
                if tuple(words) not in self._places:
                    self._places[tuple(words)] = count
                    count += len(words)
                    file.write(as_kept(concatenated[:, width:]).tobytes())
                meter.add(sum(map(len, words)), len(words))
        self._rows = np.memmap(path, dtype=np.float16, mode="r", shape=(count, width))

    def vectors(self, sentences: Sequence[Words]) -> list[NDArray[Any]]:
        """Vectors (W, 2 D) float16 for each sentence, all of them processed before; the memory is not updated."""
        vectors_by_sentence = []
        for words, vectors in zip(sentences, self.source.vectors(sentences), strict=True):
            place = self._places[tuple(words)]
            vectors_by_sentence.append(
                np.concatenate([as_kept(vectors), self._rows[place : place + len(words)]], axis=1)
            )
        return vectors_by_sentence


def read_memory(folder: Path, pooling: str) -> WordMemory:
    """Load the memory of a saved tagger. Raises UserError for missing or damaged files."""
    try:
        listed = json.loads((folder / WORDS).read_text(encoding="utf-8"))
        arrays = from_safetensors((folder / VECTORS).read_bytes())
        if listed["pooling"] != pooling:
            raise ValueError(f"pooled by {listed['pooling']}")
        return WordMemory.of(pooling, listed["words"], arrays["vectors"], arrays["counts"])
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        message = f"the memory of a pooled model is damaged ({type(error).__name__}: {error})."
        raise UserError(message, where=str(folder), remedy=RESTORE) from error
