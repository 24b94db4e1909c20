"""Pooling: one vector a text from one vector a position."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from textgraft.data.sequences import Direction

Pooling = Callable[[Tensor, Tensor, Direction], Tensor]


def last(hidden: Tensor, mask: Tensor, direction: Direction = "left") -> Tensor:
    """h_T (B, D): the last real position of `hidden` (B, T, D), which depends on the whole text.

    For a right-to-left encoder (`direction` "right") this is the first position.
    """
    rows = torch.arange(hidden.shape[0], device=hidden.device)
    positions = torch.zeros_like(rows) if direction == "right" else (mask.sum(1) - 1).clamp(min=0)
    return hidden[rows, positions].masked_fill(~mask.any(1, keepdim=True), 0)


def first(hidden: Tensor, mask: Tensor, direction: Direction = "left") -> Tensor:
    """h_1 (B, D): the first real position of `hidden` (B, T, D), BERT's [CLS], whatever the direction."""
    rows = torch.arange(hidden.shape[0], device=hidden.device)
    return hidden[rows, mask.int().argmax(1)].masked_fill(~mask.any(1, keepdim=True), 0)


def mean(hidden: Tensor, mask: Tensor, direction: Direction = "left") -> Tensor:
    """Mean (B, D) of `hidden` (B, T, D) over the real positions."""
    total = hidden.masked_fill(~mask[..., None], 0).sum(1)
    return total / mask.sum(1, keepdim=True).clamp(min=1)


def maximum(hidden: Tensor, mask: Tensor, direction: Direction = "left") -> Tensor:
    """Maximum (B, D) of `hidden` (B, T, D) over the real positions."""
    largest = hidden.masked_fill(~mask[..., None], -torch.inf).amax(1)
    return largest.masked_fill(~mask.any(1, keepdim=True), 0)


def concat(hidden: Tensor, mask: Tensor, direction: Direction = "left") -> Tensor:
    """[h_T, maxpool(H), meanpool(H)] (B, 3 D): "concat pooling" (Howard & Ruder 2018, section 3.3)."""
    return torch.cat([pooling(hidden, mask, direction) for pooling in (last, maximum, mean)], dim=-1)


POOLINGS: dict[str, Pooling] = {"concat": concat, "first": first, "last": last, "max": maximum, "mean": mean}
"""Functions of (hidden (B, T, D), mask (B, T) padded on the right, direction); a text of padding alone gives 0."""


def pooled_dim(name: str, output_dim: int) -> int:
    """Width of the result of the pooling `name` for vectors of width `output_dim`.

    >>> pooled_dim("concat", 400)
    1200
    """
    return 3 * output_dim if name == "concat" else output_dim
