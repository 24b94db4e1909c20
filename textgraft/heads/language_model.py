"""Language modelling: the next token or, for a right-to-left model, the previous one."""

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
    """Configuration of the head; GPT has no `bias`, alpha or beta.

    Args:
        vocab_size: V.
        input_dim: Width D of the hidden vectors.
        output_layer: Name in nn.softmax.OUTPUT_LAYERS.
        tied: Tie the output table to the embedding.
        output_dropout: Variational dropout before the output layer.
        alpha: Weight of activation regularisation, AR (Merity et al. 2017).
        beta: Weight of temporal activation regularisation, TAR.
        label_smoothing: Label smoothing.
        bias: Use a bias for each token.
        tied_projections: An adaptive output layer tied to an adaptive embedding also shares its projections.
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
    """Output layer over the vocabulary, optionally tied to the embedding, with AWD-LSTM's regularisers.

    Raises:
        UserError: The output layer is unknown, or is not adaptive but tied to an adaptive embedding.
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
                raise UserError(message, where="output_layer", remedy="Use 'adaptive', or set tied = false.")
            settings |= {"tied_projections": config.tied_projections}
        self.output = OUTPUT_LAYERS[name](config.vocab_size, config.input_dim, **settings)

    def forward(self, encoded: Encoded) -> Tensor:
        """Log probabilities (B, T, V) of the next token at every position."""
        b, t, d = encoded.top.shape
        log_p: Tensor = self.output.log_probs(encoded.top.reshape(b * t, d))
        return log_p.view(b, t, -1)

    def loss(self, encoded: Encoded, batch: Batch) -> Loss:
        """Cross entropy summed over targets (B, T), plus activation regularisation while training.

        AR = α·mean(dropped h²) and TAR = β·mean((h_t+1 - h_t)²) are means in the paper (Merity et al. 2017, §4; over
        all features too, as in their code), so they are multiplied by the count here, which the sum is divided by
        later. Padding is excluded.
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
        """Cross entropy summed over targets (B, T) with `weights` (B, T), without regularisers."""
        counted = targets != IGNORE
        return self.output.loss(self._dropped(encoded.top)[counted], targets[counted], weights[counted])[0]

    def _dropped(self, hidden: Tensor) -> Tensor:
        rate = self.config.output_dropout
        return variational_dropout(hidden.transpose(0, 1), rate, self.training).transpose(0, 1)

    @torch.no_grad()
    def next_logits(self, encoded: Encoded) -> Tensor:
        """Logits (B, V) after the last position; log probabilities where the output layer has no logits."""
        return self.output.logits(encoded.top[:, -1])

    @torch.no_grad()
    def target_log_probs(self, encoded: Encoded, batch: Batch) -> Tensor:
        """Log probability (B, T) of each target, 0 where there is none; computed for a few hundred rows of V
        at a time.
        """
        assert batch.targets is not None
        counted = batch.targets != IGNORE
        targets, hidden = batch.targets[counted], encoded.top[counted]
        chunks = zip(hidden.split(ROWS_AT_ONCE), targets.split(ROWS_AT_ONCE))
        log_probs = [self.output.log_probs(h).gather(1, w[:, None])[:, 0] for h, w in chunks]
        result = torch.zeros(counted.shape, device=counted.device)
        result[counted] = torch.cat(log_probs).float()
        return result


def _mean_square(x: Tensor, mask: Tensor) -> Tensor:
    """Mean square of x (B, T, D) over the real positions; 0 if there are none."""
    return (x.pow(2).mean(dim=-1) * mask).sum() / mask.sum().clamp(min=1)
