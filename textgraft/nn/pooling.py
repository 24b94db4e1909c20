"""Pooling: one vector a text from one vector a position."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from textgraft.core.errors import UserError, did_you_mean
from textgraft.data.sequences import Direction

Pooling = Callable[[Tensor, Tensor, Direction], Tensor]


def last(hidden: Tensor, mask: Tensor, direction: Direction = "left") -> Tensor:
    """h_T (B, D): the last real position of `hidden` (B, T, D), which depends on the whole text.

    For a right-to-left encoder (`direction` "right") this is the first position.
    """
    rows = torch.arange(hidden.shape[0], device=hidden.device)
    positions = torch.zeros_like(rows)
    if direction != "right":
        positions = (torch.arange(mask.shape[1], device=mask.device) * mask).amax(1)
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


def mean_sqrt(hidden: Tensor, mask: Tensor, direction: Direction = "left") -> Tensor:
    """Sum (B, D) of `hidden` (B, T, D) over the real positions, divided by the square root of their number."""
    total = hidden.masked_fill(~mask[..., None], 0).sum(1)
    return total / mask.sum(1, keepdim=True).clamp(min=1).sqrt()


def weighted_mean(hidden: Tensor, mask: Tensor, direction: Direction = "left") -> Tensor:
    """Mean (B, D) of `hidden` (B, T, D) over the real positions, weighted by 1, 2, … (Muennighoff 2022, "SGPT").

    A position that sees only those before it knows more of the text the later it is (arXiv:2202.08904, section 3).
    """
    weights = torch.arange(1, mask.shape[1] + 1, device=mask.device) * mask
    total = (hidden.masked_fill(~mask[..., None], 0) * weights[..., None]).sum(1)
    return total / weights.sum(1, keepdim=True).clamp(min=1)


POOLINGS: dict[str, Pooling] = {
    "concat": concat,
    "first": first,
    "last": last,
    "max": maximum,
    "mean": mean,
    "mean_sqrt": mean_sqrt,
    "weighted_mean": weighted_mean,
}
"""Functions of (hidden (B, T, D), mask (B, T) padded on the right, direction); a text of padding alone gives 0."""
JOIN = "+"
"""Between the names of poolings whose results are concatenated, as in "first+mean"."""


def validate_pooling(name: str, *others: str) -> None:
    """Raise UserError unless `name` is one of POOLINGS, several joined by +, or one of `others`."""
    known = (*POOLINGS, *others)
    for part in [name] if name in others else str(name).split(JOIN):
        if part not in known:
            raise UserError(f"unknown pooling '{part}'.", remedy=did_you_mean(part, known))


def pool(name: str, hidden: Tensor, mask: Tensor, direction: Direction = "left") -> Tensor:
    """Pool `hidden` (B, T, D) by the pooling `name`, or by each of several names joined by +, side by side."""
    parts = [POOLINGS[part](hidden, mask, direction) for part in name.split(JOIN)]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)


def pooled_dim(name: str, output_dim: int) -> int:
    """Width of the result of the pooling `name` for vectors of width `output_dim`.

    >>> pooled_dim("concat", 400), pooled_dim("first+mean", 400)
    (1200, 800)
    """
    return sum(3 * output_dim if part == "concat" else output_dim for part in name.split(JOIN))
