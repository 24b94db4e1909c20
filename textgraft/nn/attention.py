"""Multi-head self-attention and its masks."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from textgraft.nn.cpu.precision import Linear
from textgraft.nn.dropout import dropout as dropped
from textgraft.nn.unpadding import Unpadding, padded, unpadded


def causal(queries: int, keys: int, device: torch.device | None = None) -> Tensor:
    """Causal mask (queries, keys): each of the last `queries` of `keys` positions attends to itself and all before it.

    >>> causal(2, 3).int().tolist()
    [[1, 1, 0], [1, 1, 1]]
    """
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)


def banded(queries: int, keys: int, width: int, device: torch.device | None = None) -> Tensor:
    """Banded mask (queries, keys): `causal`, at most `width` - 1 positions back (Child et al. 2019)."""
    mask = causal(queries, keys, device)
    return mask & ~mask.tril(-width + keys - queries)


def surrounding(length: int, width: int, device: torch.device | None = None) -> Tensor:
    """Local mask (length, length): each position attends to itself and at most `width` positions on either side.

    >>> surrounding(3, 1).int().tolist()
    [[1, 1, 0], [1, 1, 1], [0, 1, 1]]
    """
    return torch.ones(length, length, dtype=torch.bool, device=device).tril(width).triu(-width)


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float = 0.0) -> Tensor:
    """softmax(Q Kᵀ / sqrt(d)) V: queries (B, H, T, d), keys and values (B, H, S, d) -> (B, H, T, d).

    Uses torch's fused attention, except on CPU with dropout, which it lacks there, and on CPU in bfloat16 with
    gradients, where its backward pass takes three to four times as long.

    Args:
        query: (B, H, T, d).
        key: (B, H, S, d).
        value: (B, H, S, d).
        mask: Broadcast to (B, H, T, S): bool, True where a position may attend, or a number that is added to the scores
            (None: a position attends to all).
        dropout: Rate of dropout on the attention weights.
    """
    if mask is not None and mask.is_floating_point():
        mask = mask.to(query.dtype)
    slow = query.dtype == torch.bfloat16 and query.requires_grad and torch.is_grad_enabled()
    if query.device.type != "cpu" or not (slow or dropout):
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(2, 3)
    if mask is not None:
        scores = scores + (additive_mask(mask, scores.dtype) if mask.dtype == torch.bool else mask)
    weights = dropped(scores.softmax(dim=-1).to(value.dtype), dropout, training=True)
    return weights @ value


def attend_nearby(query: Tensor, key: Tensor, value: Tensor, real: Tensor, width: int, dropout: float = 0.0) -> Tensor:
    """`attend` with the mask of `surrounding`, in blocks: the cost grows with the length, not with its square.

    The positions are divided into blocks of `width`; those of a block attend to it and to its two neighbours only.

    Args:
        query: (B, H, T, d), keys and values alike.
        key: Keys.
        value: Values.
        real: Bool (B or 1, T), True at positions that may be attended to.
        width: Positions on either side.
        dropout: Rate of dropout on the attention weights.
    """
    b, h, t, d = query.shape
    blocks = -(-t // width)
    rest = blocks * width - t
    queries = F.pad(query, (0, 0, 0, rest)).view(b, h, blocks, width, d).transpose(1, 2).reshape(-1, h, width, d)
    keys, values = (
        F.pad(part, (0, 0, width, width + rest)).unfold(2, 3 * width, width).permute(0, 2, 1, 4, 3).flatten(0, 1)
        for part in (key, value)
    )
    present = F.pad(real, (width, width + rest)).unfold(1, 3 * width, width)  # (B or 1, blocks, 3 width)
    offset = torch.arange(3 * width, device=real.device) - torch.arange(width, 2 * width, device=real.device)[:, None]
    mask = (offset.abs() <= width) & present[:, :, None, :]
    mask = mask.expand(b, -1, -1, -1).reshape(b * blocks, 1, width, 3 * width)
    attended = attend(queries, keys, values, mask, dropout)
    attended = attended.masked_fill(~mask.any(dim=-1, keepdim=True), 0.0)
    return attended.view(b, blocks, h, width, d).transpose(1, 2).reshape(b, h, blocks * width, d)[:, :, :t]


def additive_mask(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where `mask` is True and the smallest number elsewhere; adding it costs a quarter of masked_fill, and less for
    gradients, and is shared by all heads. Not -inf, for rows without a True.
    """
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, torch.finfo(dtype).min)


def appended(past: Tensor, start: int, new: Tensor) -> Tensor:
    """`new` (B, H, T, d) after the first `start` positions of `past`, written in place if there is room."""
    end = start + new.shape[2]
    if past.shape[2] < end:
        return torch.cat([past[:, :, :start], new], dim=2)
    past[:, :, start:end] = new
    return past


class Attention(nn.Module):
    """Multi-head scaled dot-product self-attention (Vaswani et al. 2017, §3.2).

    One matrix product, with weights (D, 3 D), gives queries, keys and values, in that order, heads concatenated in
    each.
    """

    def __init__(self, dim: int, num_heads: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        if dim % num_heads:
            raise ValueError(f"{num_heads} heads do not divide a width of {dim}")
        self.num_heads, self.dropout = num_heads, dropout
        self.inputs = Linear(dim, 3 * dim)
        self.output = Linear(dim, dim)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None,
        past: tuple[Tensor, Tensor] | None = None,
        start: int | None = None,
        *,
        unpadding: Unpadding | None = None,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """x (B, T, D) -> ((B, T, D), the keys and values (B, H, S, D / H) of all S positions).

        A position that may attend to nothing gets zeros, unless numbers say so.

        Args:
            x: (B, T, D).
            mask: As in `attend`.
            past: Keys and values of previous positions; where they have room for T more, the new ones are written
                there.
            start: Number of positions of `past` to use (None: all).
            unpadding: `x` and the result are (N, D), the positions of a batch with a token (None: all are there).
        """
        inputs = padded(self.inputs(x), unpadding)
        b, t, d = *inputs.shape[:2], x.shape[-1]
        query, key, value = inputs.view(b, t, 3, self.num_heads, d // self.num_heads).permute(2, 0, 3, 1, 4)
        start = 0 if past is None else past[0].shape[2] if start is None else start
        if past is not None:
            key, value = appended(past[0], start, key), appended(past[1], start, value)
        dropout = self.dropout if self.training else 0.0
        attended = attend(query, key[:, :, : start + t], value[:, :, : start + t], mask, dropout)
        if mask is not None and mask.dtype == torch.bool:
            attended = attended.masked_fill(~mask.any(dim=-1, keepdim=True), 0.0)
        return self.output(unpadded(attended.transpose(1, 2).reshape(b, t, d), unpadding)), (key, value)
