"""Multiple choice: a score for each option of a question, and a softmax over the options."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from textgraft.data.batch import Batch
from textgraft.data.sequences import Direction
from textgraft.encoders.base import Encoded
from textgraft.heads.base import Head, Loss
from textgraft.heads.classification import ClassificationConfig, ClassificationHead
from textgraft.nn.layer_aggregation import LAST


@dataclass(frozen=True)
class ChoiceConfig:
    """Settings of the layers that score one option; each as in ClassificationConfig."""

    input_dim: int
    pooling: str = "concat"
    hidden_dim: int = 50
    input_dropout: float = 0.4
    hidden_dropout: float = 0.1
    direction: Direction = "left"
    words_dim: int = 0
    batch_norm: bool = True
    layer_aggregation: str = LAST


class ChoiceHead(Head):
    """Each row is a context with one of its options; the same layers score all of them.

    Radford et al. 2018, §3.3, figure 1; Devlin et al. 2019, §4.4. Differs in that a question may have any number of
    options. Their order is not seen: swapped options swap their scores. Raises UserError for an unknown pooling.
    """

    config: ChoiceConfig

    def __init__(self, config: ChoiceConfig) -> None:
        super().__init__()
        self.config = config
        # A bias would raise all options alike, which a softmax does not see.
        self.score = ClassificationHead(ClassificationConfig(outputs=1, kind="numeric", **asdict(config)), bias=False)
        self.keep = self.score.keep

    def forward(self, encoded: Encoded) -> Tensor:
        """(E, C) logits for E questions of which one has C options, -inf where others have fewer."""
        assert encoded.groups is not None, "options come in groups"
        groups = encoded.groups
        scores = self.score(replace(encoded, groups=None)).squeeze(1)
        sizes = groups.bincount()
        place = torch.arange(len(groups), device=groups.device) - (sizes.cumsum(0) - sizes)[groups]
        return scores.new_full((len(sizes), int(sizes.max())), -torch.inf).index_put((groups, place), scores)

    def loss(self, encoded: Encoded, batch: Batch) -> Loss:
        """Cross entropy of the right option, summed over the questions, and their number."""
        assert batch.targets is not None
        logits = self(encoded)
        return Loss(total=F.cross_entropy(logits, batch.targets, reduction="sum"), count=len(logits))
