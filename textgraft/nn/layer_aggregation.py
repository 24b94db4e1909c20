"""Layer aggregation: one vector a position, out of what every layer of an encoder says of it.

Devlin et al. 2019 (table 7) try six as features for a tagger: the embeddings, the last hidden layer, the one before it,
the sum of all, and of the last four their sum and all side by side. Their final version calls the sums weighted and
does not say how; these are plain, as in its first version. The seventh is the mix that ELMo learns.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from textgraft.core.errors import UserError, did_you_mean

LAST = "last"
"""The layer aggregation that everybody uses who says nothing."""
LAYER_DROPOUT = 0.1
LAMBDA = 0.001
"""Peters et al. 2018 try 1, which all but keeps the average, and 0.001 (table 2)."""


class LayerAggregation(nn.Module):
    """Reads some of an encoder's layers, those that the slice `read` takes of `Encoded.layers`.

    `widths` are those of all layers, bottom (embeddings) -> top. `output_dim` is the width of what comes out.
    """

    output_dim: int

    def __init__(self, read: slice, widths: Sequence[int]) -> None:
        super().__init__()
        self.read = read
        self.output_dim = self.width_of(widths[read])

    @staticmethod
    def width_of(widths: Sequence[int]) -> int:
        """The width of what comes out of layers so wide; 0 where these widths do not go together."""
        return widths[0] if len(set(widths)) == 1 else 0

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        """All layers, (B, T, D_l) each, bottom -> top -> (B, T, output_dim)."""
        raise NotImplementedError

    def penalty(self) -> Tensor | None:
        """What training adds to the mean loss, if anything."""
        return None


class Sum(LayerAggregation):
    """The layers added up, in float32; a single layer is itself."""

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        chosen = layers[self.read]
        return chosen[0] if len(chosen) == 1 else reduce(torch.add, (h.float() for h in chosen))


class Concatenation(LayerAggregation):
    """The layers side by side, the lowest first."""

    @staticmethod
    def width_of(widths: Sequence[int]) -> int:
        return sum(widths)

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(layers[self.read]), dim=-1)


class Mix(LayerAggregation):
    """gamma * sum_j s_j h_j: a softmax over the layers and a scale, both learned (Peters et al. 2018, eq. 1).

    At first the mean of the layers. What the paper puts around it in some tasks is left out (`ELMoMix` has it).
    """

    def __init__(self, read: slice, widths: Sequence[int]) -> None:
        super().__init__(read, widths)
        self.weights = nn.Parameter(torch.zeros(len(widths[read])))
        self.scale = nn.Parameter(torch.ones(()))

    def shares(self) -> Tensor:
        """How much of each layer there is in the mix, (L,)."""
        return torch.softmax(self.weights, dim=0)

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        weighed = (share * h.float() for share, h in zip(self.shares(), layers[self.read], strict=True))
        return self.scale * reduce(torch.add, weighed)


class ELMoMix(Mix):
    """The mix as ELMo's tasks have it: layers normalised, some left out in training, weights drawn to their average.

    Each position of each layer is normalised (Ba et al. 2016, without weights of its own); AllenNLP takes one mean and
    deviation over all positions of a batch, by which a text's vectors would depend on what is read beside it. In
    training each layer is out with a probability of LAYER_DROPOUT, its weight -inf before the softmax; with all out
    the mix is their mean. The penalty is λ|w|² of the weights before the softmax (appendix A.1 of the paper).
    """

    def shares(self) -> Tensor:
        if not self.training:
            return super().shares()
        out = torch.rand_like(self.weights) < LAYER_DROPOUT
        return torch.softmax(self.weights.masked_fill(out, torch.finfo(self.weights.dtype).min), dim=0)

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        return super().forward([F.layer_norm(h.float(), h.shape[-1:]) for h in layers])

    def penalty(self) -> Tensor:
        return LAMBDA * self.weights.square().sum()


# name: (class, which of the layers it reads, how many must lie above the embeddings)
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
"""The embeddings are no hidden layer: `sum` and the last four leave them out, `first` and the mixes read them."""


def validate_layer_aggregation(name: str) -> None:
    """Raises UserError for a layer aggregation that there is not."""
    if name not in LAYER_AGGREGATIONS:
        raise UserError(f"unknown layer aggregation '{name}'.", remedy=did_you_mean(name, LAYER_AGGREGATIONS))


def new_layer_aggregation(name: str, widths: Sequence[int]) -> LayerAggregation:
    """The layer aggregation `name` of an encoder whose layers, embeddings and upwards, have these widths.

    Raises UserError for an unknown name, for too few layers, and for layers of unequal widths that are to be added up;
    it says which layer aggregations are possible.
    """
    validate_layer_aggregation(name)
    hindrance = _hindrance(name, widths)
    if hindrance:
        possible = ", ".join(other for other in LAYER_AGGREGATIONS if not _hindrance(other, widths))
        raise UserError(f"the layer aggregation '{name}' {hindrance}.", remedy=f"Possible with this model: {possible}.")
    kind, read, _ = LAYER_AGGREGATIONS[name]
    return kind(read, widths)


def _hindrance(name: str, widths: Sequence[int]) -> str:
    """Why the layers cannot be read so; empty where they can."""
    kind, read, needed = LAYER_AGGREGATIONS[name]
    there = len(widths) - 1
    if there < needed:
        return f"needs {needed} layers above the embeddings, and this model has {there}"
    if not kind.width_of(widths[read]):
        return f"adds layers up, and these have widths of {', '.join(map(str, widths[read]))}"
    return ""
