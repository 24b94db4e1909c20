"""Dense layers above a pooled vector, as sentence encoders have them: a product, a bias, an activation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from textgraft.core.errors import UserError, did_you_mean

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "identity": lambda x: x,
    "gelu": F.gelu,
    "relu": F.relu,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "tanh": torch.tanh,
}


@dataclass(frozen=True)
class DenseConfig:
    """Shape of a layer: its width, whether it has a bias, and a name of ACTIVATIONS.

    Raises UserError for an unknown activation.
    """

    output_dim: int
    bias: bool = True
    activation: str = "tanh"

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            raise UserError(
                f"unknown activation '{self.activation}'.", remedy=did_you_mean(self.activation, ACTIVATIONS)
            )


class Dense(nn.Linear):
    """x (…, input_dim) -> activation(x W + b) (…, output_dim)."""

    def __init__(self, input_dim: int, config: DenseConfig) -> None:
        super().__init__(input_dim, config.output_dim, bias=config.bias)
        self.config = config

    def forward(self, x: Tensor) -> Tensor:
        """x (…, input_dim) -> (…, output_dim)."""
        return ACTIVATIONS[self.config.activation](super().forward(x))


def dense_configs(values: Iterable[DenseConfig | Mapping[str, Any]]) -> tuple[DenseConfig, ...]:
    """The shapes of layers as they are, or as config.json has them."""
    return tuple(value if isinstance(value, DenseConfig) else DenseConfig(**value) for value in values)


def dense_layers(input_dim: int, shapes: Iterable[DenseConfig]) -> list[Dense]:
    """The layers of these shapes, each on top of the one before."""
    layers: list[Dense] = []
    for shape in shapes:
        layers.append(Dense(input_dim, shape))
        input_dim = shape.output_dim
    return layers


def projected(pooled: Tensor, layers: Iterable[nn.Module], *, normalize: bool) -> Tensor:
    """Pooled vectors (N, D) through dense layers, in float32 and then, with `normalize`, at length 1."""
    with torch.autocast(pooled.device.type, enabled=False):
        for layer in layers:
            pooled = layer(pooled.float())
        return F.normalize(pooled.float(), dim=-1) if normalize else pooled
