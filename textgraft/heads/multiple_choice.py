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
from textgraft.heads.classification import Activation, ClassificationConfig, ClassificationHead
from textgraft.nn.layer_aggregation import LAST


@dataclass(frozen=True)
class ChoiceConfig:
    """Configuration of the layers that score one option; each field as in ClassificationConfig."""

    input_dim: int
    pooling: str = "concat"
    hidden_dim: int = 50
    input_dropout: float = 0.4
    hidden_dropout: float = 0.1
    direction: Direction = "left"
    words_dim: int = 0
    batch_norm: bool = True
    layer_aggregation: str = LAST
    activation: Activation = "relu"


class ChoiceHead(Head):
    """Score each option, a row with the context and one option, by the same layers.

    The order of the options has no influence: swapped options have swapped scores. Raises UserError for an unknown
    pooling.

    Source: Radford et al. 2018, §3.3, figure 1; Devlin et al. 2019, §4.4. Differs in that questions may have different
    numbers of options.
    """

    config: ChoiceConfig

    def __init__(self, config: ChoiceConfig) -> None:
        super().__init__()
        self.config = config
        # No bias: a softmax over options is invariant to it.
        self.score = ClassificationHead(ClassificationConfig(outputs=1, kind="numeric", **asdict(config)), bias=False)
        self.keep = self.score.keep

    def forward(self, encoded: Encoded) -> Tensor:
        """Logits (E, C) of E questions with at most C options, -inf where a question has fewer."""
        assert encoded.groups is not None, "options come in groups"
        groups = encoded.groups
        scores = self.score(replace(encoded, groups=None)).squeeze(1)
        sizes = groups.bincount()
        position = torch.arange(len(groups), device=groups.device) - (sizes.cumsum(0) - sizes)[groups]
        return scores.new_full((len(sizes), int(sizes.max())), -torch.inf).index_put((groups, position), scores)

    def loss(self, encoded: Encoded, batch: Batch) -> Loss:
        """Cross entropy of the right option, summed over the questions, and their number."""
        assert batch.targets is not None
        logits = self(encoded)
        return Loss(total=F.cross_entropy(logits, batch.targets, reduction="sum"), count=len(logits))
