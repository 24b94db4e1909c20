"""Batches and a training stream of question windows (data.windows)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch

from textgraft.data.batch import Batch, iterate
from textgraft.data.sequences import shuffled_batches
from textgraft.data.streams.per_epoch import PerEpoch
from textgraft.data.windows import Window


def window_batches(windows: Sequence[Window], batches: Sequence[Sequence[int]], pad_id: int) -> Iterator[Batch]:
    """Padded batches of the windows at each list of indices, with segments, answerable positions and targets (B, 2)."""
    targets = torch.tensor([w.target for w in windows], dtype=torch.int64).reshape(-1, 2)
    for indices, batch in zip(batches, iterate([w.ids for w in windows], batches, pad_id, targets), strict=True):
        second = torch.tensor([windows[i].second for i in indices])
        answerable = torch.zeros_like(batch.mask)
        for row, index in enumerate(indices):
            inside = torch.from_numpy(windows[index].answerable)
            answerable[row, : len(inside)] = inside
        after = torch.arange(batch.ids.shape[1]) >= second[:, None]
        yield replace(batch, segments=(after & batch.mask).long(), answerable=answerable)


class WindowStream:
    """Windows in random batches of similar length (a stream as in data.streams.base).

    Args:
        windows: The windows.
        pad_id: Id of padding positions.
        rows: Batch size.
        tokens: Most positions of a batch.
        seed: Seed of the order.
    """

    stateful = False

    def __init__(
        self, windows: Sequence[Window], *, pad_id: int, rows: int = 16, tokens: int = 24_000, seed: int = 0
    ) -> None:
        self.windows, self.pad_id, self.rows, self.tokens, self.seed = windows, pad_id, rows, tokens, seed
        self._plan = PerEpoch(self._draw_plan)

    def _draw_plan(self, epoch: int) -> list[list[int]]:
        lengths = [len(w.ids) for w in self.windows]
        generator = np.random.default_rng([self.seed, epoch, 4])
        return shuffled_batches(lengths, rows=self.rows, generator=generator, tokens=self.tokens)

    def length(self, epoch: int) -> int:
        return len(self._plan(epoch))

    def rate_scale(self, batch: Batch) -> float:
        return 1.0

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        return window_batches(self.windows, self._plan(epoch)[start:], self.pad_id)
