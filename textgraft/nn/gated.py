"""Gated feed-forward layers: GeGLU and SwiGLU."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F

from textgraft.core.errors import UserError, did_you_mean
from textgraft.nn.cpu.precision import Linear
from textgraft.nn.dropout import dropout

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"gelu": F.gelu, "silu": F.silu}
"""Activation of the gate: an exact GELU makes a GeGLU, a SiLU a SwiGLU."""


class GatedFeedForward(nn.Module):
    """narrow(activation(g) · u), where one matrix product of the input gives the gate g and the values u.

    Shazeer 2020 (arXiv:2002.05202). The rows of `wide` are those of the gate, then those of the values.

    Args:
        dim: D.
        hidden_dim: Width of the gate and of the values.
        activation: Name in ACTIVATIONS.
        bias: Both layers have biases.
        dropout: Dropout before `narrow`.
    """

    def __init__(self, dim: int, hidden_dim: int, activation: str, *, bias: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            remedy = did_you_mean(activation, ACTIVATIONS)
            raise UserError(f"unknown activation '{activation}'.", where="activation", remedy=remedy)
        self.activation, self.dropout = activation, dropout
        self.wide = Linear(dim, 2 * hidden_dim, bias=bias)
        self.narrow = Linear(hidden_dim, dim, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """x (…, D) -> (…, D)."""
        gate, values = self.wide(x).chunk(2, dim=-1)
        hidden = ACTIVATIONS[self.activation](gate) * values
        narrowed: Tensor = self.narrow(dropout(hidden, self.dropout, self.training))
        return narrowed
