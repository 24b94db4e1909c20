"""Point at the stretch of a text that answers a question: where it begins and where it ends."""

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
    """`direction` is the encoder's: it says which position stands for "no answer here".

    `layer_aggregation` is a name of nn.layer_aggregation.LAYER_AGGREGATIONS.
    """

    input_dim: int
    direction: Direction = "both"
    input_dropout: float = 0.1
    layer_aggregation: str = LAST


class SpanHead(Head):
    """A vector S for beginnings and a vector E for ends; a softmax over positions of each one's products (§4.2).

    Devlin et al. 2019. Where we differ from the published code: its softmax runs over every position, padding, question
    and marks too, ours over those that can be answered with and the one that stands for no answer; its two biases,
    which move all positions alike and cancel, are left out; there is dropout before the products.

    No answer is the first position, as published, if the encoder has read everything there. One that reads from the
    left has read nothing at the first position, and everything at the last.
    """

    config: SpanConfig

    def __init__(self, config: SpanConfig) -> None:
        super().__init__()
        self.config = config
        self.output = nn.Linear(config.input_dim, 2, bias=False)
        nn.init.normal_(self.output.weight, std=0.02)

    def forward(self, encoded: Encoded) -> Tensor:
        """(B, T, 2) logits of beginning and ending at each position, whatever it holds."""
        dropped = F.dropout(encoded.top, self.config.input_dropout, self.training)
        with torch.autocast(dropped.device.type, enabled=False):  # two products a position; in bfloat16 many would tie
            logits: Tensor = self.output(dropped.float())
            return logits

    def loss(self, encoded: Encoded, batch: Batch) -> Loss:
        """The mean of the two cross entropies, summed over windows; the count is that of the windows.

        `batch.targets` (B, 2) are the positions of the first and the last token, negative where the window does not
        hold the answer: it then is to point at the position of no answer. `batch.answerable` (B, T) is needed.
        """
        assert batch.targets is not None
        assert batch.answerable is not None
        none = no_answer_positions(batch.mask, self.config.direction)
        allowed = (batch.answerable & batch.mask).scatter(1, none[:, None], True)
        logits = self(encoded).masked_fill(~allowed[:, :, None], float("-inf"))
        targets = torch.where(batch.targets < 0, none[:, None], batch.targets)
        each = F.cross_entropy(logits, targets, reduction="sum")
        return Loss(total=each / 2, count=len(batch.ids))


def no_answer_positions(mask: Tensor, direction: Direction) -> Tensor:
    """(B,) the position of right-padded texts (B, T) at which an encoder of this direction has read everything."""
    return mask.sum(dim=1) - 1 if direction == "left" else torch.zeros(len(mask), dtype=torch.int64, device=mask.device)
