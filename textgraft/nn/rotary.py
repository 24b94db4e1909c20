"""Rotary position embeddings: queries and keys are rotated by angles that grow with their position.

The product of a rotated query and a rotated key depends on the distance of their positions only (Su et al. 2021,
arXiv:2104.09864, §3.2). As in the Llama models, component i is paired with component i + d / 2, where the paper pairs
neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from textgraft.core.errors import UserError, did_you_mean

SCALING_SETTINGS = {
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}
"""Ways to stretch the angles over longer texts than a model was first trained on, and the settings of each."""

Rotation = tuple[Tensor, Tensor]
"""Cosines and sines (…, T, d / 2) of the angles at T positions."""


def validate_scaling(scaling: Mapping[str, Any]) -> None:
    """Raise UserError for an unknown type of scaling, or one with missing settings."""
    kind = str(scaling.get("type"))
    if kind not in SCALING_SETTINGS:
        message = f"unknown scaling of the rotary positions '{kind}'."
        raise UserError(message, where="rotary_scaling", remedy=did_you_mean(kind, SCALING_SETTINGS))
    absent = [name for name in SCALING_SETTINGS[kind] if not isinstance(scaling.get(name), int | float)]
    if absent:
        message = f"the scaling '{kind}' lacks the number {absent[0]}."
        raise UserError(message, where="rotary_scaling", remedy="Take it from the model's config.json.")


def frequencies(
    dim: int, base: float, scaling: Mapping[str, Any] | None = None, device: torch.device | None = None
) -> Tensor:
    """Angles per position (d / 2,) of the pairs of a head of width `dim`, in float32, fastest first.

    Args:
        dim: Width d of a head.
        base: Base of the geometric series; the last pair rotates about `base` times slower than the first.
        scaling: None, or `type` and settings of SCALING_SETTINGS.
        device: Where to put them.
    """
    rates = 1.0 / (base ** (torch.arange(0, dim, 2, dtype=torch.float32, device=device) / dim))
    if scaling is None:
        return rates
    if scaling["type"] == "linear":
        return rates / scaling["factor"]
    # Llama 3.1: slow pairs are slowed down further, fast ones are kept, those between are interpolated.
    turns = scaling["original_max_position_embeddings"] * rates / (2 * math.pi)  # in the text length of pretraining
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return (1 - kept) * rates / scaling["factor"] + kept * rates


def rotation(positions: Tensor, rates: Tensor) -> Rotation:
    """Cosines and sines (…, T, d / 2) for positions (…, T) and the rates of `frequencies`."""
    angles = positions[..., None].float() * rates
    return angles.cos(), angles.sin()


def rotated(x: Tensor, by: Rotation) -> Tensor:
    """Rotate x (B, H, T, d); computed in float32 and returned in the dtype of x."""
    cos, sin = by
    first, second = x.float().chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x.dtype)
