"""Interface of a task head: it turns `Encoded` into a loss or into predictions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor, nn

from textgraft.data.batch import Batch
from textgraft.encoders.base import Encoded, State


@dataclass
class Loss:
    """A sum and its count, so that unequal batches add up to the right mean.

    Attributes:
        total: Scalar, the sum over all targets.
        count: Number of targets.
        parts: Detached values to report, which are sums too.
        state: The encoder's state, for the next window.
    """

    total: Tensor
    count: int
    parts: dict[str, float] = field(default_factory=dict)
    state: State | None = None


class Head(nn.Module):
    """The layers of a task. The config is a frozen dataclass that includes the width of the input vectors.

    The input is the encoder's last layer, or the output of the config's `layer_aggregation` (a name in
    nn.layer_aggregation); the model computes it and passes it as `Encoded.top`.
    """

    config: Any
    keep: Literal["top", "all"] = "top"  # the layers of the encoder that it needs

    def forward(self, encoded: Encoded) -> Tensor:
        """Compute raw scores (logits)."""
        raise NotImplementedError

    def loss(self, encoded: Encoded, batch: Batch) -> Loss:
        raise NotImplementedError
