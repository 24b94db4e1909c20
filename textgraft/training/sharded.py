"""A model in parts, one on each process, by torch's fully sharded data parallelism (FSDP2).

Parameters, gradients and the optimizer's state are each divided over the processes; a layer is put together while it
computes. The whole model has to fit into the memory of each machine, but not onto its GPU.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor

from textgraft.core.processes import Processes
from textgraft.heads.base import Loss
from textgraft.models.model import Model
from textgraft.nn.batch_norm import synchronise
from textgraft.training.activation_checkpointing import layers
from textgraft.training.checkpoint import remove_part_folders, save_checkpoint
from textgraft.training.engines import Compute
from textgraft.training.parts import save_in_parts
from textgraft.training.shared_calls import METHODS


class Sharded:
    """Each process has a part of every parameter; FSDP2 sums the gradients.

    The model is divided again in each phase, as it has to know which parameters are trained.

    Args:
        model: The whole model; it gets the trained weights at the end.
        processes: Of the training.
        device: Of this process.
    """

    in_parts = True

    def __init__(self, model: Model, processes: Processes, device: torch.device) -> None:
        self.original, self.model, self.device = model, model, device
        self.factor = float(processes.size)
        self._processes = processes
        self._mesh = init_device_mesh(device.type, (processes.size,))

    def begin(self, set_trainable: Callable[[Model], None]) -> Model:
        self._gather()
        model: Any = copy.deepcopy(self.original)
        set_trainable(model)
        synchronise(model, self._processes)
        # No layer of ours is changed in place after it has returned.
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module")
        for block in layers(model):
            fully_shard(block, mesh=self._mesh)
        fully_shard(model, mesh=self._mesh)
        for name in METHODS:
            register_fsdp_forward_method(model, name)
        self.model = model.to(self.device)
        return self.model

    def loss(self, compute: Compute, *, last: bool) -> Loss:
        if isinstance(self.model, FSDPModule):
            self.model.set_requires_gradient_sync(last)
        return compute(self.model)

    def norm(self, grads: list[Tensor]) -> float:
        norm = torch.nn.utils.get_total_norm(grads)
        return float(norm.full_tensor() if isinstance(norm, DTensor) else norm)

    def save(self, path: Path, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        divided: dict[str, Tensor] = {name: value for name, value in tensors.items() if isinstance(value, DTensor)}
        whole = {name: value for name, value in tensors.items() if name not in divided}
        if divided:
            save_in_parts(path, whole, divided, state, self._processes)
        elif self._processes.first:
            save_checkpoint(path, whole, state)
            remove_part_folders(path)

    def like(self, value: Tensor, target: Tensor) -> Tensor:
        if not isinstance(target, DTensor) or value.shape != target.shape:  # such as the count of steps
            return value
        # All have the whole value, so that none has to be sent.
        return distribute_tensor(value.to(self.device), target.device_mesh, target.placements, src_data_rank=None)

    def end(self) -> Model:
        self._gather()
        self.model = self.original
        return self.model

    def _gather(self) -> None:
        """Copy the trained weights into the whole model."""
        if self.model is self.original:
            return
        trained = self.model.values()
        with torch.no_grad():
            for name, target in self.original.values().items():
                value = trained[name]
                target.copy_(value.full_tensor() if isinstance(value, DTensor) else value)
