"""Causal self-attention in blocks: local, and over memory-compressed keys and values.

Both are from the Transformer decoder with memory-compressed attention (Liu et al. 2018, arXiv:1801.10198, §4.2.4). A
text is divided into blocks of positions, counted over its real tokens, so that padding on either side moves no border.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from textgraft.nn.attention import Attention, attend, causal
from textgraft.nn.cpu.precision import Linear


@dataclass(frozen=True)
class Blocks:
    """Places of new tokens (B, T) in blocks of `size` positions, for all layers that use this size.

    A buffer holds, for each row, the tokens of its unfinished block, then the new real tokens without gaps.

    Args:
        size: Positions of a block.
        before: Mask (B, S) of the tokens before the new ones.
        new: Mask (B, T) of the new tokens.
    """

    size: int
    before: Tensor
    new: Tensor

    @property
    def carried(self) -> int:
        """Places of the buffer for unfinished blocks."""
        return min(self.size - 1, self.before.shape[1])

    @property
    def length(self) -> int:
        """Places of the buffer."""
        return self.carried + self.new.shape[1]

    @cached_property
    def past(self) -> Tensor:
        """Number of real tokens (B, 1) before the new ones."""
        return self.before.sum(dim=1, keepdim=True)

    @cached_property
    def counts(self) -> Tensor:
        """Number of real tokens (B, T) up to each new position, itself included."""
        return self.past + self.new.cumsum(dim=1)

    @cached_property
    def places(self) -> Tensor:
        """Place (B, T) of each new token in the buffer; padding is after the end."""
        return (self.past % self.size + self.counts - self.past - 1).masked_fill(~self.new, self.length)

    @cached_property
    def finished(self) -> Tensor:
        """Number of blocks (B, 1) that the new tokens complete."""
        return self.counts[:, -1:] // self.size - self.past // self.size

    def buffer(self, unfinished: Tensor | None, x: Tensor) -> Tensor:
        """x (B, T, F) after the tokens (B, carried, F) of unfinished blocks (None: zeros), (B, length, F)."""
        rest = x.new_zeros(len(x), (self.carried if unfinished is None else 0) + x.shape[1] + 1, x.shape[2])
        room = rest if unfinished is None else torch.cat([unfinished, rest], dim=1)
        return room.scatter(1, _columns(self.places, x), x)[:, : self.length]

    def unfinished(self, buffer: Tensor) -> Tensor:
        """Tokens of each row's last, unfinished block, with zeros up to the width that the next call expects."""
        width = min(self.size - 1, self.before.shape[1] + self.new.shape[1])
        offset = torch.arange(width, device=buffer.device)
        places = (self.finished * self.size + offset).clamp(max=self.length - 1)
        kept = buffer.gather(1, _columns(places, buffer))
        return kept.masked_fill((offset >= self.counts[:, -1:] % self.size)[..., None], 0.0)

    def memory(self, past: Tensor | None, blocks: Tensor) -> Tensor:
        """A vector of each complete block so far: those of `past` (B, C, F), then those of the buffer's blocks."""
        earlier, whole = self.before.shape[1] // self.size, (self.before.shape[1] + self.new.shape[1]) // self.size
        number = torch.arange(blocks.shape[1], device=blocks.device)
        places = (self.past // self.size + number).masked_fill(number >= self.finished, whole)
        memory = blocks.new_zeros(len(blocks), whole + 1 - (0 if past is None else earlier), blocks.shape[2])
        memory = memory if past is None else torch.cat([past, memory], dim=1)
        return memory.scatter(1, _columns(places, blocks), blocks)[:, :whole]

    def complete(self, blocks: int) -> Tensor:
        """Mask (B, 1, T, blocks): True for blocks without a later position than the new token's."""
        number = torch.arange(blocks, device=self.new.device)
        return (number < (self.counts // self.size)[..., None])[:, None]


def _columns(places: Tensor, x: Tensor) -> Tensor:
    """Places (B, N) as the index of `gather` and `scatter` on the second axis of x (B, any, F)."""
    return places[..., None].expand(-1, -1, x.shape[2])


class LocalAttention(Attention):
    """Attention of each position to its own block, up to itself: T·w scores for blocks of w, in place of T²."""

    def forward(  # type: ignore[override]
        self, x: Tensor, blocks: Blocks, past: tuple[Tensor, ...] | None = None, start: int | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """x (B, T, D) -> ((B, T, D), the keys and values (B, width, 2 D) of each row's unfinished block).

        Args:
            x: (B, T, D).
            blocks: Of the length of a local block.
            past: What the call before returned.
            start: Not used; the blocks know how many positions there are.
        """
        query, pair = self.inputs(x).tensor_split([x.shape[2]], dim=2)
        pairs = blocks.buffer(past[0] if past else None, pair)
        if blocks.length <= blocks.size:
            mask = torch.arange(blocks.length, device=x.device) <= blocks.places[:, None, :, None]
            key, value = pairs.chunk(2, dim=2)
            mixed = self._attend(query, key, value, mask)
        else:
            mixed = self._in_blocks(blocks.buffer(None, query), pairs, blocks.size)
            mixed = mixed.gather(1, _columns(blocks.places.clamp(max=blocks.length - 1), mixed))
        return self.output(mixed), (blocks.unfinished(pairs),)

    def _in_blocks(self, queries: Tensor, pairs: Tensor, size: int) -> Tensor:
        """Every block of a buffer (B, length, …) as a row of its own, (B, length or more, D)."""
        rest = -queries.shape[1] % size
        parts = (queries, *pairs.chunk(2, dim=2))
        query, key, value = (F.pad(part, (0, 0, 0, rest)).reshape(-1, size, part.shape[2]) for part in parts)
        mixed = self._attend(query, key, value, causal(size, size, queries.device))
        return mixed.view(len(queries), -1, queries.shape[2])

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """Attend with all heads: queries (B, T, D), keys and values (B, S, D) -> (B, T, D)."""
        query, key, value = (part.unflatten(2, (self.num_heads, -1)).transpose(1, 2) for part in (query, key, value))
        attended = attend(query, key, value, mask, self.dropout if self.training else 0.0)
        return attended.transpose(1, 2).flatten(2)


class CompressedAttention(LocalAttention):
    """Attention to keys and values that a strided convolution compresses: T²/c scores in place of T².

    Kernel and stride are both c, so that the convolution is one matrix product with each block of c positions. A
    position attends to the blocks that end with it or before it: none sees a later token. The first c - 1 positions
    have no such block and attend to nothing.

    Args:
        dim: D.
        num_heads: Number of heads.
        size: c, the positions of a block.
        dropout: Rate of dropout on the attention weights.
    """

    def __init__(self, dim: int, num_heads: int, size: int, *, dropout: float = 0.0) -> None:
        super().__init__(dim, num_heads, dropout=dropout)
        self.keys = Linear(size * dim, dim)
        self.values = Linear(size * dim, dim)

    def forward(  # type: ignore[override]
        self, x: Tensor, blocks: Blocks, past: tuple[Tensor, ...] | None = None, start: int | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """x (B, T, D) -> ((B, T, D), as of LocalAttention, and the compressed keys and values (B, C, 2 D)).

        Args:
            x: (B, T, D).
            blocks: Of the size of the convolution.
            past: What the call before returned.
            start: Not used; the blocks know how many positions there are.
        """
        query, pair = self.inputs(x).tensor_split([x.shape[2]], dim=2)
        unfinished, earlier = past or (None, None)
        pairs = blocks.buffer(unfinished, pair)
        memory = blocks.memory(earlier, self.compressed(pairs, blocks.size))
        mask = blocks.complete(memory.shape[1])
        mixed = torch.zeros_like(query)
        if memory.shape[1]:
            key, value = memory.chunk(2, dim=2)
            mixed = self._attend(query, key, value, mask)
            mixed = mixed.masked_fill(~mask.any(dim=3)[:, 0, :, None], 0.0)
        return self.output(mixed), (blocks.unfinished(pairs), memory)

    def compressed(self, pairs: Tensor, size: int) -> Tensor:
        """Keys and values (B, T, 2 D) -> (B, T // size, 2 D), of the whole blocks."""
        whole = pairs.shape[1] // size
        key, value = (part.flatten(2) for part in pairs[:, : whole * size].unflatten(1, (whole, size)).chunk(2, dim=3))
        return torch.cat([self.keys(key), self.values(value)], dim=2)
