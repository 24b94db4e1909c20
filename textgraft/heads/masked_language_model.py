"""Masked language modelling and, optionally, next sentence prediction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn
from torch.nn import functional as F

from textgraft.core.errors import UserError, did_you_mean
from textgraft.data.batch import IGNORE, Batch
from textgraft.encoders.base import Encoded
from textgraft.heads.base import Head, Loss
from textgraft.nn.softmax import ChunkedSoftmax

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    "relu": F.relu,
}
"""Activations above the dense layer."""


@dataclass(frozen=True)
class MaskedLanguageModelConfig:
    """Configuration of the head.

    Held-out text always has 15 % masked (XLNet: a sixth predicted), whatever `masked` is.

    Args:
        vocab_size: V.
        input_dim: Width D of the hidden vectors.
        tied: Share the output table with the embedding.
        next_sentence: Add next sentence prediction; needs an encoder with a pooler.
        layer_norm_eps: Epsilon of the layer norm.
        masked: Share of tokens predicted in training. More than the paper's 15 % gives more targets a step: Wettig et
            al. 2023 (arXiv:2202.08005) found 40 % better for large models too.
        whole_words: Predict all subwords of a word together (data.streams.masking).
        transform_bias: The dense layer and the layer norm have biases.
        table_dim: Width of the output table, where it is not D (ELECTRA, ALBERT).
        activation: A name of ACTIVATIONS.
        transform: Dense layer, activation and layer norm below the table; XLM, XLNet and Funnel have none.
    """

    vocab_size: int
    input_dim: int
    tied: bool = True
    next_sentence: bool = False
    layer_norm_eps: float = 1e-12
    masked: float = 0.15
    whole_words: bool = False
    transform_bias: bool = True
    table_dim: int | None = None
    activation: str = "gelu"
    transform: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.masked < 1:
            raise UserError(f"masked is {self.masked}.", remedy="Give a share between 0 and 1; 0.15 is BERT's.")
        if self.activation not in ACTIVATIONS:
            remedy = did_you_mean(self.activation, ACTIVATIONS)
            raise UserError(f"there is no activation '{self.activation}'.", remedy=remedy)


class MaskedLanguageModelHead(Head):
    """BERT's two objectives (Devlin et al. 2019, §3.1): masked tokens, and next sentence prediction.

    A dense layer, an exact GELU and a layer norm, then the output table with a bias for every token; two logits,
    "follows" and "does not", from the pooled vector. Only positions with a target are computed in the loss, and never
    all their logits at once.
    """

    config: MaskedLanguageModelConfig

    def __init__(self, config: MaskedLanguageModelConfig, embedding: nn.Parameter | None = None) -> None:
        super().__init__()
        self.config = config
        width, bias = config.table_dim or config.input_dim, config.transform_bias
        self.dense = nn.Linear(config.input_dim, width, bias=bias) if config.transform else None
        self.norm = nn.LayerNorm(width, eps=config.layer_norm_eps, bias=bias) if config.transform else None
        self.output = ChunkedSoftmax(config.vocab_size, width, weight=embedding if config.tied else None)
        self.next_sentence = nn.Linear(config.input_dim, 2) if config.next_sentence else None
        for layer in (self.dense, self.next_sentence):
            if layer is not None:
                nn.init.normal_(layer.weight, std=0.02)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)

    def transformed(self, hidden: Tensor) -> Tensor:
        """Hidden vectors (..., D) -> (..., table_dim), the input of the output table."""
        if self.dense is None or self.norm is None:
            return hidden
        activated = ACTIVATIONS[self.config.activation](self.dense(hidden))
        normed: Tensor = self.norm(activated.to(hidden.dtype))
        return normed

    def forward(self, encoded: Encoded) -> Tensor:
        """Log probabilities (B, T, V) of the token at every position."""
        b, t, _ = encoded.top.shape
        return self.output.log_probs(self.transformed(encoded.top).flatten(0, 1)).view(b, t, -1)

    def pair_logits(self, encoded: Encoded) -> Tensor:
        """Logits (B, 2): the second text follows the first, or it does not. Needs a head made with `next_sentence`.

        Raises:
            UserError: The encoder has no pooler.
        """
        assert self.next_sentence is not None
        if encoded.pooled is None:
            message = "next sentence prediction needs an encoder with a pooler; this one has none."
            raise UserError(message, remedy="Make the encoder with pooler=True, or the head with next_sentence=False.")
        logits: Tensor = self.next_sentence(encoded.pooled)
        return logits.float()

    def loss(self, encoded: Encoded, batch: Batch) -> Loss:
        """Cross entropy summed over targets (B, T), those of -100 ignored; the count is the number of targets.

        The paper adds the mean over masked tokens and the mean over pairs. A sum with a single divisor cannot do that,
        so each text's next-sentence loss (`pair_targets` (B,)) is multiplied by its number of masked tokens. With the
        same number in every text, as in texts of one length, this is the paper's sum of means, and remains so over
        batches and machines; else a longer text's pair has more weight.
        """
        assert batch.targets is not None
        masked = batch.targets != IGNORE
        total, count = self.output.loss(self.transformed(encoded.top[masked]), batch.targets[masked])
        parts = {"nll": float(total.detach())}
        if self.next_sentence is not None:
            assert batch.pair_targets is not None
            pair_losses = F.cross_entropy(self.pair_logits(encoded), batch.pair_targets, reduction="none")
            pair_total = (pair_losses * masked.sum(dim=1)).sum()
            parts["next_sentence_nll"] = float(pair_total.detach())
            total = total + pair_total
        return Loss(total=total, count=count, parts=parts)
