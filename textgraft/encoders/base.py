"""The one seam: every family of language model meets every task as an `Encoder`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn

from textgraft.data.batch import Batch

Direction = Literal["left", "right", "both"]
State = tuple[tuple[Tensor, ...], ...]
"""What a recurrent encoder hands from one window of text to the next: per layer a tuple of (B, ...) tensors."""


@dataclass
class Encoded:
    """What an encoder says of a batch of B texts, T positions each."""

    top: Tensor  # (B, T, D) the last layer
    mask: Tensor  # (B, T) bool, True = a real position
    layers: tuple[Tensor, ...] = ()  # every layer (B, T, D_l), bottom (embeddings) -> top, when keep="all"
    state: State | None = None  # goes in and out, is never kept on the module


@dataclass(frozen=True)
class LayerGroup:
    """A named slice of the encoder's parameters, the unit that staged fine-tuning freezes and thaws."""

    name: str
    parameters: tuple[nn.Parameter, ...]


class Encoder(nn.Module):
    """Token ids in, one vector a position out.

    `direction` says what a position may look at: "left" (what came before it), "right" (what comes after) or
    "both". `output_dim` is D, the width of `Encoded.top`. The config is a frozen dataclass that JSON can hold and
    the only constructor argument.
    """

    config: Any
    output_dim: int
    direction: Direction

    def forward(self, batch: Batch, state: State | None = None, *, keep: Literal["top", "all"] = "top") -> Encoded:
        raise NotImplementedError

    def layer_groups(self) -> list[LayerGroup]:
        """Bottom -> top, disjoint, covering every parameter exactly once."""
        raise NotImplementedError
