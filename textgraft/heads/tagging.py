"""Tagging: one of a set of tags for every word, such as parts of speech or entities."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from textgraft.core.errors import UserError
from textgraft.data.batch import IGNORE, Batch
from textgraft.data.tags import OUTSIDE, Scheme, SubwordPooling, is_legal
from textgraft.encoders.base import Encoded
from textgraft.heads.base import Head, Loss
from textgraft.nn.crf import Chain, log_partition, marginals, path_score, uniform_chain, viterbi
from textgraft.nn.layer_aggregation import LAST


@dataclass(frozen=True)
class TaggingConfig:
    """Configuration of the head.

    Args:
        input_dim: Width D of the hidden vectors.
        tags: Tags in the order of the outputs.
        scheme: Scheme of the tags.
        subword_pooling: The subword that represents a word, "first" or "last".
        crf: Learn scores of the transitions between tags.
        input_dropout: Dropout before the output layer.
        layer_aggregation: Name in nn.layer_aggregation.LAYER_AGGREGATIONS.

    Raises:
        UserError: A tag occurs twice, or there are none.
    """

    input_dim: int
    tags: list[str] = field(default_factory=list)
    scheme: Scheme = "plain"
    subword_pooling: SubwordPooling = "first"
    crf: bool = False
    input_dropout: float = 0.1
    layer_aggregation: str = LAST

    def __post_init__(self) -> None:
        object.__setattr__(self, "tags", list(self.tags))
        if not all(isinstance(tag, str) for tag in self.tags):
            raise UserError("a tag is no text.", where="tags", remedy="Give each as a string.")
        if not self.tags or len(set(self.tags)) < len(self.tags):
            raise UserError("a tag occurs twice, or there are none.", where="tags", remedy="Give each tag once.")


class TaggingHead(Head):
    """A linear layer on one subword of each word (Devlin et al. 2019, §5.3: "the first sub-token").

    A left-to-right encoder has the whole word only at its last subword, so that `subword_pooling` may be "last".
    Decoding finds the best tags that the scheme allows (Devlin et al. do not restrict them). With a CRF the loss is
    that of Lample et al. 2016, over paths without forbidden transitions; the restrictions on the first and last tag are
    left out, since a window may begin within a sentence.
    """

    config: TaggingConfig

    def __init__(self, config: TaggingConfig) -> None:
        super().__init__()
        self.config = config
        count = len(config.tags)
        self.output = nn.Linear(config.input_dim, count)
        nn.init.normal_(self.output.weight, std=0.02)
        nn.init.zeros_(self.output.bias)
        if config.crf:
            self.transitions = nn.Parameter(torch.zeros(count, count))
            self.start, self.end = nn.Parameter(torch.zeros(count)), nn.Parameter(torch.zeros(count))
        self._allowed = allowed_transitions(config.tags, config.scheme)  # derived from the config, so not saved

    def forward(self, encoded: Encoded) -> Tensor:
        """Logits (B, T, C) of every position."""
        return self._logits(encoded.top)

    def _logits(self, vectors: Tensor) -> Tensor:
        dropped = F.dropout(vectors, self.config.input_dropout, self.training)
        with torch.autocast(dropped.device.type, enabled=False):
            logits: Tensor = self.output(dropped.float())
            return logits

    def loss(self, encoded: Encoded, batch: Batch) -> Loss:
        """Cross entropy summed over words, and their number.

        `batch.words` (B, W) are the positions of the words' subwords, -1 as padding; `batch.targets` (B, W) are tag
        numbers, IGNORE as padding.
        """
        assert batch.targets is not None
        assert batch.words is not None
        mask = batch.words >= 0
        logits = self._logits(gather_words(encoded.top, batch.words))
        if not self.config.crf:
            total = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), ignore_index=IGNORE, reduction="sum")
            return Loss(total=total, count=int(mask.sum()))
        chain = Chain(self.start, self._chain(logits).between, self.end)
        nll = log_partition(logits, mask, chain) - path_score(logits, mask, batch.targets, chain)
        return Loss(total=nll.sum(), count=int(mask.sum()))

    def _chain(self, logits: Tensor) -> Chain:
        """Scores of first tags, transitions and last tags, -inf where they are not allowed."""
        chain = uniform_chain(len(self.config.tags))
        if self.config.crf:
            chain = Chain(self.start, self.transitions, self.end)
        allowed = Chain(*(part.to(logits.device) for part in vars(self._allowed).values()))
        return chain.to(logits).masked(allowed)

    @torch.no_grad()
    def decode(self, logits: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """The best allowed tags (B, W) of whole sentences and the probability of each, (B, W).

        Args:
            logits: (B, W, C) of words.
            mask: (B, W), True from the left, at least one word a row.
        """
        if self.config.scheme == "plain" and not self.config.crf:
            probabilities, tags = torch.softmax(logits.double(), dim=2).max(dim=2)
            return tags.masked_fill(~mask, 0), probabilities.masked_fill(~mask, 0)
        chain = self._chain(logits)
        tags = viterbi(logits, mask, chain)
        return tags, marginals(logits, mask, chain).gather(2, tags[:, :, None])[:, :, 0]


def gather_words(vectors: Tensor, words: Tensor) -> Tensor:
    """Vectors (B, W, D) at positions (B, W) of (B, T, D); arbitrary at negative positions."""
    index = words.clamp(min=0)[:, :, None].expand(-1, -1, vectors.shape[2])
    return vectors.gather(1, index)


def allowed_transitions(tags: list[str], scheme: Scheme) -> Chain:
    """Booleans: the tags that may begin a sentence, follow each other, and end one."""
    start = [is_legal(OUTSIDE, tag, scheme) for tag in tags]
    between = [[is_legal(before, tag, scheme) for tag in tags] for before in tags]
    end = [is_legal(before, OUTSIDE, scheme) for before in tags]
    return Chain(torch.tensor(start), torch.tensor(between), torch.tensor(end))
