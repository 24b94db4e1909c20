"""Attention: which positions look at which, and what they take from there."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from textgraft.nn.cpu.precision import Linear
from textgraft.nn.dropout import dropout as dropped


def causal(queries: int, keys: int, device: torch.device | None = None) -> Tensor:
    """(queries, keys) bool: each of the last `queries` of `keys` positions sees itself and all before it."""
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)


def banded(queries: int, keys: int, width: int, device: torch.device | None = None) -> Tensor:
    """(queries, keys) bool: `causal`, no further back than `width` - 1 positions (Child et al. 2019)."""
    seen = causal(queries, keys, device)
    return seen & ~seen.tril(-width + keys - queries)


def mixed_values(query: Tensor, key: Tensor, value: Tensor, seen: Tensor | None, dropout: float = 0.0) -> Tensor:
    """softmax(Q Kᵀ / sqrt(d)) V: queries (B, H, T, d), keys and values (B, H, S, d) -> (B, H, T, d).

    `seen` is bool and broadcasts to (B, H, T, S). torch's fused attention, but on a processor the two products written
    out with dropout, which it does not have there, and where gradients are wanted in bfloat16, for which its backward
    pass takes three to four times as long.
    """
    slow = query.dtype == torch.bfloat16 and query.requires_grad and torch.is_grad_enabled()
    if query.device.type != "cpu" or not (slow or dropout):
        return F.scaled_dot_product_attention(query, key, value, attn_mask=seen, dropout_p=dropout)
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(2, 3)
    if seen is not None:
        scores = scores + _never(seen, scores.dtype)
    weights = dropped(scores.softmax(dim=-1).to(value.dtype), dropout, training=True)
    return weights @ value


def _never(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where `seen` and the least number elsewhere: added to scores it costs a quarter of filling them, and again less
    for gradients, and all heads share it. Not -inf, for the sake of rows without a True."""
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, torch.finfo(dtype).min)


def _after(past: Tensor, start: int, new: Tensor) -> Tensor:
    """`new` (B, H, T, d) behind the first `start` positions of `past`, in its room if there is enough."""
    end = start + new.shape[2]
    if past.shape[2] < end:
        return torch.cat([past[:, :, :start], new], dim=2)
    past[:, :, start:end] = new
    return past


class Attention(nn.Module):
    """Multi-head scaled dot-product attention of a text to itself (Vaswani et al. 2017, §3.2).

    Queries, keys and values come out of one matrix product; (D, 3 D) of it in that order, heads side by side in each.
    """

    def __init__(self, dim: int, num_heads: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        if dim % num_heads:
            raise ValueError(f"{num_heads} heads do not divide a width of {dim}")
        self.num_heads, self.dropout = num_heads, dropout
        self.inputs = Linear(dim, 3 * dim)
        self.output = Linear(dim, dim)

    def forward(
        self, x: Tensor, seen: Tensor | None, past: tuple[Tensor, Tensor] | None = None, start: int | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """x (B, T, D) -> ((B, T, D), the keys and values (B, H, S, D / H) of all S positions).

        These begin with the first `start` positions of `past` (None: with all); where that has room behind them for T
        more, they are written there. `seen` is bool and broadcasts to (B, H, T, S), True where a position may look
        (None: everywhere). A position that may look nowhere gets zeros.
        """
        b, t, d = x.shape
        query, key, value = self.inputs(x).view(b, t, 3, self.num_heads, d // self.num_heads).permute(2, 0, 3, 1, 4)
        start = 0 if past is None else past[0].shape[2] if start is None else start
        if past is not None:
            key, value = _after(past[0], start, key), _after(past[1], start, value)
        dropout = self.dropout if self.training else 0.0
        mixed = mixed_values(query, key[:, :, : start + t], value[:, :, : start + t], seen, dropout)
        if seen is not None:
            mixed = mixed.masked_fill(~seen.any(dim=-1, keepdim=True), 0.0)
        return self.output(mixed.transpose(1, 2).reshape(b, t, d)), (key, value)
