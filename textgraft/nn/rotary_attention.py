"""Multi-head attention with rotary positions and grouped queries."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from textgraft.core.errors import UserError
from textgraft.nn.attention import appended, attend, attend_nearby
from textgraft.nn.cpu.precision import Linear
from textgraft.nn.rms_norm import RMSNorm
from textgraft.nn.rotary import Rotation, rotated
from textgraft.nn.unpadding import Unpadding, padded, unpadded


class RotaryAttention(nn.Module):
    """Self-attention in which several query heads may share a head of keys and values.

    Ainslie et al. 2023 (arXiv:2305.13245); with as many key heads as query heads it is that of Vaswani et al. 2017. One
    matrix product gives the queries, keys and values, in that order, heads concatenated in each. Queries and keys are
    rotated (nn.rotary), optionally after an RMSNorm of each head.

    Args:
        dim: D.
        num_heads: Number of query heads.
        num_key_value_heads: Number of heads of keys and values, a divisor of `num_heads`.
        head_dim: Width d of a head.
        input_bias: Queries, keys and values have biases.
        output_bias: The output layer has a bias.
        norm_eps: Epsilon of the norms of queries and keys; None leaves these out.
        dropout: Dropout of the attention weights.

    Raises:
        UserError: The numbers of heads do not fit together, or `head_dim` is odd.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        num_key_value_heads: int,
        head_dim: int,
        *,
        input_bias: bool = False,
        output_bias: bool = False,
        norm_eps: float | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if num_key_value_heads < 1 or num_heads % num_key_value_heads:
            message = f"{num_heads} query heads cannot share {num_key_value_heads} heads of keys and values evenly."
            raise UserError(message, where="num_key_value_heads", remedy="Make num_heads a multiple of it.")
        if head_dim % 2:
            message = f"heads of width {head_dim} cannot be rotated, which takes pairs of components."
            raise UserError(message, where="head_dim", remedy="Make it even.")
        self.num_heads, self.num_key_value_heads, self.head_dim = num_heads, num_key_value_heads, head_dim
        self.dropout = dropout
        self.inputs = Linear(dim, (num_heads + 2 * num_key_value_heads) * head_dim, bias=input_bias)
        self.output = Linear(num_heads * head_dim, dim, bias=output_bias)
        self.query_norm = None if norm_eps is None else RMSNorm(head_dim, eps=norm_eps)
        self.key_norm = None if norm_eps is None else RMSNorm(head_dim, eps=norm_eps)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None,
        by: Rotation | None,
        past: tuple[Tensor, Tensor] | None = None,
        start: int | None = None,
        *,
        window: int | None = None,
        unpadding: Unpadding | None = None,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """x (B, T, D) -> ((B, T, D), the rotated keys and the values (B, K, S, d) of all S positions).

        A position that may attend to nothing gets zeros.

        Args:
            x: (B, T, D).
            mask: Bool (1 or B, 1, 1 or T, S), True where a position may attend (None: everywhere).
            by: The rotation at the T positions (None: no positions).
            past: Keys and values of previous positions; where they have room for T more, the new ones are written
                there.
            start: Number of positions of `past` to use (None: all).
            window: Attend to at most so many positions on either side, in blocks (nn.attention.attend_nearby); without
                `past`, and with a mask (1 or B, 1, 1, T).
            unpadding: `x` and the result are (N, D), the positions of a batch with a token (None: all are there).
        """
        inputs = padded(self.inputs(x), unpadding)
        b, t, _ = inputs.shape
        heads = inputs.view(b, t, -1, self.head_dim)
        sizes = [self.num_heads, self.num_key_value_heads, self.num_key_value_heads]
        query, key, value = heads.split(sizes, dim=2)
        if self.query_norm is not None and self.key_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        query, key, value = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
        if by is not None:
            query, key = rotated(query, by), rotated(key, by)
        start = 0 if past is None else past[0].shape[2] if start is None else start
        if past is not None:
            key, value = appended(past[0], start, key), appended(past[1], start, value)
        attended = self._attend(query, key[:, :, : start + t], value[:, :, : start + t], mask, window)
        if mask is not None:
            attended = attended.masked_fill(~mask.any(dim=-1, keepdim=True), 0.0)
        return self.output(unpadded(attended.transpose(1, 2).reshape(b, t, -1), unpadding)), (key, value)

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, window: int | None) -> Tensor:
        """Attention of the query heads (B, H, T, d) to the K heads of keys and values that they share."""
        dropout = self.dropout if self.training else 0.0
        shared = self.num_heads // self.num_key_value_heads
        b, _, t, d = query.shape
        if (
            shared > 1 and t == 1
        ):  # in generation: query heads of a group as positions, so that the whole cache is not repeated
            grouped = attend(query.view(b, -1, shared, d), key, value, mask, dropout)
            return grouped.reshape(b, self.num_heads, 1, d)
        if shared > 1:
            key, value = (torch.repeat_interleave(part, shared, dim=1) for part in (key, value))
        if window is not None:
            assert mask is not None
            return attend_nearby(query, key, value, mask[:, 0, 0], window, dropout)
        return attend(query, key, value, mask, dropout)
