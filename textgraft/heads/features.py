"""No task: an encoder by itself, as it is published, for vectors or as a start for a task."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from textgraft.core.errors import UserError
from textgraft.data.batch import Batch
from textgraft.encoders.base import Encoded
from textgraft.heads.base import Head, Loss


@dataclass(frozen=True)
class FeaturesConfig:
    """`input_dim` is the width of the encoder's top layer."""

    input_dim: int


class FeaturesHead(Head):
    """Hands out the encoder's top layer; has no parameters and nothing to learn."""

    config: FeaturesConfig

    def __init__(self, config: FeaturesConfig) -> None:
        super().__init__()
        self.config = config

    def forward(self, encoded: Encoded) -> Tensor:
        """(B, T, D), the top layer."""
        return encoded.top

    def loss(self, encoded: Encoded, batch: Batch) -> Loss:
        """Raises UserError: there is no task."""
        remedy = "Give the encoder a head with a task, such as classification or masked_language_model."
        raise UserError("an encoder without a task cannot be trained.", remedy=remedy)
