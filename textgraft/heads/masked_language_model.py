"""Say which tokens were masked, and, if asked, whether the second text of a pair follows the first."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

from textgraft.core.errors import UserError
from textgraft.data.batch import IGNORE, Batch
from textgraft.encoders.base import Encoded
from textgraft.heads.base import Head, Loss
from textgraft.nn.softmax import ChunkedSoftmax


@dataclass(frozen=True)
class MaskedLanguageModelConfig:
    """`tied` shares the output table with the embedding; `next_sentence` needs an encoder with a pooler.

    `masked` is the share of tokens that training hides and asks for, `whole_words` hides the pieces of a word together
    (data.streams.masking). The paper's 15 % wastes a young model's time, which learns by the number of its answers:
    Wettig et al. 2023 (arXiv:2202.08005) found 40 % better for large ones too. Held-out text has 15 % hidden, whatever
    it says.
    """

    vocab_size: int
    input_dim: int
    tied: bool = True
    next_sentence: bool = False
    layer_norm_eps: float = 1e-12
    masked: float = 0.15
    whole_words: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.masked < 1:
            raise UserError(f"masked is {self.masked}.", remedy="Give a share between 0 and 1; 0.15 is BERT's.")


class MaskedLanguageModelHead(Head):
    """BERT's two tasks (Devlin et al. 2019, §3.1): masked tokens, and next sentence prediction.

    A dense layer, an exact GELU and a layer norm, then the output table with a bias for every token; of the pooled
    vector two logits, "follows" and "does not". Only positions that have a target are computed in the loss, and never
    all their logits at once.
    """

    config: MaskedLanguageModelConfig

    def __init__(self, config: MaskedLanguageModelConfig, embedding: nn.Parameter | None = None) -> None:
        super().__init__()
        self.config = config
        self.dense = nn.Linear(config.input_dim, config.input_dim)
        self.norm = nn.LayerNorm(config.input_dim, eps=config.layer_norm_eps)
        self.output = ChunkedSoftmax(config.vocab_size, config.input_dim, weight=embedding if config.tied else None)
        self.next_sentence = nn.Linear(config.input_dim, 2) if config.next_sentence else None
        for layer in (self.dense, self.next_sentence):
            if layer is not None:
                nn.init.normal_(layer.weight, std=0.02)
                nn.init.zeros_(layer.bias)

    def transformed(self, hidden: Tensor) -> Tensor:
        """(..., D) hidden vectors -> (..., D), what the output table is multiplied with."""
        normed: Tensor = self.norm(F.gelu(self.dense(hidden)).to(hidden.dtype))
        return normed

    def forward(self, encoded: Encoded) -> Tensor:
        """(B, T, V) log probabilities of the token at every position."""
        b, t, d = encoded.top.shape
        return self.output.log_probs(self.transformed(encoded.top).reshape(b * t, d)).view(b, t, -1)

    def pair_logits(self, encoded: Encoded) -> Tensor:
        """(B, 2) logits: the second text follows the first, or it does not.

        Raises UserError without a pooler. Needs a head made with `next_sentence`.
        """
        assert self.next_sentence is not None
        if encoded.pooled is None:
            message = "next sentence prediction needs an encoder with a pooler, and this one has none."
            raise UserError(message, remedy="Make the encoder with pooler=True, or the head with next_sentence=False.")
        logits: Tensor = self.next_sentence(encoded.pooled)
        return logits.float()

    def loss(self, encoded: Encoded, batch: Batch) -> Loss:
        """Summed cross entropy over targets (B, T), those of -100 left out; the count is how many counted.

        The paper adds the mean over masked tokens and the mean over pairs. A sum that is divided once, whatever it was
        gathered from, cannot do that; here each text's next-sentence loss (`pair_targets` (B,)) is multiplied by how
        many masked tokens the text has. With as many in every text, as in texts of one length, this is the paper's
        sum of means, and it stays so over batches and machines; else a longer text's pair weighs more.
        """
        assert batch.targets is not None
        wanted = batch.targets != IGNORE
        total, count = self.output.loss(self.transformed(encoded.top[wanted]), batch.targets[wanted])
        parts = {"nll": float(total.detach())}
        if self.next_sentence is not None:
            assert batch.pair_targets is not None
            each = F.cross_entropy(self.pair_logits(encoded), batch.pair_targets, reduction="none")
            of_pairs = (each * wanted.sum(dim=1)).sum()
            parts["next_sentence_nll"] = float(of_pairs.detach())
            total = total + of_pairs
        return Loss(total=total, count=count, parts=parts)
