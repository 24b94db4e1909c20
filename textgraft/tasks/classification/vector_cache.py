"""Vectors of texts by one frozen encoder: each text is encoded once, however many classifiers are fitted to it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from textgraft.core.progress_bar import Bar
from textgraft.models.artifact import Artifact
from textgraft.training.checkpoint import load_checkpoint, save_checkpoint

CHUNK = 1_000
"""Texts that are encoded and saved together."""


class VectorCache:
    """Function from texts to the vectors (N, D) of a frozen encoder that remembers them, in memory and on disk.

    Args:
        encoder: The model.
        folder: Folder for the vectors, which a resumed run finds there; it is of this encoder alone. None: in memory.
        precision: A name of nn.cpu.precision.
        max_tokens: Length in tokens that longer texts are cut to; None: the model's own.
        title: Of the line of progress on stderr; empty for none.
    """

    def __init__(
        self,
        encoder: Artifact,
        folder: Path | None = None,
        *,
        precision: str = "auto",
        max_tokens: int | None = None,
        title: str = "",
    ) -> None:
        self.encoder, self.precision, self.max_tokens, self.title = encoder, precision, max_tokens, title
        self._folder, self._vectors, self._files = folder, dict[bytes, NDArray[np.float32]](), 0
        for path in sorted(folder.glob("*.safetensors")) if folder is not None and folder.is_dir() else ():
            tensors, facts = load_checkpoint(path)
            self._remember([bytes.fromhex(key) for key in facts["texts"]], tensors["vectors"].numpy())
            self._files += 1

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """The vectors (N, D) float32 of N texts."""
        keys = [_key(text) for text in texts]
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._vectors}
        if missing:
            self._encode(missing)
        if not keys:
            return self._embed([])
        return np.stack([self._vectors[key] for key in keys])

    def known(self, texts: Sequence[str]) -> int:
        """How many of the texts are encoded already."""
        return sum(_key(text) in self._vectors for text in texts) if self._vectors else 0

    def _encode(self, texts: dict[bytes, str]) -> None:
        with Bar(show=bool(self.title) and len(texts) > CHUNK) as bar:
            task = bar.add_task(self.title, total=len(texts))
            keys = sorted(texts, key=lambda key: len(texts[key]))  # texts of one length are encoded together
            for first in range(0, len(keys), CHUNK):
                chunk = keys[first : first + CHUNK]
                self._save(chunk, self._embed([texts[key] for key in chunk]))
                bar.advance(task, len(chunk))

    def _embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors: NDArray[np.float32] = self.encoder.embed(texts, precision=self.precision, max_tokens=self.max_tokens)
        return vectors

    def _save(self, keys: Sequence[bytes], vectors: NDArray[np.float32]) -> None:
        self._remember(keys, vectors)
        if self._folder is not None:
            path = self._folder / f"{self._files:05d}.safetensors"
            save_checkpoint(path, {"vectors": torch.from_numpy(vectors)}, {"texts": [key.hex() for key in keys]})
            self._files += 1

    def _remember(self, keys: Sequence[bytes], vectors: NDArray[np.float32]) -> None:
        self._vectors.update(zip(keys, vectors, strict=True))


def _key(text: str) -> bytes:
    return hashlib.sha256(str(text).encode("utf-8", "surrogatepass")).digest()
