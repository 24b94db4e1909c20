"""Which layers a head reads (nn.layer_aggregation), as ONNX operators."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import torch

from textgraft.nn.layer_aggregation import Concatenation, ELMoMix, LayerAggregation, Mix
from textgraft.onnx.graph import Graph


def read(g: Graph, layer_aggregation: LayerAggregation | None, layers: Sequence[str]) -> str:
    """All layers (B, T, D_l), bottom -> top, as the one (B, T, D) that the head sees."""
    if layer_aggregation is None:
        return layers[-1]
    chosen = layers[layer_aggregation.selected]
    if isinstance(layer_aggregation, Concatenation):
        return str(g("Concat", *chosen, axis=2))
    if isinstance(layer_aggregation, Mix):
        widths = [layer_aggregation.output_dim] * len(chosen)
        chosen = (
            [_normalised(g, h, w) for h, w in zip(chosen, widths)] if isinstance(layer_aggregation, ELMoMix) else chosen
        )
        shares = (layer_aggregation.shares() * layer_aggregation.scale).tolist()
        chosen = [g("Mul", h, share) for h, share in zip(chosen, shares, strict=True)]
    return reduce(lambda a, b: str(g("Add", a, b)), chosen)


def _normalised(g: Graph, hidden: str, width: int) -> str:
    """With mean 0 and deviation 1 over the last axis."""
    ones = g.weight(torch.ones(width))
    return str(g("LayerNormalization", hidden, ones, g.weight(torch.zeros(width)), axis=-1, epsilon=1e-5))
