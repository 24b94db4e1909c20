"""Initialization of attention heads to attend to neighbours, which otherwise takes millions of tokens of training.

Trockman & Kolter 2023 ("Mimetic initialization of self-attention layers", arXiv:2305.09828) initialize attention to
resemble that of trained models. This is another initialization with that aim: a head for each of the nearest positions,
which sinusoids distinguish.
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
"""Radians per position of the first sinusoid; with 1, as in Vaswani et al. 2017, neighbours are too similar."""
PEAK = 5.8
"""Approximate attention score of a head's position, over a mean of 0 elsewhere; half of the input is the position."""


def sinusoids(length: int, dim: int) -> Tensor:
    """Sinusoids (length, dim): sines at even columns and cosines at odd ones, in pairs of falling frequency.

    Vaswani et al. 2017, §3.5, but from FASTEST down.
    """
    rates = FASTEST * 10_000.0 ** (-torch.arange(0, dim, 2) / dim)
    angles = torch.arange(length)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)[:, :dim]


def offsets(heads: int, direction: Direction) -> list[int]:
    """Offsets of all heads but the last, which stays random: -1, 1, -2, 2, …, or -1, -2, -3, … for direction "left"."""
    steps = range(1, heads)
    if direction == "left":
        return [-step for step in steps]
    return list(islice((side * step for step in steps for side in (-1, 1)), heads - 1))


def validate_position_table(encoder: Encoder, layers: int) -> None:
    """Raise UserError for an encoder without a table of positions, or with fewer than `layers` layers."""
    module: Any = encoder
    if not hasattr(encoder, "positions"):
        message = "this encoder has no table of positions, which start_near initializes."
        raise UserError(message, where="start_near", remedy="Leave it out: it is for BERT's and GPT's families.")
    if layers > len(module.layers):
        message = f"the encoder has {len(module.layers)} layers."
        raise UserError(message, where=f"start_near = {layers}", remedy="Give no more than that; 2 is enough.")


@torch.no_grad()
def init_neighbour_attention(encoder: Encoder, layers: int) -> None:
    """Initialize the heads of the lowest `layers` of a transformer to attend to neighbours, its positions to sinusoids.

    The positions get the standard deviation of the token table, so that after normalisation half of attention's input
    is the position. A head's query projects the fastest sinusoids as they are, its key the same rotated back by the
    head's offset o, which gives those of o positions before: the product is largest there. Both are added to the random
    weights.

    Raises:
        UserError: As `validate_position_table`.
    """
    validate_position_table(encoder, layers)
    module: Any = encoder
    table, positions = module.embedding.weight, module.positions.weight
    length, dim = positions.shape
    waves = sinusoids(length, dim)
    positions.copy_(waves * (table.std() / waves.std()))
    for layer in list(module.layers)[:layers]:
        width = dim // layer.attention.num_heads
        gain = math.sqrt(2 * PEAK / math.sqrt(width))
        query, key = layer.attention.inputs.weight[: 2 * dim].view(2, -1, width, dim)
        for head, offset in enumerate(offsets(layer.attention.num_heads, encoder.direction)):
            query[head, :, :width] += gain * torch.eye(width)
            key[head, :, :width] += gain * sinusoid_rotation(width, dim, -offset)


def sinusoid_rotation(width: int, dim: int, by: int) -> Tensor:
    """The matrix (width, width) from a position's first sinusoids to those of the position `by` after it."""
    angles = by * FASTEST * 10_000.0 ** (-torch.arange(0, width, 2) / dim)
    rotation = torch.zeros(width, width)
    sines, cosines = torch.arange(0, width - 1, 2), torch.arange(1, width, 2)
    cos, sin = angles.cos()[: len(sines)], angles.sin()[: len(sines)]
    rotation[sines, sines] = rotation[cosines, cosines] = cos
    rotation[sines, cosines], rotation[cosines, sines] = sin, -sin
    return rotation
