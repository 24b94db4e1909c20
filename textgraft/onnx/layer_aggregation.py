"""Layer aggregations (nn.layer_aggregation) as ONNX operators."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import torch

from textgraft.nn.layer_aggregation import Concatenation, ELMoMix, LayerAggregation, Mix
from textgraft.onnx.graph import Graph


def read(g: Graph, layer_aggregation: LayerAggregation | None, layers: Sequence[str]) -> str:
    """Aggregate all layers (B, T, D_l), bottom to top, to the head's input (B, T, D)."""
    if layer_aggregation is None:
        return layers[-1]
    selected = layers[layer_aggregation.selected]
    if isinstance(layer_aggregation, Concatenation):
        return str(g("Concat", *selected, axis=2))
    if isinstance(layer_aggregation, Mix):
        widths = [layer_aggregation.output_dim] * len(selected)
        selected = (
            [_normalised(g, h, w) for h, w in zip(selected, widths)]
            if isinstance(layer_aggregation, ELMoMix)
            else selected
        )
        shares = (layer_aggregation.shares() * layer_aggregation.scale).tolist()
        selected = [g("Mul", h, share) for h, share in zip(selected, shares, strict=True)]
    return reduce(lambda a, b: str(g("Add", a, b)), selected)


def _normalised(g: Graph, hidden: str, width: int) -> str:
    """Normalise to mean 0 and standard deviation 1 over the last axis."""
    ones = g.weight(torch.ones(width))
    return str(g("LayerNormalization", hidden, ones, g.weight(torch.zeros(width)), axis=-1, epsilon=1e-5))
