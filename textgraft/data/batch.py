"""Batches: token ids with their mask."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from textgraft.data.sequences import PairIds, Rows, TokenIds, budget_batches, numbered

IGNORE = -100
"""The target of a position without one, as torch's cross entropy has it."""


@dataclass(frozen=True)
class Batch:
    """B texts of at most T positions, padded on the right.

    With `groups` several rows make one example, of which there are E <= B; `targets` and `rows` are then of these.

    `targets` is whatever the head wants: (B, T) next-token ids for a language model, (B,) class numbers, (B, C)
    floats for multi-label, (B,) floats for a numeric target, (B, 2) positions of an answer's first and last token,
    (B, W) tags of words, (B, T, 2) next and previous words for a language model that reads both ways.

    With `character_ids` (text.character_encoding) `ids` say which of these stands where: each distinct word is spelled
    once. A language model that carries both its directions on over a long text reads it from both ends at a time: then
    `from_right` is a window of its own, whose last column comes first.
    """

    ids: Tensor  # (B, T) int64
    mask: Tensor  # (B, T) bool, True = a real position
    targets: Tensor | None = None
    rows: Tensor | None = None  # (B,) which example each row is, so that results return in the order they came
    segments: Tensor | None = None  # (B, T) int64, the first text of a pair or the second, for encoders that ask
    groups: Tensor | None = None  # (B,) int64, ascending from 0: which example each row is of; None: each its own
    pair_targets: Tensor | None = None  # (B,) int64, 0 where the second text of a pair follows the first, 1 where not
    answerable: Tensor | None = None  # (B, T) bool, True = an answer to a question may begin or end here
    words: Tensor | None = None  # (B, W) int64, the position that speaks for each word, -1 where there are no more
    character_ids: Tensor | None = None  # (U, C) int64, the characters of the words that `ids` number, 0 being padding
    from_right: Tensor | None = None  # (B, T) int64, what the direction from the right reads, if it is not `ids`
    vectors: Tensor | None = None  # (B, T, D) what frozen models say of the words at these positions (word_features)
    seen: Tensor | None = None  # (E, D) what a classifier's head sees of each example, where the encoder has said it

    def to(self, device: torch.device) -> Batch:
        """This batch on `device`; a GPU copies it out of pinned memory while the processor goes on."""
        if self.ids.device == device:
            return self

        def moved(tensor: Tensor) -> Tensor:
            return (tensor.pin_memory() if device.type == "cuda" else tensor).to(device, non_blocking=True)

        present = {name: value for name, value in vars(self).items() if value is not None}
        return replace(self, **{name: moved(value) for name, value in present.items()})

    def with_targets(self, targets: Tensor) -> Batch:
        return replace(self, targets=targets)

    def parts(self, positions: int) -> list[Batch]:
        """This batch in parts of at most so many positions, or of one row, rows of like length together.

        Each part is as wide as its longest row, where targets are not of positions themselves. Rows that make one
        example, or share spellings, stay together: then it is the whole batch.
        """
        if self.ids.numel() <= positions or self.groups is not None or self.character_ids is not None:
            return [self]
        widths = (self.mask * torch.arange(1, self.mask.shape[1] + 1)).amax(dim=1).clamp(min=1)
        if self.targets is not None and self.targets.shape[1:2] == self.ids.shape[1:]:
            widths = torch.full_like(widths, self.ids.shape[1])
        lengths = widths.tolist()
        return [
            self._rows(torch.tensor(rows), max(lengths[row] for row in rows))
            for rows in budget_batches(lengths, tokens=positions, rows=len(lengths))
        ]

    def _rows(self, rows: Tensor, width: int) -> Batch:
        taken = {name: value[rows] for name, value in vars(self).items() if value is not None}
        cut = {name: taken[name][:, :width] for name in OF_POSITIONS if name in taken}
        return replace(self, **(taken | cut))


OF_POSITIONS = ("ids", "mask", "segments", "answerable", "from_right", "vectors")
"""What a batch holds for each position, its targets aside."""


def pad(examples: Sequence[TokenIds], pad_id: int) -> Batch:
    """Examples of unequal length as one right-padded batch, with segments where there are pairs."""
    bundles = [example.rows if isinstance(example, Rows) else (example,) for example in examples]
    rows = [row for bundle in bundles for row in bundle]
    batch = _padded([row.ids if isinstance(row, PairIds) else row for row in rows], pad_id)
    if any(isinstance(row, PairIds) for row in rows):
        starts = torch.tensor([row.start if isinstance(row, PairIds) else len(row) for row in rows])
        batch = replace(batch, segments=((torch.arange(batch.ids.shape[1]) >= starts[:, None]) & batch.mask).long())
    if any(isinstance(example, Rows) for example in examples):
        sizes = torch.tensor([len(bundle) for bundle in bundles])
        batch = replace(batch, groups=torch.arange(len(bundles)).repeat_interleave(sizes))
    return batch


def _padded(sequences: Sequence[np.ndarray], pad_id: int) -> Batch:
    if sequences[0].ndim == 2:
        return _spelled(sequences, pad_id)
    lengths = torch.tensor([len(s) for s in sequences])
    ids = torch.full((len(sequences), int(lengths.max())), pad_id, dtype=torch.int64)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence)] = torch.from_numpy(np.asarray(sequence, dtype=np.int64))
    return Batch(ids=ids, mask=torch.arange(ids.shape[1]) < lengths[:, None])


def _spelled(sequences: Sequence[np.ndarray], pad_id: int) -> Batch:
    """Spellings (T, C) as numbers of the distinct words among them."""
    ids, character_ids = numbered(sequences, pad_id + 1)
    return replace(_padded(ids, pad_id), character_ids=torch.from_numpy(character_ids))


def iterate(
    sequences: Sequence[TokenIds],
    batches: Sequence[Sequence[int]],
    pad_id: int,
    targets: Tensor | None = None,
) -> Iterator[Batch]:
    """The padded batches for lists of indices, each with its `rows` and, where given, its slice of `targets`."""
    for indices in batches:
        rows = torch.tensor(list(indices))
        batch = pad([sequences[i] for i in indices], pad_id)
        yield replace(batch, rows=rows, targets=None if targets is None else targets[rows])
