"""Replaced-token detection: which tokens of a text are not those that were written."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

from textgraft.core.errors import UserError, did_you_mean
from textgraft.data.batch import IGNORE, Batch
from textgraft.encoders.base import Encoded
from textgraft.heads.base import Head, Loss
from textgraft.heads.masked_language_model import ACTIVATIONS


@dataclass(frozen=True)
class ReplacedTokensConfig:
    """Configuration of the head.

    Args:
        input_dim: Width D of the hidden vectors.
        activation: A name of heads.masked_language_model.ACTIVATIONS.
        replaced: Share of tokens that are drawn anew in training.
    """

    input_dim: int
    activation: str = "gelu"
    replaced: float = 0.15

    def __post_init__(self) -> None:
        if not 0 < self.replaced < 1:
            raise UserError(f"replaced is {self.replaced}.", remedy="Give a share between 0 and 1; 0.15 is ELECTRA's.")
        if self.activation not in ACTIVATIONS:
            remedy = did_you_mean(self.activation, ACTIVATIONS)
            raise UserError(f"there is no activation '{self.activation}'.", remedy=remedy)


class ReplacedTokensHead(Head):
    """ELECTRA's discriminator (Clark et al. 2020, §3.1): a dense layer, an activation, and one logit a token."""

    config: ReplacedTokensConfig

    def __init__(self, config: ReplacedTokensConfig) -> None:
        super().__init__()
        self.config = config
        self.dense = nn.Linear(config.input_dim, config.input_dim)
        self.output = nn.Linear(config.input_dim, 1)
        for layer in (self.dense, self.output):
            nn.init.normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)

    def forward(self, encoded: Encoded) -> Tensor:
        """Logits (B, T) that the token at each position was replaced."""
        hidden = ACTIVATIONS[self.config.activation](self.dense(encoded.top))
        logits: Tensor = self.output(hidden).squeeze(-1)
        return logits.float()

    def loss(self, encoded: Encoded, batch: Batch) -> Loss:
        """Binary cross entropy summed over targets (B, T), 1 for replaced tokens and 0 for others; -100 is ignored."""
        assert batch.targets is not None
        known = batch.targets != IGNORE
        logits = self(encoded)[known]
        total = F.binary_cross_entropy_with_logits(logits, batch.targets[known].to(logits.dtype), reduction="sum")
        return Loss(total=total, count=int(known.sum()), parts={"nll": float(total.detach())})
