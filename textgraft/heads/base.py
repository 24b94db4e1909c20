"""What a task asks of an encoder: a head turns `Encoded` into a loss or into predictions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor, nn

from textgraft.data.batch import Batch
from textgraft.encoders.base import Encoded, State


@dataclass
class Loss:
    """A sum and what to divide it by, so that unequal batches add up to the right mean.

    `parts` are detached numbers worth showing; `state` is the encoder's, to hand to the next window.
    """

    total: Tensor  # scalar, the sum over everything counted
    count: int
    parts: dict[str, float] = field(default_factory=dict)
    state: State | None = None


class Head(nn.Module):
    """The task's layers. The config is a frozen dataclass; the width of the vectors that it reads is part of it.

    They are the encoder's last layer, or what the config's `layer_aggregation` (a name of nn.layer_aggregation), if it
    has one, makes of all layers: the model sees to that, and the head finds it as `Encoded.top`.
    """

    config: Any
    keep: Literal["top", "all"] = "top"  # which of the encoder's layers it reads

    def forward(self, encoded: Encoded) -> Tensor:
        """Raw scores (logits)."""
        raise NotImplementedError

    def loss(self, encoded: Encoded, batch: Batch) -> Loss:
        raise NotImplementedError
