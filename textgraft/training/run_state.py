"""The parts of a run's state as tensors by name, as its checkpoint has them (training.checkpoint)."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from textgraft.core.processes import Processes
from textgraft.encoders.base import State
from textgraft.models.model import Model
from textgraft.training.checkpoint import PARTS, load_checkpoint

Like = Callable[[Tensor, Tensor], Tensor]
"""From a whole tensor and the one it is for to the former as this process holds it (training.engines)."""


def load_run(path: Path) -> tuple[Mapping[str, Tensor], dict[str, Any]]:
    """Read the checkpoint of a run; tensors in parts are read one by one, as they are asked for.

    Raises:
        UserError: A file is damaged, or missing.
    """
    tensors, state = load_checkpoint(path)
    parts = state.pop(PARTS, None)
    if parts is None:
        return tensors, state
    from textgraft.training.parts import Parts  # takes two seconds to import

    return ChainMap(tensors, Parts(path, parts["folder"], parts["files"])), state  # type: ignore[arg-type]


def under(tensors: Mapping[str, Tensor], prefix: str) -> Mapping[str, Tensor]:
    """The tensors whose names begin with a prefix, without it, each read when it is asked for."""
    return _Under(tensors, prefix)


class _Under(Mapping[str, Tensor]):
    def __init__(self, tensors: Mapping[str, Tensor], prefix: str) -> None:
        self._tensors, self._prefix = tensors, prefix

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[self._prefix + name]

    def __iter__(self) -> Iterator[str]:
        return (name.removeprefix(self._prefix) for name in self._tensors if name.startswith(self._prefix))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def load_values(model: Model, values: Mapping[str, Tensor], like: Like = lambda value, target: value) -> None:
    """Copy saved weights by name into the model."""
    with torch.no_grad():
        for name, target in model.values().items():
            target.copy_(like(values[name], target))


def optimizer_tensors(optimizer: Optimizer) -> dict[str, Tensor]:
    """What an optimizer knows of each parameter, by the parameter's number and the optimizer's name for it."""
    state = optimizer.state_dict()["state"]
    return {f"{index}.{slot}": value for index, slots in state.items() for slot, value in slots.items()}


def load_optimizer(
    optimizer: Optimizer, tensors: Mapping[str, Tensor], groups: list[dict[str, Any]], like: Like
) -> None:
    """Restore what `optimizer_tensors` gave, and the settings of the parameter groups."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        index, slot = name.split(".", 1)
        state.setdefault(int(index), {})[slot] = like(value, parameters[int(index)])
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def encoder_tensors(state: State | None, processes: Processes) -> dict[str, Tensor]:
    """The encoder's state of the streams of all processes, by layer and place in the layer."""
    return {f"{i}.{j}": processes.rows(t) for i, layer in enumerate(state or ()) for j, t in enumerate(layer)}


def encoder_state(tensors: Mapping[str, Tensor], processes: Processes, device: torch.device) -> State | None:
    """The encoder's state of this process's streams, out of what `encoder_tensors` gave."""
    layers: dict[int, list[Tensor]] = {}
    for name, value in tensors.items():
        own = value[processes.share(len(value))].clone() if value.ndim else value
        layers.setdefault(int(name.split(".")[0]), []).append(own.to(device))
    return tuple(tuple(layers[i]) for i in range(len(layers))) or None
