"""Windows of words (words.py) as batches, and as what a training loop reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from textgraft.data.batch import IGNORE, Batch, iterate
from textgraft.data.sequences import shuffled_batches
from textgraft.data.tags import SubwordPooling
from textgraft.data.words import WordWindow

Vectors = Callable[[Sequence[int]], Sequence[np.ndarray]]
"""Numbers of sentences to the vectors of all their words, (W, D) each."""


def word_batches(
    windows: Sequence[WordWindow],
    batches: Sequence[Sequence[int]],
    pad_id: int,
    *,
    subword_pooling: SubwordPooling,
    tags: Sequence[np.ndarray] | None = None,
    vectors: Vectors | None = None,
) -> Iterator[Batch]:
    """The padded batches for lists of indices, with `words` (B, W) and, given sentences' `tags`, targets (B, W).

    Given `vectors` of words, each of which is one token, the batches have these where the words stand.
    """
    for indices, batch in zip(batches, iterate([w.ids for w in windows], batches, pad_id), strict=True):
        chosen = [windows[i] for i in indices]
        width = max(len(w.spans) for w in chosen)
        words = torch.full((len(chosen), width), -1, dtype=torch.int64)
        targets = torch.full((len(chosen), width), IGNORE, dtype=torch.int64)
        for row, window in enumerate(chosen):
            count = len(window.spans)
            words[row, :count] = torch.from_numpy(window.positions(subword_pooling).astype(np.int64))
            if tags is not None:
                own = tags[window.sentence][window.start : window.start + count]
                targets[row, :count] = torch.from_numpy(own.astype(np.int64))
        placed = None if vectors is None else _placed(vectors, chosen, batch.ids.shape[1])
        yield replace(batch, words=words, targets=None if tags is None else targets, vectors=placed)


def _placed(vectors: Vectors, windows: Sequence[WordWindow], width: int) -> Tensor:
    """(B, T, D) float32: the words' vectors at their positions, zeros at marks and padding."""
    found = vectors([window.sentence for window in windows])
    placed = torch.zeros(len(windows), width, found[0].shape[1])
    for row, window, own in zip(placed, windows, found, strict=True):
        first, last = window.shown
        begin = int(window.spans[0, 0]) - (window.start - first)
        row[begin : begin + last - first] = torch.from_numpy(np.array(own[first:last]))
    return placed


class WordStream:
    """Windows with tags in random batches, those of like length together: what a training loop reads
    (data.streams.base).
    """

    stateful = False

    def __init__(
        self,
        windows: Sequence[WordWindow],
        tags: Sequence[np.ndarray],
        *,
        pad_id: int,
        subword_pooling: SubwordPooling,
        rows: int = 16,
        seed: int = 0,
        vectors: Vectors | None = None,
    ) -> None:
        self.windows, self.tags, self.pad_id, self.subword_pooling = windows, tags, pad_id, subword_pooling
        self.rows, self.seed, self.vectors = rows, seed, vectors
        self._plan = lru_cache(maxsize=2)(self._draw_plan)

    def _draw_plan(self, epoch: int) -> list[list[int]]:
        lengths = [len(w.ids) for w in self.windows]
        generator = np.random.default_rng([self.seed, epoch, 5])
        return shuffled_batches(lengths, rows=self.rows, generator=generator, tokens=24_000)

    def length(self, epoch: int) -> int:
        return len(self._plan(epoch))

    def rate_scale(self, batch: Batch) -> float:
        return 1.0

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        plan = self._plan(epoch)[start:]
        vectors = self.vectors
        return word_batches(
            self.windows, plan, self.pad_id, subword_pooling=self.subword_pooling, tags=self.tags, vectors=vectors
        )
