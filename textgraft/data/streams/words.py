"""Batches and a training stream of word windows (data.words)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from textgraft.data.batch import IGNORE, Batch, iterate
from textgraft.data.sequences import shuffled_batches
from textgraft.data.streams.per_epoch import PerEpoch
from textgraft.data.tags import SubwordPooling
from textgraft.data.words import WordWindow

Vectors = Callable[[Sequence[int]], Sequence[np.ndarray]]
"""Function from sentence indices to the vectors (W, D) of all their words."""


def word_batches(
    windows: Sequence[WordWindow],
    batches: Sequence[Sequence[int]],
    pad_id: int,
    *,
    subword_pooling: SubwordPooling,
    tags: Sequence[np.ndarray] | None = None,
    vectors: Vectors | None = None,
) -> Iterator[Batch]:
    """Padded batches of the windows at each list of indices.

    Args:
        windows: All windows.
        batches: Indices of the windows in each batch.
        pad_id: Id of padding positions.
        subword_pooling: Subword that represents a word.
        tags: Tag numbers of each sentence, for targets (B, W).
        vectors: Word vectors, for sentences whose words are one token each.

    Yields:
        Batches with `words` (B, W) and, if given, targets and vectors.
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
                window_tags = tags[window.sentence][window.start : window.start + count]
                targets[row, :count] = torch.from_numpy(window_tags.astype(np.int64))
        position_vectors = None if vectors is None else _vectors_at_positions(vectors, chosen, batch.ids.shape[1])
        yield replace(batch, words=words, targets=None if tags is None else targets, vectors=position_vectors)


def _vectors_at_positions(vectors: Vectors, windows: Sequence[WordWindow], width: int) -> Tensor:
    """Word vectors (B, T, D), float32, at their positions; zeros at special tokens and padding."""
    sentence_vectors = vectors([window.sentence for window in windows])
    result = torch.zeros(len(windows), width, sentence_vectors[0].shape[1])
    for row, window, word_vectors in zip(result, windows, sentence_vectors, strict=True):
        first, last = window.shown
        begin = int(window.spans[0, 0]) - (window.start - first)
        row[begin : begin + last - first] = torch.from_numpy(np.array(word_vectors[first:last]))
    return result


class WordStream:
    """Windows with tags in random batches of similar length (a stream as in data.streams.base).

    Args:
        windows: The windows.
        tags: Tag numbers of each sentence.
        pad_id: Id of padding positions.
        subword_pooling: Subword that represents a word.
        rows: Batch size.
        seed: Seed of the order.
        vectors: Word vectors, see `word_batches`.
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
        self._plan = PerEpoch(self._draw_plan)

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
