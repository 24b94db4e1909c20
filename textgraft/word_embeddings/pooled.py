"""Pooled vectors in a stack: a source's vectors of words and, behind each, what the word's vectors have been so far.

Akbik, Bergmann & Vollgraf 2019, "Pooled Contextualized Embeddings" (NAACL). Their memory is emptied when an epoch
begins and grows batch by batch, in an order drawn anew. Ours grows in the order of the file, so that a sentence has the
same vectors in every epoch: they are computed once, and a killed run goes on to the same bits. In prediction the memory
of all training sentences grows on, as theirs does, but over one file (or one call) only, in its order.
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
"""How the name of a pooled source begins, and how its memory pools (word_embeddings.pooled_memory.POOLED)."""
WORDS, VECTORS = "memory.json", "memory.safetensors"
"""What a pooled source's folder holds beside the source's own files."""


def parted(name: str) -> tuple[str, str | None]:
    """The name of the source that is pooled, and the pooling; None where the name asks for no pooling."""
    for prefix, pooling in PREFIXES.items():
        if name.startswith(prefix):
            return name.removeprefix(prefix), pooling
    return name, None


class Pooled:
    """A frozen model's vectors beside their memory: twice as wide. What it is asked for it also remembers, in order.

    Raises UserError for word vectors, whose memory would be what they are.
    """

    def __init__(self, source: WordSource, memory: WordMemory) -> None:
        if isinstance(source, StaticVectors):
            message = "word vectors are the same everywhere, so there is nothing to pool."
            raise UserError(message, where=source.name, remedy=f"Write {source.name} alone.")
        prefix = next(prefix for prefix, pooling in PREFIXES.items() if pooling == memory.pooling)
        self.source, self.memory = source, memory
        self.name, self.layer_aggregation, self.width = prefix + source.name, source.layer_aggregation, 2 * source.width

    @cached_property
    def fingerprint(self) -> str:
        """Over all that the vectors depend on but what was read before."""
        return hashlib.sha256(json.dumps([self.memory.pooling, self.source.fingerprint]).encode()).hexdigest()

    def over(self, source: WordSource) -> Pooled:
        """The same memory, not a copy, over the same source in another form: kept on disk, or at another precision."""
        return Pooled(source, self.memory)

    def reading(self) -> Pooled:
        """The same for a file to tag: what it remembers of that is forgotten with it."""
        return Pooled(self.source, self.memory.branch())

    def vectors(self, sentences: Sequence[Words]) -> list[NDArray[Any]]:
        """(W, 2 D) for each sentence; the memory grows sentence by sentence, and shows in its own sentence already."""
        pairs = zip(sentences, self.source.vectors(sentences), strict=True)
        return [self.memory.pooled([words], [as_kept(vectors)])[0] for words, vectors in pairs]

    def files(self) -> dict[str, bytes]:
        """The source's and the memory's."""
        words, vectors, counts = self.memory.content()
        listed = json.dumps({"pooling": self.memory.pooling, "words": words}, ensure_ascii=True).encode()
        return {**self.source.files(), WORDS: listed, VECTORS: to_safetensors({"vectors": vectors, "counts": counts})}


class Remembered(Pooled):
    """A pooled source that has read what is learned from, once and in order: it has kept what it said of each sentence.

    The memory of the words is in a file in `folder`, mapped; a sentence that comes again has that of its first time.
    """

    def __init__(self, pooled: Pooled, sentences: Sequence[Words], folder: Path, *, show: bool = False) -> None:
        super().__init__(pooled.source, pooled.memory)
        self.memory.clear()
        width, count = self.source.width, 0
        self._places: dict[tuple[str, ...], int] = {}
        path = folder / f"memory-{self.fingerprint[:32]}.f16"
        with writing_atomically(path) as file, Meter(f"memory of {self.name}", len(sentences), shown=show) as meter:
            for words, vectors in zip(sentences, word_vectors(self.source, sentences), strict=True):
                both = self.memory.pooled([words], [as_kept(vectors)])[0]
                if tuple(words) not in self._places:
                    self._places[tuple(words)] = count
                    count += len(words)
                    file.write(as_kept(both[:, width:]).tobytes())
                meter.add(sum(map(len, words)), len(words))
        self._rows = np.memmap(path, dtype=np.float16, mode="r", shape=(count, width))

    def vectors(self, sentences: Sequence[Words]) -> list[NDArray[Any]]:
        """(W, 2 D) float16 for each sentence, all of which have been read before; nothing more is remembered."""
        found = []
        for words, vectors in zip(sentences, self.source.vectors(sentences), strict=True):
            place = self._places[tuple(words)]
            found.append(np.concatenate([as_kept(vectors), self._rows[place : place + len(words)]], axis=1))
        return found


def read_memory(folder: Path, pooling: str) -> WordMemory:
    """What a saved tagger remembers. Raises UserError for files that are missing or damaged."""
    try:
        listed = json.loads((folder / WORDS).read_text(encoding="utf-8"))
        arrays = from_safetensors((folder / VECTORS).read_bytes())
        if listed["pooling"] != pooling:
            raise ValueError(f"pooled by {listed['pooling']}")
        return WordMemory.of(pooling, listed["words"], arrays["vectors"], arrays["counts"])
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        message = f"the memory of a pooled model is damaged ({type(error).__name__}: {error})."
        raise UserError(message, where=str(folder), remedy=RESTORE) from error
