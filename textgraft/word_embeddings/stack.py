"""A stack: sources of words' vectors side by side (Akbik et al. 2018, §2.3), opened by name, saved in a folder."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from textgraft.core.errors import UserError
from textgraft.models import loading, model_folder
from textgraft.nn.layer_aggregation import LAST, validate_layer_aggregation
from textgraft.word_embeddings.formats import load_vectors
from textgraft.word_embeddings.pooled import Pooled, Remembered, parted, read_memory
from textgraft.word_embeddings.pooled_memory import WordMemory
from textgraft.word_embeddings.sources import (
    FrozenModel,
    Kept,
    StaticVectors,
    Words,
    WordSource,
    as_kept,
    bytes_kept,
    keep,
)

FOLDER = "sources"
"""Where in a tagger's folder its sources are, numbered in order."""


class Stack:
    """Sources whose vectors stand side by side, `width` numbers a word. Raises UserError for none, or one twice."""

    def __init__(self, sources: Sequence[WordSource]) -> None:
        if not sources:
            raise UserError("a stack of nothing.", where="stack", remedy="Name models or word vectors.")
        self.sources = list(sources)
        for place, name in enumerate(self.names):
            if name in self.names[:place]:
                raise UserError(f"'{name}' comes twice.", where="stack", remedy="Name each source once.")
        self.width = sum(source.width for source in self.sources)

    @classmethod
    def open(cls, names: Iterable[str | Path], *, precision: str = "auto") -> Stack:
        """The sources by name: a model, or a file or folder of word vectors; MODEL@LAYERS reads other layers of it.

        pooled:MODEL has beside each vector what the word's have been so far (word_embeddings.pooled.PREFIXES).

        Raises UserError for what is not there, is no source (a tagger, an ensemble), or cannot be read so.
        """
        return cls([_opened(str(name), precision) for name in names])

    @property
    def names(self) -> list[str]:
        """As people write them, a layer aggregation other than the last layer behind an @."""
        return [s.name if s.layer_aggregation == LAST else f"{s.name}@{s.layer_aggregation}" for s in self.sources]

    def vectors(self, sentences: Sequence[Words]) -> list[NDArray[np.float16]]:
        """(W, width) for each sentence of W words."""
        each = [source.vectors(sentences) for source in self.sources]
        return [np.concatenate([as_kept(one) for one in of_one], axis=1) for of_one in zip(*each, strict=True)]

    def of(self, sentences: Sequence[Words]) -> Callable[[Sequence[int]], list[NDArray[np.float16]]]:
        """The vectors of those of `sentences` that are asked for by number (data.words.Vectors), computed then.

        Who reads with a source that goes on remembering calls `vectors`, in the sentences' order.
        """
        return lambda numbers: self.vectors([sentences[number] for number in numbers])

    def kept(
        self, sentences: Sequence[Words], folder: Path, *, most_bytes: int, show: bool = False
    ) -> tuple[Stack, list[str]]:
        """The stack with its models' vectors of `sentences` on disk, and the names of those for which that is too much.

        The first ones are kept as long as all together take no more than `most_bytes`; the others compute theirs
        whenever they are asked. Word vectors are looked up as they are.
        """
        sources: list[WordSource] = []
        too_large = []
        room = most_bytes
        for source, name in zip(self.sources, self.names, strict=True):
            size = bytes_kept(source, sentences)
            if isinstance(source, Pooled):
                if size > room:
                    message = (
                        f"pooled vectors have to be kept on disk: {size / 1e9:.2g} GB, where {room / 1e9:.2g} may be."
                    )
                    raise UserError(message, where=name, remedy="Raise kept_bytes, or leave out the pooling.")
                sources.append(source.over(keep(source.source, sentences, folder, show=show)))
                room -= size
            elif isinstance(source, StaticVectors | Kept):
                sources.append(source)
            elif size > room:
                sources.append(source)
                too_large.append(name)
            else:
                sources.append(keep(source, sentences, folder, show=show))
                room -= size
        return Stack(sources), too_large

    def having_read(self, sentences: Sequence[Words], folder: Path, *, show: bool = False) -> Stack:
        """The stack for learning from `sentences`, which pooled sources have read in this order, and remember."""
        read = (Remembered(s, sentences, folder, show=show) if isinstance(s, Pooled) else s for s in self.sources)
        return Stack(list(read))

    def reading(self) -> Stack:
        """The stack for a file to tag; what it remembers of that is forgotten with it."""
        return Stack([s.reading() if isinstance(s, Pooled) else s for s in self.sources])

    def unknown(self, sentences: Sequence[Words]) -> dict[str, int]:
        """For word vectors by name, how many words, each as often as it comes, have none."""
        return {s.name: s.unknown(sentences) for s in self.sources if isinstance(s, StaticVectors)}

    def described(self) -> list[dict[str, str]]:
        """What `load` needs to know beside the files."""
        return [
            {"folder": f"{FOLDER}/{place}", "name": source.name, "layer_aggregation": source.layer_aggregation}
            for place, source in enumerate(self.sources)
        ]

    def files(self) -> dict[str, bytes]:
        """The files of all sources, each under its folder."""
        pairs = zip(self.described(), self.sources, strict=True)
        return {f"{about['folder']}/{name}": data for about, s in pairs for name, data in s.files().items()}

    @classmethod
    def load(cls, folder: Path, described: Any) -> Stack:
        """The stack that lies in a tagger's folder. Raises UserError for missing, altered or strange files."""
        try:
            wanted = [
                (Path(about["folder"]), str(about["name"]), str(about["layer_aggregation"])) for about in described
            ]
        except (TypeError, KeyError) as error:
            message = f"this describes no stack ({error})."
            raise UserError(message, where=str(folder / "config.json"), remedy=model_folder.RESTORE) from error
        if any(path.is_absolute() or ".." in path.parts for path, _, _ in wanted):
            message = "this names sources outside of the folder."
            raise UserError(message, where=str(folder / "config.json"), remedy=model_folder.RESTORE)
        return cls([_loaded(folder / path, name, layer_aggregation) for path, name, layer_aggregation in wanted])

    def computing_in(self, precision: str) -> Stack:
        """The same stack, its models at another precision."""

        def computing(source: WordSource) -> WordSource:
            if isinstance(source, Pooled):
                return source.over(computing(source.source))
            return source.computing_in(precision) if isinstance(source, FrozenModel) else source

        return Stack([computing(source) for source in self.sources])

    def to(self, device: torch.device) -> Stack:
        """The same stack, its models on `device`."""
        for source in self.sources:
            inside = source
            while isinstance(inside, Kept | Pooled):
                inside = inside.source
            if isinstance(inside, FrozenModel):
                inside.artifact.model.to(device)
        return self


def open_unpooled(names: Iterable[str | Path], *, precision: str = "auto") -> list[FrozenModel | StaticVectors]:
    """The sources of Stack.open, for who reads sentences in no order that pooled vectors could mean anything in.

    Raises UserError as Stack.open does, and for pooled vectors.
    """
    sources = []
    for source in Stack.open(names, precision=precision).sources:
        if not isinstance(source, FrozenModel | StaticVectors):
            message = "pooled vectors depend on what was read before them, which only a tagger reads in order."
            raise UserError(message, where=source.name, remedy="Name the model alone, without its pooling.")
        sources.append(source)
    return sources


def _loaded(folder: Path, name: str, layer_aggregation: str) -> WordSource:
    """The source that a tagger's folder has in `folder`."""
    inside, pooling = parted(name)
    if pooling is None:
        return _source(str(folder), name, layer_aggregation, "auto")
    return Pooled(_source(str(folder), inside, layer_aggregation, "auto"), read_memory(folder, pooling))


def _opened(name: str, precision: str) -> WordSource:
    """The source NAME or NAME@LAYERS, pooled or not; a path that is there may have an @ or a colon in it."""
    inside, pooling = (name, None) if Path(name).exists() else parted(name)
    if pooling is not None:
        return Pooled(_opened(inside, precision), WordMemory(pooling))
    path, at, layer_aggregation = name.rpartition("@")
    if not at or Path(name).exists():
        return _source(name, name, LAST, precision)
    validate_layer_aggregation(layer_aggregation)
    return _source(path, path, layer_aggregation, precision)


def _source(path: str, name: str, layer_aggregation: str, precision: str) -> WordSource:
    """What lies at `path`, to be known as `name`."""
    if not path:
        raise UserError("a name is missing.", where="stack", remedy="Write NAME,NAME,NAME@LAYERS.")
    if not model_folder.is_checkpoint_name(path) and Path(path).is_file():
        return StaticVectors(load_vectors(path), name, _file_hash(Path(path)), layer_aggregation)
    if not model_folder.is_checkpoint_name(path):
        folder = model_folder.find(path)
        config = model_folder.read_config(folder)
        if loading.kind_of(config) == "vectors":
            return StaticVectors(load_vectors(folder), name, _folder_hash(config), layer_aggregation)
    return FrozenModel(loading.load_network(path), name, layer_aggregation, precision=precision)


def _file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _folder_hash(config: Mapping[str, Any]) -> str:
    return hashlib.sha256(model_folder.to_json([config["vectors"], config["files"]])).hexdigest()
