"""Predict the next token (or, for a backward model, the one before)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from textgraft.core.errors import UserError, did_you_mean
from textgraft.data.batch import IGNORE, Batch
from textgraft.encoders.base import Encoded
from textgraft.heads.base import Head, Loss
from textgraft.nn.dropout import variational_dropout
from textgraft.nn.embedding import AdaptiveEmbedding
from textgraft.nn.softmax import OUTPUT_LAYERS

ROWS_AT_ONCE = 512


@dataclass(frozen=True)
class LanguageModelConfig:
    """`output_layer` is a name of nn.softmax.OUTPUT_LAYERS; alpha and beta weigh AR and TAR (Merity et al. 2017).

    GPT has no `bias`, and neither regulariser. Tied to an adaptive embedding, an adaptive output layer shares that
    one's matrices too with `tied_projections`.
    """

    vocab_size: int
    input_dim: int
    output_layer: str = "chunked"
    tied: bool = True
    output_dropout: float = 0.1
    alpha: float = 2.0
    beta: float = 1.0
    label_smoothing: float = 0.0
    bias: bool = True
    tied_projections: bool = True


class LanguageModelHead(Head):
    """An output layer over the vocabulary, tied to the embedding table if asked, with AWD-LSTM's regularisers.

    Raises UserError for an unknown output layer, and for one that is not adaptive tied to an embedding that is.
    """

    config: LanguageModelConfig

    def __init__(self, config: LanguageModelConfig, embedding: nn.Parameter | AdaptiveEmbedding | None = None) -> None:
        super().__init__()
        name = config.output_layer
        if name not in OUTPUT_LAYERS:
            raise UserError(f"unknown output layer '{name}'.", remedy=did_you_mean(name, OUTPUT_LAYERS))
        self.config = config
        settings: dict[str, Any] = {"label_smoothing": config.label_smoothing, "bias": config.bias}
        settings |= {"weight": embedding if config.tied else None}
        if isinstance(settings["weight"], AdaptiveEmbedding):
            if name != "adaptive":
                message = (
                    f"the output layer '{name}' cannot be tied to an adaptive embedding, which has several tables."
                )
                raise UserError(message, where="output_layer", remedy="Take 'adaptive', or set tied = false.")
            settings |= {"tied_projections": config.tied_projections}
        self.output = OUTPUT_LAYERS[name](config.vocab_size, config.input_dim, **settings)

    def forward(self, encoded: Encoded) -> Tensor:
        """(B, T, V) log probabilities of the next token at every position."""
        b, t, d = encoded.top.shape
        log_p: Tensor = self.output.log_probs(encoded.top.reshape(b * t, d))
        return log_p.view(b, t, -1)

    def loss(self, encoded: Encoded, batch: Batch) -> Loss:
        """Summed cross entropy over targets (B, T), plus activation regularisation while training.

        AR = α·mean(dropped h²) and TAR = β·mean((h_t+1 - h_t)²) are means in the paper (Merity et al. 2017, §4; as
        in their code, over all features too), so they are multiplied by the count here, to survive the division of
        the sum. Padding does not enter them.
        """
        assert batch.targets is not None
        raw, dropped = encoded.top, self._dropped(encoded.top)
        total, count = self.output.loss(dropped.reshape(-1, raw.shape[-1]), batch.targets.reshape(-1))
        parts = {"nll": float(total.detach())}
        if self.training:
            if self.config.alpha:
                total = total + count * self.config.alpha * _mean_square(dropped, encoded.mask)
            if self.config.beta:
                steps = raw[:, 1:] - raw[:, :-1]
                total = total + count * self.config.beta * _mean_square(steps, encoded.mask[:, 1:])
        return Loss(total=total, count=count, parts=parts, state=encoded.state)

    def weighted_nll(self, encoded: Encoded, targets: Tensor, weights: Tensor) -> Tensor:
        """The summed cross entropy over targets (B, T) of which each counts `weights` (B, T) times; no regularisers."""
        wanted = targets != IGNORE
        return self.output.loss(self._dropped(encoded.top)[wanted], targets[wanted], weights[wanted])[0]

    def _dropped(self, hidden: Tensor) -> Tensor:
        rate = self.config.output_dropout
        return variational_dropout(hidden.transpose(0, 1), rate, self.training).transpose(0, 1)

    @torch.no_grad()
    def next_logits(self, encoded: Encoded) -> Tensor:
        """(B, V) logits after the last position, log probabilities where the output layer has no others."""
        return self.output.logits(encoded.top[:, -1])

    @torch.no_grad()
    def target_log_probs(self, encoded: Encoded, batch: Batch) -> Tensor:
        """(B, T) log probability of each target, 0 where there is none; a few hundred rows of V at a time."""
        assert batch.targets is not None
        counted = batch.targets != IGNORE
        wanted, hidden = batch.targets[counted], encoded.top[counted]
        chunks = zip(hidden.split(ROWS_AT_ONCE), wanted.split(ROWS_AT_ONCE))
        found = [self.output.log_probs(h).gather(1, w[:, None])[:, 0] for h, w in chunks]
        result = torch.zeros(counted.shape, device=counted.device)
        result[counted] = torch.cat(found).float()
        return result


def _mean_square(x: Tensor, mask: Tensor) -> Tensor:
    """The mean square of x (B, T, D) over the real positions; 0 if there are none."""
    return (x.pow(2).mean(dim=-1) * mask).sum() / mask.sum().clamp(min=1)
