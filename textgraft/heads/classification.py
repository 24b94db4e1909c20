"""A classifier: pool a document, then linear layers, with batch norm as in ULMFiT or without as in BERT."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from textgraft.core.errors import UserError, did_you_mean
from textgraft.data.batch import Batch
from textgraft.data.examples import TargetKind
from textgraft.data.sequences import Direction
from textgraft.encoders.base import Encoded
from textgraft.heads.base import Head, Loss
from textgraft.nn.batch_norm import BoundedBatchNorm
from textgraft.nn.layer_aggregation import LAST
from textgraft.nn.pooling import POOLINGS, pooled_dim

POOLED = "pooled"


@dataclass(frozen=True)
class ClassificationConfig:
    """`outputs` is the number of classes (1 for a numeric target); `direction` the encoder's.

    `pooling` is a name of nn.pooling.POOLINGS, or "pooled" for the vector that an encoder such as BERT makes itself.
    `hidden_dim` 0 leaves one linear layer, behind `input_dropout`. `words_dim`, if not 0, adds the mean and the maximum
    of the embedding layer (of that width) to what is pooled. `both_orders` says that each example is a pair that comes
    both ways round. `layer_aggregation` is a name of nn.layer_aggregation.LAYER_AGGREGATIONS; what it reads is what is
    pooled.
    """

    input_dim: int
    outputs: int
    kind: TargetKind = "single"
    pooling: str = "concat"
    hidden_dim: int = 50
    input_dropout: float = 0.4
    hidden_dropout: float = 0.1
    direction: Direction = "left"
    words_dim: int = 0
    batch_norm: bool = True
    both_orders: bool = False
    layer_aggregation: str = LAST


class ClassificationHead(Head):
    """[h_T, maxpool(H), meanpool(H)] -> BatchNorm-Dropout-Linear-ReLU-BatchNorm-Dropout-Linear.

    Howard & Ruder 2018, §3.3, except that what is normalised is bounded outside training (nn.batch_norm); with
    `words_dim` the word level stands beside the top layer, because a young language model's table knows words long
    before its upper layers know sentences. Where several rows make one example, a pair in both orders, what was pooled
    of them is added up first (Radford et al. 2018, figure 1, "similarity"). Scores are logits: softmax for one label, a
    sigmoid each for many, and for a numeric target the standardised value itself. Raises UserError for an unknown
    pooling, and for the encoder's own with a layer aggregation, which it knows nothing of.
    """

    config: ClassificationConfig
    class_weights: Tensor
    label_smoothing: float = 0.0  # while it is trained: none of the classifier that is saved

    def __init__(self, config: ClassificationConfig, *, bias: bool = True) -> None:
        super().__init__()
        known = (*POOLINGS, POOLED)
        if config.pooling not in known:
            raise UserError(f"unknown pooling '{config.pooling}'.", remedy=did_you_mean(config.pooling, known))
        if config.pooling == POOLED and config.layer_aggregation != LAST:
            message = f"pooling '{POOLED}' is of the last layer, whatever the layer aggregation '{config.layer_aggregation}' reads."
            raise UserError(message, remedy=f"Choose another pooling ({', '.join(POOLINGS)}).")
        self.config = config
        self.keep = "all" if config.words_dim else "top"
        self.width = pooled_dim(config.pooling, config.input_dim) + 2 * config.words_dim
        self.layers = nn.Sequential(*_layers(config, self.width, bias=bias))
        self.register_buffer("class_weights", torch.ones(config.outputs))

    def forward(self, encoded: Encoded) -> Tensor:
        """(E, outputs) logits of the examples, which mostly are the B rows. Raises UserError as `vectors` does."""
        return self.logits_of(self.vectors(encoded))

    def logits_of(self, vectors: Tensor) -> Tensor:
        """(E, outputs) logits of the examples of which `vectors` (E, D) is what the layers see."""
        with torch.autocast(vectors.device.type, enabled=False):
            logits: Tensor = self.layers(vectors.float())
            return logits

    def vectors(self, encoded: Encoded) -> Tensor:
        """(E, D) what the layers see of each example.

        Raises UserError for pooling "pooled" over an encoder without a pooler.
        """
        pooled = self._pooled(encoded)
        if self.config.words_dim:
            words = (POOLINGS[name](encoded.layers[0], encoded.mask, self.config.direction) for name in ("mean", "max"))
            pooled = torch.cat([pooled, *words], dim=-1)
        if encoded.groups is not None:
            examples = int(encoded.groups[-1]) + 1
            pooled = pooled.new_zeros(examples, pooled.shape[1]).index_add(0, encoded.groups, pooled)
        return pooled

    def _pooled(self, encoded: Encoded) -> Tensor:
        if self.config.pooling != POOLED:
            return POOLINGS[self.config.pooling](encoded.top, encoded.mask, self.config.direction)
        if encoded.pooled is None:
            remedy = f"Choose another pooling ({', '.join(POOLINGS)}), or an encoder made with pooler=True."
            raise UserError(f"pooling '{POOLED}' needs an encoder with a pooler, and this one has none.", remedy=remedy)
        return encoded.pooled

    def loss(self, encoded: Encoded, batch: Batch) -> Loss:
        """`loss_of` what the head sees of the encoder's answer."""
        return self.loss_of(self.vectors(encoded), batch)

    def loss_of(self, vectors: Tensor, batch: Batch) -> Loss:
        """Cross entropy, binary cross entropy summed over classes, or squared error; weighted by class if asked.

        `vectors` (E, D) are what `vectors` says of the batch's examples. Of one label a text `label_smoothing` gives
        a share to all classes alike.
        """
        assert batch.targets is not None
        logits = self.logits_of(vectors)
        if self.config.kind == "single":
            smoothing = self.label_smoothing
            total = F.cross_entropy(
                logits, batch.targets, weight=self.class_weights, label_smoothing=smoothing, reduction="sum"
            )
        elif self.config.kind == "multi":
            total = F.binary_cross_entropy_with_logits(
                logits, batch.targets, pos_weight=self.class_weights, reduction="sum"
            )
        else:
            total = F.mse_loss(logits.squeeze(1), batch.targets, reduction="sum")
        return Loss(total=total, count=len(logits))


def _layers(config: ClassificationConfig, width: int, *, bias: bool) -> list[nn.Module]:
    """What turns pooled vectors of this width into logits; with batch norm the hidden layer needs no bias.

    `bias` is that of the last layer.
    """
    norms: list[nn.Module] = [BoundedBatchNorm(width)] if config.batch_norm else []
    first = [*norms, nn.Dropout(config.input_dropout)]
    if not config.hidden_dim:
        return [*first, nn.Linear(width, config.outputs, bias=bias)]
    hidden = [nn.Linear(width, config.hidden_dim, bias=not config.batch_norm), nn.ReLU()]
    norms = [BoundedBatchNorm(config.hidden_dim)] if config.batch_norm else []
    last = nn.Linear(config.hidden_dim, config.outputs, bias=bias)
    return [*first, *hidden, *norms, nn.Dropout(config.hidden_dropout), last]
