"""Bidirectional language modelling, ELMo's objective: the next word and the previous one, each from one side."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from textgraft.core.errors import UserError, did_you_mean
from textgraft.data.batch import Batch
from textgraft.encoders.base import Encoded
from textgraft.heads.base import Head, Loss
from textgraft.nn.softmax import OUTPUT_LAYERS

DIRECTIONS = ("forward", "backward")


@dataclass(frozen=True)
class BidirectionalLanguageModelConfig:
    """Configuration of the head.

    Args:
        vocab_size: V.
        input_dim: Width of both directions together.
        output_layer: Name in nn.softmax.OUTPUT_LAYERS.
        output_dropout: Dropout before the output layer.
        bias: Use a bias for each token.
    """

    vocab_size: int
    input_dim: int
    output_layer: str = "sampled"
    output_dropout: float = 0.1
    bias: bool = True


class BidirectionalLanguageModelHead(Head):
    """One output layer for both directions, over the two halves of the encoder's top layer.

    The loss is the joint likelihood of Peters et al. 2018, §3.1: the sum over words of log p(word | before) + log
    p(word | after), with shared output embeddings. The encoder's halves must be independent of each other. "sampled"
    computes a sample of the vocabulary in training and all of it otherwise. Raises UserError for an unknown output
    layer and an odd width.
    """

    config: BidirectionalLanguageModelConfig

    def __init__(self, config: BidirectionalLanguageModelConfig) -> None:
        super().__init__()
        name = config.output_layer
        if name not in OUTPUT_LAYERS:
            raise UserError(f"unknown output layer '{name}'.", remedy=did_you_mean(name, OUTPUT_LAYERS))
        if config.input_dim % 2:
            message = f"{config.input_dim} is odd; each direction has half of it."
            raise UserError(message, where="input_dim", remedy="Give twice the width of one direction.")
        self.config = config
        self.output = OUTPUT_LAYERS[name](config.vocab_size, config.input_dim // 2, bias=config.bias)

    def forward(self, encoded: Encoded) -> Tensor:
        """Log probabilities (B, T, 2, V) of the next word and of the previous one at every position."""
        log_p: Tensor = self.output.log_probs(_split_directions(encoded.top).flatten(0, 2))
        return log_p.view(*encoded.top.shape[:2], 2, -1)

    def loss(self, encoded: Encoded, batch: Batch) -> Loss:
        """Cross entropy summed over targets (B, T, 2), next and previous words; those of -100 are ignored.

        The count includes both directions' targets, so that the mean is the average of the two. `parts` has the sums
        "forward_nll" and "backward_nll", and the counts "forward" and "backward".
        """
        assert batch.targets is not None
        hidden = F.dropout(_split_directions(encoded.top), self.config.output_dropout, self.training)
        parts: dict[str, float] = {}
        totals, count = [], 0
        for side, name in enumerate(DIRECTIONS):
            targets = batch.targets[:, :, side].flatten().contiguous()
            total, number = self.output.loss(hidden[:, :, side].flatten(0, 1), targets)
            parts |= {f"{name}_nll": float(total.detach()), name: number}
            totals.append(total)
            count += number
        parts["nll"] = sum(parts[f"{name}_nll"] for name in DIRECTIONS)
        return Loss(total=totals[0] + totals[1], count=count, parts=parts, state=encoded.state)


def _split_directions(top: Tensor) -> Tensor:
    """(B, T, 2P) -> (B, T, 2, P)."""
    return top.unflatten(2, (2, -1))
