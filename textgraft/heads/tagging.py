"""Give every word one of a set of tags: its part of speech, or its place in an entity."""

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
    """`tags` in the order of the outputs, of a `scheme`; `subword_pooling` is which of a word's pieces speaks for it.

    With `crf`, transitions between tags have learned scores. `layer_aggregation` is a name of
    nn.layer_aggregation.LAYER_AGGREGATIONS.

    Raises UserError for tags that come twice.
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
        if not self.tags or len(set(self.tags)) < len(self.tags):
            raise UserError("a tag comes twice, or there is none.", where="tags", remedy="Name each tag once.")


class TaggingHead(Head):
    """A linear layer on the piece that speaks for each word (Devlin et al. 2019, §5.3: "the first sub-token").

    A network that reads one way knows a word only at the piece it reads last, so that the piece may be another one.
    Decoding finds the best tags that the scheme allows, which Devlin et al. do not. With a CRF the loss is that of
    Lample et al. 2016, over paths without forbidden transitions; which tags may begin and end a sentence is not part
    of it, since a window may begin amid one.
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
        self._allowed = allowed_transitions(config.tags, config.scheme)  # follows from the config, so not saved

    def forward(self, encoded: Encoded) -> Tensor:
        """(B, T, C) logits of each position, whatever stands there."""
        return self._logits(encoded.top)

    def _logits(self, vectors: Tensor) -> Tensor:
        dropped = F.dropout(vectors, self.config.input_dropout, self.training)
        with torch.autocast(dropped.device.type, enabled=False):
            logits: Tensor = self.output(dropped.float())
            return logits

    def loss(self, encoded: Encoded, batch: Batch) -> Loss:
        """The cross entropy summed over words, whose number is the count.

        `batch.words` (B, W) are the positions that speak for words, -1 where a row has no more; `batch.targets` (B, W)
        the tags' numbers, IGNORE there.
        """
        assert batch.targets is not None
        assert batch.words is not None
        mask = batch.words >= 0
        logits = self._logits(gather_words(encoded.top, batch.words))
        if not self.config.crf:
            each = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), ignore_index=IGNORE, reduction="sum")
            return Loss(total=each, count=int(mask.sum()))
        chain = Chain(self.start, self._moves(logits).between, self.end)
        paths = log_partition(logits, mask, chain) - path_score(logits, mask, batch.targets, chain)
        return Loss(total=paths.sum(), count=int(mask.sum()))

    def _moves(self, logits: Tensor) -> Chain:
        """The scores of beginnings, transitions and ends, -inf for those that are not allowed."""
        chain = uniform_chain(len(self.config.tags))
        if self.config.crf:
            chain = Chain(self.start, self.transitions, self.end)
        allowed = Chain(*(part.to(logits.device) for part in vars(self._allowed).values()))
        return chain.to(logits).masked(allowed)

    @torch.no_grad()
    def decode(self, logits: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """The best tags (B, W) of whole sentences and each one's probability (B, W), among paths that are allowed.

        logits (B, W, C) of words, mask (B, W) True from the left, one word a row at least.
        """
        if self.config.scheme == "plain" and not self.config.crf:
            shares, tags = torch.softmax(logits.double(), dim=2).max(dim=2)
            return tags.masked_fill(~mask, 0), shares.masked_fill(~mask, 0)
        chain = self._moves(logits)
        tags = viterbi(logits, mask, chain)
        return tags, marginals(logits, mask, chain).gather(2, tags[:, :, None])[:, :, 0]


def gather_words(vectors: Tensor, words: Tensor) -> Tensor:
    """(B, W, D) what (B, T, D) has at positions (B, W); anything at those below 0."""
    index = words.clamp(min=0)[:, :, None].expand(-1, -1, vectors.shape[2])
    return vectors.gather(1, index)


def allowed_transitions(tags: list[str], scheme: Scheme) -> Chain:
    """Bools: which tags may begin a sentence, follow each other, and end one."""
    start = [is_legal(OUTSIDE, tag, scheme) for tag in tags]
    between = [[is_legal(before, tag, scheme) for tag in tags] for before in tags]
    end = [is_legal(before, OUTSIDE, scheme) for before in tags]
    return Chain(torch.tensor(start), torch.tensor(between), torch.tensor(end))
