"""ULMFiT's classifier: pool a document, then two blocks of batch norm, dropout and a linear layer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from textgraft.data.batch import Batch
from textgraft.data.examples import TargetKind
from textgraft.encoders.base import Direction, Encoded
from textgraft.errors import UserError, did_you_mean
from textgraft.heads.base import Head, Loss
from textgraft.nn.pooling import POOLINGS, pooled_dim


@dataclass(frozen=True)
class ClassificationConfig:
    """`outputs` is the number of classes (1 for a numeric target); `direction` the encoder's.

    `words_dim`, if not 0, adds the mean and the maximum of the embedding layer (of that width) to what is pooled.
    """

    input_dim: int
    outputs: int
    kind: TargetKind = "single"
    pooling: str = "concat"
    hidden_dim: int = 50
    input_dropout: float = 0.4
    hidden_dropout: float = 0.1
    direction: Direction = "left"
    words_dim: int = 0


class ClassificationHead(Head):
    """[h_T, maxpool(H), meanpool(H)] -> BatchNorm-Dropout-Linear-ReLU-BatchNorm-Dropout-Linear.

    Howard & Ruder 2018, §3.3; with `words_dim` the word level stands beside the top layer, because a young language
    model's table knows words long before its upper layers know sentences. Scores are logits: softmax for one label,
    a sigmoid each for many, and for a numeric target the standardised value itself. Raises UserError for an unknown
    pooling.
    """

    config: ClassificationConfig
    class_weights: Tensor

    def __init__(self, config: ClassificationConfig) -> None:
        super().__init__()
        if config.pooling not in POOLINGS:
            raise UserError(f"unknown pooling '{config.pooling}'.", remedy=did_you_mean(config.pooling, POOLINGS))
        self.config = config
        self.keep = "all" if config.words_dim else "top"
        width = pooled_dim(config.pooling, config.input_dim) + 2 * config.words_dim
        self.layers = nn.Sequential(
            nn.BatchNorm1d(width),
            nn.Dropout(config.input_dropout),
            nn.Linear(width, config.hidden_dim, bias=False),
            nn.ReLU(),
            nn.BatchNorm1d(config.hidden_dim),
            nn.Dropout(config.hidden_dropout),
            nn.Linear(config.hidden_dim, config.outputs),
        )
        self.register_buffer("class_weights", torch.ones(config.outputs))

    def forward(self, encoded: Encoded) -> Tensor:
        """(B, outputs) logits."""
        pooled = POOLINGS[self.config.pooling](encoded.top, encoded.mask, self.config.direction)
        if self.config.words_dim:
            words = (POOLINGS[name](encoded.layers[0], encoded.mask, self.config.direction) for name in ("mean", "max"))
            pooled = torch.cat([pooled, *words], dim=-1)
        with torch.autocast(pooled.device.type, enabled=False):
            logits: Tensor = self.layers(pooled.float())
            return logits

    def loss(self, encoded: Encoded, batch: Batch) -> Loss:
        """Cross entropy, binary cross entropy summed over classes, or squared error; weighted by class if asked."""
        assert batch.targets is not None
        logits = self(encoded)
        if self.config.kind == "single":
            total = F.cross_entropy(logits, batch.targets, weight=self.class_weights, reduction="sum")
        elif self.config.kind == "multi":
            total = F.binary_cross_entropy_with_logits(
                logits, batch.targets, pos_weight=self.class_weights, reduction="sum"
            )
        else:
            total = F.mse_loss(logits.squeeze(1), batch.targets, reduction="sum")
        return Loss(total=total, count=len(batch.ids))
