"""Extractive question answering: start and end position of the answer in a text."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from textgraft.data.batch import Batch
from textgraft.data.sequences import Direction
from textgraft.encoders.base import Encoded
from textgraft.heads.base import Head, Loss
from textgraft.nn.layer_aggregation import LAST


@dataclass(frozen=True)
class SpanConfig:
    """Configuration of the head.

    Args:
        input_dim: Width D of the hidden vectors.
        direction: The encoder's direction; it determines the position that represents "no answer".
        input_dropout: Dropout before the output layer.
        layer_aggregation: Name in nn.layer_aggregation.LAYER_AGGREGATIONS.
    """

    input_dim: int
    direction: Direction = "both"
    input_dropout: float = 0.1
    layer_aggregation: str = LAST


class SpanHead(Head):
    """A start vector S and an end vector E; a softmax over positions of the dot products with each (§4.2).

    No answer is the first position, as published, for encoders that attend to the whole text there. For a left-to-right
    encoder it is the last position, the only one that depends on all of the text.

    Source: Devlin et al. 2019. Differences from the published code: the softmax is over positions that can be in an
    answer and the no-answer position, not over padding, question and special tokens; the two biases, which move all
    positions equally and cancel, are left out; there is dropout before the products.
    """

    config: SpanConfig

    def __init__(self, config: SpanConfig) -> None:
        super().__init__()
        self.config = config
        self.output = nn.Linear(config.input_dim, 2, bias=False)
        nn.init.normal_(self.output.weight, std=0.02)

    def forward(self, encoded: Encoded) -> Tensor:
        """Start and end logits (B, T, 2) of every position."""
        dropped = F.dropout(encoded.top, self.config.input_dropout, self.training)
        with torch.autocast(dropped.device.type, enabled=False):  # two products a position; in bfloat16 many would tie
            logits: Tensor = self.output(dropped.float())
            return logits

    def loss(self, encoded: Encoded, batch: Batch) -> Loss:
        """Mean of the two cross entropies, summed over windows; the count is the number of windows.

        `batch.targets` (B, 2) are the positions of the first and the last token, negative where the window does not
        contain the answer: the target is then the no-answer position. `batch.answerable` (B, T) is needed.
        """
        assert batch.targets is not None
        assert batch.answerable is not None
        no_answer = no_answer_positions(batch.mask, self.config.direction)
        allowed = (batch.answerable & batch.mask).scatter(1, no_answer[:, None], True)
        logits = self(encoded).masked_fill(~allowed[:, :, None], float("-inf"))
        targets = torch.where(batch.targets < 0, no_answer[:, None], batch.targets)
        total = F.cross_entropy(logits, targets, reduction="sum")
        return Loss(total=total / 2, count=len(batch.ids))


def no_answer_positions(mask: Tensor, direction: Direction) -> Tensor:
    """Positions (B,) in right-padded texts (B, T) at which an encoder of this direction depends on the whole text."""
    return mask.sum(dim=1) - 1 if direction == "left" else torch.zeros(len(mask), dtype=torch.int64, device=mask.device)
