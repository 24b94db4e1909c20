"""Gradients on one process or several: alone, with a copy of the model on each (DDP), or with a part of it (FSDP2).

The loss of a batch is a sum, and each process has a share of its examples. `factor` times the gradient that an engine
leaves is that of the sum over all processes, which the loop divides by the global count.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from textgraft.core.errors import UserError, did_you_mean
from textgraft.core.processes import ALONE, Processes
from textgraft.heads.base import Loss
from textgraft.models.model import Model
from textgraft.nn.batch_norm import batch_norms, synchronise
from textgraft.training.checkpoint import remove_part_folders, save_checkpoint

Compute = Callable[[Model], Loss]
"""A function of the model that returns the loss of this process's share of a batch."""


class Engine(Protocol):
    """The model of a training as its processes hold it.

    Attributes:
        model: The model that is trained; another one after `begin`.
        factor: Factor of the gradients.
        in_parts: Each process has a part of the model only.
    """

    model: Model
    factor: float
    in_parts: bool

    def begin(self, set_trainable: Callable[[Model], None]) -> Model:
        """Begin a phase: `set_trainable` says which parameters are trained; returns the model to train."""
        ...

    def loss(self, compute: Compute, *, last: bool) -> Loss:
        """The loss of a part of a step; the backward pass of the last part sums the gradients of all processes."""
        ...

    def norm(self, grads: list[Tensor]) -> float:
        """The norm of all gradients together."""
        ...

    def save(self, path: Path, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Write a checkpoint of these tensors, as this process holds them. All processes have to call it at once."""
        ...

    def like(self, value: Tensor, target: Tensor) -> Tensor:
        """A full tensor as this process holds `target`."""
        ...

    def end(self) -> Model:
        """The model in full, after the last phase."""
        ...


class Single:
    """One process."""

    factor = 1.0
    in_parts = False

    def __init__(self, model: Model) -> None:
        self.model = model

    def begin(self, set_trainable: Callable[[Model], None]) -> Model:
        set_trainable(self.model)
        return self.model

    def loss(self, compute: Compute, *, last: bool) -> Loss:
        return compute(self.model)

    def norm(self, grads: list[Tensor]) -> float:
        return float(torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads))))

    def save(self, path: Path, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        save_checkpoint(path, tensors, state)
        remove_part_folders(path)  # of a run that began with a model in parts

    def like(self, value: Tensor, target: Tensor) -> Tensor:
        return value

    def end(self) -> Model:
        return self.model


class Replicated(Single):
    """A copy of the model on each process, whose gradients torch's DistributedDataParallel averages.

    It is wrapped again in each phase, as it has to know which parameters are trained. Parameters that a step does not
    use, on any process, keep no gradient, as on one process.
    """

    def __init__(self, model: Model, processes: Processes) -> None:
        super().__init__(model)
        self.factor = float(processes.size)
        self._processes = processes
        self._ddp: DistributedDataParallel | None = None

    def begin(self, set_trainable: Callable[[Model], None]) -> Model:
        set_trainable(self.model)
        synchronise(self.model, self._processes)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # the newer name of broadcast_buffers is of torch 2.13
            self._ddp = DistributedDataParallel(
                _Losses(self.model), broadcast_buffers=False, find_unused_parameters=True, gradient_as_bucket_view=False
            )
        return self.model

    def loss(self, compute: Compute, *, last: bool) -> Loss:
        assert self._ddp is not None
        context: AbstractContextManager[Any] = nullcontext() if last else self._ddp.no_sync()
        with context:
            total, loss = self._ddp(compute)
        return replace(loss, total=total)

    def save(self, path: Path, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        if self._processes.first:
            super().save(path, tensors, state)

    def end(self) -> Model:
        synchronise(self.model, ALONE)
        return self.model


class _Losses(nn.Module):
    """A model whose forward pass is a loss, as DistributedDataParallel takes it."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, compute: Compute) -> tuple[Tensor, Loss]:
        """The total, with its gradient, and the loss without any, so that no other output seems to need one."""
        loss = compute(self.model)
        state = None if loss.state is None else tuple(tuple(t.detach() for t in layer) for layer in loss.state)
        return loss.total, replace(loss, total=loss.total.detach(), state=state)


def nothing(model: Model) -> Loss:
    """The loss of no example: zero, with a gradient of zeros, so that a process without any takes part in a step."""
    total = torch.stack([p.flatten()[0].float() for p in model.parameters() if p.requires_grad]).sum() * 0.0
    for norm in batch_norms(model):
        total = total + norm(total.new_zeros(0, norm.num_features)).sum()
    return Loss(total, 0)


SHARDINGS = ("none", "full")
"""none: a copy of the model on each process (DDP); full: a part of it (FSDP2)."""


def validate_sharding(name: str) -> None:
    """Raise UserError for a name that SHARDINGS does not have."""
    if name not in SHARDINGS:
        raise UserError(f"unknown sharding '{name}'.", remedy=did_you_mean(name, SHARDINGS))
