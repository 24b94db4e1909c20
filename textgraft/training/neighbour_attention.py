"""Heads that look at neighbours from the first step: what a new transformer spends millions of tokens on finding.

Trockman & Kolter 2023 ("Mimetic initialization of self-attention layers", arXiv:2305.09828) start attention where
trained models have it. Ours is another start with that aim: a head for each of the nearest places, told apart by
sinusoids.
"""

from __future__ import annotations

import math
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from textgraft.core.errors import UserError
from textgraft.data.sequences import Direction
from textgraft.encoders.base import Encoder

FASTEST = math.pi
"""Radians a position of the first sinusoid; of 1, as in Vaswani et al. 2017, neighbours are too much alike."""
PEAK = 5.8
"""The score of the place that a head looks at, about, over a mean of 0 elsewhere; half the input is the position."""


def sinusoids(length: int, dim: int) -> Tensor:
    """(length, dim) sines at even columns and cosines at odd ones, of one pair's frequency after the other's, falling.

    Vaswani et al. 2017, §3.5, but from FASTEST down.
    """
    rates = FASTEST * 10_000.0 ** (-torch.arange(0, dim, 2) / dim)
    angles = torch.arange(length)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)[:, :dim]


def offsets(heads: int, direction: Direction) -> list[int]:
    """Where all heads but the last look, which is left to find its own: -1, 1, -2, 2, …, or -1, -2, -3, …."""
    steps = range(1, heads)
    if direction == "left":
        return [-step for step in steps]
    return list(islice((side * step for step in steps for side in (-1, 1)), heads - 1))


def refuse_without_neighbours(encoder: Encoder, layers: int) -> None:
    """Raises UserError for an encoder without a table of positions, or whose layers are fewer."""
    parts: Any = encoder
    if not hasattr(encoder, "positions"):
        message = "this encoder has no table of positions to tell neighbours by."
        raise UserError(message, where="start_near", remedy="Leave it out: it is for BERT's and GPT's families.")
    if layers > len(parts.layers):
        message = f"there are {len(parts.layers)} layers."
        raise UserError(message, where=f"start_near = {layers}", remedy="Name no more than there are; 2 is enough.")


@torch.no_grad()
def start_near(encoder: Encoder, layers: int) -> None:
    """Have the heads of the lowest `layers` of a fresh transformer look at neighbours; its positions become sinusoids.

    The positions get the deviation of the token table, so that after a normalisation half of what attention reads is
    the place. A head's query takes the quickest sinusoids as they are, its key the same turned back by the head's
    offset o, which is what they were o places before: the product is largest there. Both are added to what was drawn.

    Raises UserError as `refuse_without_neighbours` does.
    """
    refuse_without_neighbours(encoder, layers)
    parts: Any = encoder
    table, positions = parts.embedding.weight, parts.positions.weight
    length, dim = positions.shape
    waves = sinusoids(length, dim)
    positions.copy_(waves * (table.std() / waves.std()))
    for layer in list(parts.layers)[:layers]:
        width = dim // layer.attention.num_heads
        gain = math.sqrt(2 * PEAK / math.sqrt(width))
        query, key = layer.attention.inputs.weight[: 2 * dim].view(2, -1, width, dim)
        for head, offset in enumerate(offsets(layer.attention.num_heads, encoder.direction)):
            query[head, :, :width] += gain * torch.eye(width)
            key[head, :, :width] += gain * turned(width, dim, -offset)


def turned(width: int, dim: int, by: int) -> Tensor:
    """(width, width) that takes the first sinusoids of a position to those of the position `by` further on."""
    angles = by * FASTEST * 10_000.0 ** (-torch.arange(0, width, 2) / dim)
    rotation = torch.zeros(width, width)
    sines, cosines = torch.arange(0, width - 1, 2), torch.arange(1, width, 2)
    cos, sin = angles.cos()[: len(sines)], angles.sin()[: len(sines)]
    rotation[sines, sines] = rotation[cosines, cosines] = cos
    rotation[sines, cosines], rotation[cosines, sines] = sin, -sin
    return rotation
