"""Batches: padded token ids with their mask."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from textgraft.core.processes import Processes
from textgraft.data.sequences import PairIds, Rows, TokenIds, budget_batches, number_distinct

IGNORE = -100
"""Target of a position without one; the ignore_index of torch's cross entropy."""


@dataclass(frozen=True)
class Batch:
    """B rows of at most T positions, padded on the right.

    With `groups` several rows form one example; there are then E <= B examples, and `targets` and `rows` belong to
    these.

    The shape of `targets` depends on the head: (B, T) next-token ids for a language model, (B,) class numbers, (B, C)
    floats for multi-label, (B,) floats for a numeric target, (B, 2) first and last token of an answer, (B, W) tags of
    words, (B, T, 2) next and previous words for a bidirectional language model.

    With `character_ids` (character encodings, text.character_encoding) `ids` are row numbers of `character_ids`: each
    distinct word is encoded once. A bidirectional language model that carries state over a long text reads it from both
    ends at the same time; `from_right` is then a separate window, last column first.
    """

    ids: Tensor  # (B, T) int64
    mask: Tensor  # (B, T) bool, False = padding
    targets: Tensor | None = None
    rows: Tensor | None = None  # (B,) index of each example in the data set, to restore the order of results
    segments: Tensor | None = None  # (B, T) int64, 0 for the first text of a pair, 1 for the second
    groups: Tensor | None = None  # (B,) int64, ascending from 0: the example that each row belongs to; None: one each
    pair_targets: Tensor | None = None  # (B,) int64, 0 if the second text of a pair follows the first, else 1
    answerable: Tensor | None = None  # (B, T) bool, True = an answer to a question may begin or end here
    words: Tensor | None = None  # (B, W) int64, position of each word (subword pooling), -1 = padding
    character_ids: Tensor | None = None  # (U, C) int64, character encodings of the words that `ids` number, 0 = padding
    from_right: Tensor | None = None  # (B, T) int64, input of the right-to-left direction, if it is not `ids`
    vectors: Tensor | None = None  # (B, T, D) word vectors of frozen models at these positions (word_features)
    order: Tensor | None = None  # (B, T) int64, place in a factorisation order (XLNet): 1, 2, ...; 0 = seen by all
    languages: Tensor | None = None  # (B, T) int64, the language of each text of a pair, by its number in the model
    features: Tensor | None = None  # (E, D) input of a classifier's head for each example, where it has been computed

    def to(self, device: torch.device) -> Batch:
        """Copy to a device; copies to a GPU are asynchronous, out of pinned memory."""
        if self.ids.device == device:
            return self

        def moved(tensor: Tensor) -> Tensor:
            return (tensor.pin_memory() if device.type == "cuda" else tensor).to(device, non_blocking=True)

        present = {name: value for name, value in vars(self).items() if value is not None}
        return replace(self, **{name: moved(value) for name, value in present.items()})

    def with_targets(self, targets: Tensor) -> Batch:
        """A copy with other targets."""
        return replace(self, targets=targets)

    def parts(self, positions: int) -> list[Batch]:
        """Split into parts of at most `positions` positions, or of one row; rows of similar length are together.

        Each part is as wide as its longest row, unless targets are per position. Batches whose rows form groups or
        share spellings are not split.

        Args:
            positions: Most positions, padding included, of a part of several rows.

        Returns:
            The parts; the batch itself where it is small enough or cannot be split.
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

    @property
    def num_examples(self) -> int:
        """E, the number of rows or of groups of these."""
        return len(self.ids) if self.groups is None else int(self.groups[-1]) + 1

    def share(self, processes: Processes) -> Batch:
        """The examples of this process: consecutive ones; none where there are fewer examples than processes."""
        if not processes.several:
            return self
        own = processes.share(self.num_examples)
        if self.groups is None:
            return replace(self, **{name: v[own] for name, v in self._present() if name not in SHARED})
        rows = (self.groups >= own.start) & (self.groups < own.stop)
        of_examples = ("targets", "rows", "features")
        kept = {n: v[own] if n in of_examples else v[rows] for n, v in self._present() if n not in SHARED}
        return replace(self, **(kept | {"groups": self.groups[rows] - own.start}))

    def _present(self) -> Iterator[tuple[str, Tensor]]:
        return ((name, value) for name, value in vars(self).items() if value is not None)

    def _rows(self, rows: Tensor, width: int) -> Batch:
        selected = {name: value[rows] for name, value in self._present()}
        cut = {name: selected[name][:, :width] for name in OF_POSITIONS if name in selected}
        return replace(self, **(selected | cut))


SHARED = ("character_ids",)
"""Names of the tensors that all rows share."""
OF_POSITIONS = ("ids", "mask", "segments", "answerable", "from_right", "vectors", "order", "languages")
"""Names of the tensors that have a value for each position, besides targets."""


def pad(examples: Sequence[TokenIds], pad_id: int) -> Batch:
    """Right-pad examples of unequal length into one batch, with segments for pairs and groups for `Rows`.

    Args:
        examples: Token ids of B examples.
        pad_id: Id of padding positions.

    >>> batch = pad([np.array([5, 6, 7]), np.array([8])], pad_id=0)
    >>> batch.ids.tolist(), batch.mask.sum(1).tolist()
    ([[5, 6, 7], [8, 0, 0]], [3, 1])
    """
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
    """Character encodings (T, C) as numbers of the distinct words."""
    ids, character_ids = number_distinct(sequences, pad_id + 1)
    return replace(_padded(ids, pad_id), character_ids=torch.from_numpy(character_ids))


def iterate(
    sequences: Sequence[TokenIds],
    batches: Sequence[Sequence[int]],
    pad_id: int,
    targets: Tensor | None = None,
) -> Iterator[Batch]:
    """Padded batches of the examples at each list of indices.

    Args:
        sequences: Token ids of all examples.
        batches: Indices of the examples in each batch.
        pad_id: Id of padding positions.
        targets: Targets of all examples, first dimension N.

    Yields:
        Batches with their `rows` and, if given, their part of `targets`.
    """
    for indices in batches:
        rows = torch.tensor(list(indices))
        batch = pad([sequences[i] for i in indices], pad_id)
        yield replace(batch, rows=rows, targets=None if targets is None else targets[rows])
