"""Classification: pooling and linear layers, with batch normalisation as in ULMFiT or without as in BERT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from textgraft.core.errors import UserError
from textgraft.data.batch import Batch
from textgraft.data.examples import TargetKind
from textgraft.data.sequences import Direction
from textgraft.encoders.base import Encoded
from textgraft.heads.base import Head, Loss
from textgraft.nn.batch_norm import BoundedBatchNorm
from textgraft.nn.dense import dense_configs, dense_layers, projected
from textgraft.nn.layer_aggregation import LAST
from textgraft.nn.pooling import POOLINGS, pool, pooled_dim, validate_pooling

POOLED = "pooled"
Activation = Literal["relu", "tanh"]
ACTIVATIONS: dict[Activation, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh}


@dataclass(frozen=True)
class ClassificationConfig:
    """Configuration of the head.

    Args:
        input_dim: Width D of the pooled layer.
        outputs: Number of classes (1 for a numeric target).
        kind: Kind of the target.
        pooling: Name in nn.pooling.POOLINGS, several joined by +, or "pooled" for the encoder's own pooled vector
            (BERT).
        hidden_dim: Width of the hidden layer; 0 leaves one linear layer after `input_dropout`.
        activation: Activation of the hidden layer.
        input_dropout: Dropout before the first linear layer.
        hidden_dropout: Dropout before the last linear layer.
        direction: The encoder's direction.
        words_dim: If not 0, mean and maximum of the embedding layer (of this width) are added to the pooled vector.
        batch_norm: Use batch normalisation.
        both_orders: Each example is a pair of texts in both orders.
        layer_aggregation: Name in nn.layer_aggregation.LAYER_AGGREGATIONS; its output is pooled.
        dense: Layers of a sentence encoder above the pooled vector (nn.dense.DenseConfig).
        normalize: Scale the vector that comes out of these to length 1.
        bias: The last layer has a bias.
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
    dense: Sequence[Any] = ()
    normalize: bool = False
    bias: bool = True
    activation: Activation = "relu"

    def __post_init__(self) -> None:
        object.__setattr__(self, "dense", list(dense_configs(self.dense)))  # a list, as in config.json


class ClassificationHead(Head):
    """[h_T, maxpool(H), meanpool(H)] -> BatchNorm-Dropout-Linear-ReLU-BatchNorm-Dropout-Linear.

    Outputs are logits: softmax for one label, a sigmoid each for many, and for a numeric target the standardised value
    itself. Where several rows are one example, a pair in both orders, their pooled vectors are added first (Radford et
    al. 2018, figure 1, "similarity").

    Source: Howard & Ruder 2018, §3.3. Differences: normalised values are bounded outside training (nn.batch_norm); with
    `words_dim` the embedding layer is used beside the top layer, because the embeddings of a briefly trained language
    model are informative long before its upper layers are.

    Raises:
        UserError: The pooling is unknown, or is the encoder's own while `layer_aggregation` is not "last".
    """

    config: ClassificationConfig
    class_weights: Tensor
    label_smoothing: float = 0.0  # only while training; not saved with the classifier

    def __init__(self, config: ClassificationConfig, *, bias: bool = True) -> None:
        super().__init__()
        validate_pooling(config.pooling, POOLED)
        if config.pooling == POOLED and config.layer_aggregation != LAST:
            message = f"pooling '{POOLED}' uses the last layer, not the layer aggregation '{config.layer_aggregation}'."
            raise UserError(message, remedy=f"Choose another pooling ({', '.join(POOLINGS)}).")
        self.config = config
        self.keep = "all" if config.words_dim else "top"
        pooled = pooled_dim(config.pooling, config.input_dim)
        self.dense = nn.ModuleList(dense_layers(pooled, config.dense))
        self.width = (config.dense[-1].output_dim if config.dense else pooled) + 2 * config.words_dim
        self.layers = nn.Sequential(*_layers(config, self.width, bias=bias and config.bias))
        self.register_buffer("class_weights", torch.ones(config.outputs))

    def forward(self, encoded: Encoded) -> Tensor:
        """Logits (E, outputs) of the examples, which usually are the B rows. Raises UserError as `vectors` does."""
        return self.logits_of(self.vectors(encoded))

    def logits_of(self, vectors: Tensor) -> Tensor:
        """Logits (E, outputs) of examples with pooled vectors (E, D)."""
        with torch.autocast(vectors.device.type, enabled=False):
            logits: Tensor = self.layers(vectors.float())
            return logits

    def vectors(self, encoded: Encoded) -> Tensor:
        """Pooled vectors (E, D) of the examples.

        Raises:
            UserError: The pooling is "pooled" and the encoder has no pooler.
        """
        pooled = projected(self._pooled(encoded), self.dense, normalize=self.config.normalize)
        if self.config.words_dim:
            words = (POOLINGS[name](encoded.layers[0], encoded.mask, self.config.direction) for name in ("mean", "max"))
            pooled = torch.cat([pooled, *words], dim=-1)
        if encoded.groups is not None:
            examples = int(encoded.groups[-1]) + 1
            pooled = pooled.new_zeros(examples, pooled.shape[1]).index_add(0, encoded.groups, pooled)
        return pooled

    def _pooled(self, encoded: Encoded) -> Tensor:
        if self.config.pooling != POOLED:
            return pool(self.config.pooling, encoded.top, encoded.mask, self.config.direction)
        if encoded.pooled is None:
            remedy = f"Choose another pooling ({', '.join(POOLINGS)}), or an encoder made with pooler=True."
            raise UserError(f"pooling '{POOLED}' needs an encoder with a pooler; this one has none.", remedy=remedy)
        return encoded.pooled

    def loss(self, encoded: Encoded, batch: Batch) -> Loss:
        """The loss of a batch; see `loss_of`."""
        return self.loss_of(self.vectors(encoded), batch)

    def loss_of(self, vectors: Tensor, batch: Batch) -> Loss:
        """Cross entropy, binary cross entropy summed over classes, or squared error; weighted by class if configured.

        Args:
            vectors: Pooled vectors (E, D) of the batch's examples.
            batch: The batch with its targets. For one label a text, `label_smoothing` distributes a share over all
                classes.
        """
        assert batch.targets is not None
        logits, loss = self.logits_of(vectors), LOSSES[self.config.kind]
        total = loss(logits, batch.targets, weights=self.class_weights, smoothing=self.label_smoothing, reduction="sum")
        return Loss(total=total, count=len(logits))


class _TargetLoss(Protocol):
    """Loss of logits (E, C) against targets, weighted by class where there are classes."""

    def __call__(
        self, logits: Tensor, targets: Tensor, *, weights: Tensor | None = None, smoothing: float = 0.0, reduction: str
    ) -> Tensor: ...


def _cross_entropy(
    logits: Tensor, targets: Tensor, *, weights: Tensor | None = None, smoothing: float = 0.0, reduction: str
) -> Tensor:
    return F.cross_entropy(logits, targets, weight=weights, label_smoothing=smoothing, reduction=reduction)


def _binary_cross_entropy(
    logits: Tensor, targets: Tensor, *, weights: Tensor | None = None, smoothing: float = 0.0, reduction: str
) -> Tensor:
    return F.binary_cross_entropy_with_logits(logits, targets, pos_weight=weights, reduction=reduction)


def _squared_error(
    logits: Tensor, targets: Tensor, *, weights: Tensor | None = None, smoothing: float = 0.0, reduction: str
) -> Tensor:
    return F.mse_loss(logits.squeeze(1), targets, reduction=reduction)


LOSSES: Mapping[TargetKind, _TargetLoss] = {
    "single": _cross_entropy,
    "multi": _binary_cross_entropy,
    "numeric": _squared_error,
    "choice": _cross_entropy,
}
"""Loss of each kind of target; of a choice, for logits (E, options) of whole questions."""


def _layers(config: ClassificationConfig, width: int, *, bias: bool) -> list[nn.Module]:
    """The layers from pooled vectors of this width to logits; with batch norm the hidden layer needs no bias.

    `bias` is that of the last layer.
    """
    norms: list[nn.Module] = [BoundedBatchNorm(width)] if config.batch_norm else []
    first = [*norms, nn.Dropout(config.input_dropout)]
    if not config.hidden_dim:
        return [*first, nn.Linear(width, config.outputs, bias=bias)]
    hidden = [nn.Linear(width, config.hidden_dim, bias=not config.batch_norm), ACTIVATIONS[config.activation]()]
    norms = [BoundedBatchNorm(config.hidden_dim)] if config.batch_norm else []
    last = nn.Linear(config.hidden_dim, config.outputs, bias=bias)
    return [*first, *hidden, *norms, nn.Dropout(config.hidden_dropout), last]
