"""Predict the next word and the one before, each from one side: what ELMo learns."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from textgraft.core.errors import UserError, did_you_mean
from textgraft.data.batch import Batch
from textgraft.encoders.base import Encoded
from textgraft.heads.base import Head, Loss
from textgraft.nn.softmax import OUTPUT_LAYERS

SIDES = ("forward", "backward")


@dataclass(frozen=True)
class BidirectionalLanguageModelConfig:
    """`input_dim` is that of both directions side by side; `output_layer` a name of nn.softmax.OUTPUT_LAYERS."""

    vocab_size: int
    input_dim: int
    output_layer: str = "sampled"
    output_dropout: float = 0.1
    bias: bool = True


class BidirectionalLanguageModelHead(Head):
    """One output layer for both directions, over the two halves of the encoder's top layer.

    The joint likelihood of Peters et al. 2018, §3.1: the sum over words of log p(word | before) + log p(word | after),
    with the table that both share. The encoder's halves must not know of each other. "sampled" computes a sample of
    the vocabulary in training and all of it otherwise. Raises UserError for an unknown output layer and an odd width.
    """

    config: BidirectionalLanguageModelConfig

    def __init__(self, config: BidirectionalLanguageModelConfig) -> None:
        super().__init__()
        name = config.output_layer
        if name not in OUTPUT_LAYERS:
            raise UserError(f"unknown output layer '{name}'.", remedy=did_you_mean(name, OUTPUT_LAYERS))
        if config.input_dim % 2:
            message = f"{config.input_dim} is odd, and half of it is each direction's."
            raise UserError(message, where="input_dim", remedy="Give twice the width of one direction.")
        self.config = config
        self.output = OUTPUT_LAYERS[name](config.vocab_size, config.input_dim // 2, bias=config.bias)

    def forward(self, encoded: Encoded) -> Tensor:
        """(B, T, 2, V) log probabilities at every position of the next word and of the one before."""
        log_p: Tensor = self.output.log_probs(_sides(encoded.top).flatten(0, 2))
        return log_p.view(*encoded.top.shape[:2], 2, -1)

    def loss(self, encoded: Encoded, batch: Batch) -> Loss:
        """Cross entropy summed over targets (B, T, 2), next and previous words, those of -100 left out.

        The count is of both directions' targets, so that the mean is the average of the two. `parts` has each one's
        sum, "forward_nll" and "backward_nll", and how many counted, "forward" and "backward".
        """
        assert batch.targets is not None
        hidden = F.dropout(_sides(encoded.top), self.config.output_dropout, self.training)
        parts: dict[str, float] = {}
        totals, count = [], 0
        for side, name in enumerate(SIDES):
            targets = batch.targets[:, :, side].flatten().contiguous()
            total, number = self.output.loss(hidden[:, :, side].flatten(0, 1), targets)
            parts |= {f"{name}_nll": float(total.detach()), name: number}
            totals.append(total)
            count += number
        parts["nll"] = sum(parts[f"{name}_nll"] for name in SIDES)
        return Loss(total=totals[0] + totals[1], count=count, parts=parts, state=encoded.state)


def _sides(top: Tensor) -> Tensor:
    """(B, T, 2P) -> (B, T, 2, P)."""
    return top.unflatten(2, (2, -1))
