"""Layer aggregation: one vector a position from all layers of an encoder.

Devlin et al. 2019 (table 7) compare six as features for a tagger: the embeddings, the last hidden layer, the one before
it, the sum of all, and the sum and the concatenation of the last four. Their final version calls the sums weighted
without details; these are unweighted, as in its first version. The seventh is ELMo's learned mix.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from textgraft.core.errors import UserError, did_you_mean

LAST = "last"
"""The default layer aggregation."""
LAYER_DROPOUT = 0.1
MIX_PENALTY = 0.001
"""λ; Peters et al. 2018 try 1, which all but keeps the average, and 0.001 (table 2)."""


class LayerAggregation(nn.Module):
    """Aggregation of the layers in the slice `selected` of `Encoded.layers`.

    `widths` are those of all layers, bottom (embeddings) to top; `output_dim` is the width of the result.
    """

    output_dim: int

    def __init__(self, selected: slice, widths: Sequence[int]) -> None:
        super().__init__()
        self.selected = selected
        self.output_dim = self.width_of(widths[selected])

    @staticmethod
    def width_of(widths: Sequence[int]) -> int:
        """Width of the aggregate of layers of these widths; 0 where they cannot be aggregated."""
        return widths[0] if len(set(widths)) == 1 else 0

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        """All layers, (B, T, D_l) each, bottom to top, -> (B, T, output_dim)."""
        raise NotImplementedError

    def penalty(self) -> Tensor | None:
        """Term that training adds to the mean loss, if any."""
        return None


class Sum(LayerAggregation):
    """Sum of the layers, in float32; a single layer is unchanged."""

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        summands = layers[self.selected]
        return summands[0] if len(summands) == 1 else reduce(torch.add, (h.float() for h in summands))


class Concatenation(LayerAggregation):
    """Concatenation of the layers, the lowest first."""

    @staticmethod
    def width_of(widths: Sequence[int]) -> int:
        return sum(widths)

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(layers[self.selected]), dim=-1)


class Mix(LayerAggregation):
    """gamma * sum_j s_j h_j: a softmax over the layers and a scale, both learned (Peters et al. 2018, eq. 1).

    It starts as the mean of the layers. The paper's additions for some tasks are in `ELMoMix`.
    """

    def __init__(self, selected: slice, widths: Sequence[int]) -> None:
        super().__init__(selected, widths)
        self.weights = nn.Parameter(torch.zeros(len(widths[selected])))
        self.scale = nn.Parameter(torch.ones(()))

    def shares(self) -> Tensor:
        """Softmax weights of the layers, (L,)."""
        return torch.softmax(self.weights, dim=0)

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        weighted = (share * h.float() for share, h in zip(self.shares(), layers[self.selected], strict=True))
        return self.scale * reduce(torch.add, weighted)


class ELMoMix(Mix):
    """The mix of ELMo's tasks: layers normalised, layer dropout in training, weights penalised towards the average.

    Each position of each layer is normalised (Ba et al. 2016, without parameters); AllenNLP uses one mean and deviation
    over all positions of a batch, which would make a text's vectors depend on the rest of the batch. In training each
    layer is dropped with a probability of LAYER_DROPOUT, its weight -inf before the softmax; with all dropped the mix
    is their mean. The penalty is λ|w|² of the weights before the softmax (appendix A.1 of the paper).
    """

    def shares(self) -> Tensor:
        if not self.training:
            return super().shares()
        out = torch.rand_like(self.weights) < LAYER_DROPOUT
        return torch.softmax(self.weights.masked_fill(out, torch.finfo(self.weights.dtype).min), dim=0)

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        return super().forward([F.layer_norm(h.float(), h.shape[-1:]) for h in layers])

    def penalty(self) -> Tensor:
        return MIX_PENALTY * self.weights.square().sum()


# name: (class, selected layers, minimum number of layers above the embeddings)
LAYER_AGGREGATIONS: dict[str, tuple[type[LayerAggregation], slice, int]] = {
    "first": (Sum, slice(0, 1), 0),
    LAST: (Sum, slice(-1, None), 1),
    "second-to-last": (Sum, slice(-2, -1), 2),
    "sum": (Sum, slice(1, None), 1),
    "sum-last-4": (Sum, slice(-4, None), 4),
    "concat-last-4": (Concatenation, slice(-4, None), 4),
    "mix": (Mix, slice(None), 1),
    "elmo-mix": (ELMoMix, slice(None), 1),
}
"""`sum` and the last four leave the embedding layer out, `first` and the mixes include it."""


def validate_layer_aggregation(name: str) -> None:
    """Raise UserError for an unknown layer aggregation."""
    if name not in LAYER_AGGREGATIONS:
        raise UserError(f"unknown layer aggregation '{name}'.", remedy=did_you_mean(name, LAYER_AGGREGATIONS))


def new_layer_aggregation(name: str, widths: Sequence[int]) -> LayerAggregation:
    """Make the layer aggregation `name` for layers of these widths, embeddings first.

    Raises:
        UserError: The name is unknown, there are too few layers, or layers of unequal widths cannot be added; the
            message lists the possible layer aggregations.
    """
    validate_layer_aggregation(name)
    hindrance = _hindrance(name, widths)
    if hindrance:
        possible = ", ".join(other for other in LAYER_AGGREGATIONS if not _hindrance(other, widths))
        raise UserError(f"the layer aggregation '{name}' {hindrance}.", remedy=f"Possible with this model: {possible}.")
    kind, selected, _ = LAYER_AGGREGATIONS[name]
    return kind(selected, widths)


def _hindrance(name: str, widths: Sequence[int]) -> str:
    """The reason against this layer aggregation; empty if it is possible."""
    kind, selected, needed = LAYER_AGGREGATIONS[name]
    count = len(widths) - 1
    if count < needed:
        return f"needs {needed} layers above the embeddings; this model has {count}"
    if not kind.width_of(widths[selected]):
        return f"adds layers up, which here have widths of {', '.join(map(str, widths[selected]))}"
    return ""
