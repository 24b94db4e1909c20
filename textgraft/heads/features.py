"""A head without a task, for an encoder as published: for vectors, or to start a task from."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from textgraft.core.errors import UserError
from textgraft.data.batch import Batch
from textgraft.encoders.base import Encoded
from textgraft.heads.base import Head, Loss


@dataclass(frozen=True)
class FeaturesConfig:
    """Configuration: `input_dim` is the width of the encoder's top layer."""

    input_dim: int


class FeaturesHead(Head):
    """Return the encoder's top layer; there are no parameters and there is no loss."""

    config: FeaturesConfig

    def __init__(self, config: FeaturesConfig) -> None:
        super().__init__()
        self.config = config

    def forward(self, encoded: Encoded) -> Tensor:
        """The top layer, (B, T, D)."""
        return encoded.top

    def loss(self, encoded: Encoded, batch: Batch) -> Loss:
        """Raise UserError: there is no task."""
        remedy = "Give the encoder a head with a task, such as classification or masked_language_model."
        raise UserError("an encoder without a task cannot be trained.", remedy=remedy)
