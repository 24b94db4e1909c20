"""Optimizers of a phase: parameter groups with their peak learning rates, and NT-ASGD."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from textgraft.core.processes import ALONE, Processes
from textgraft.encoders.base import LayerGroup
from textgraft.training.muon import Muon
from textgraft.training.phases import Phase
from textgraft.training.schedules import MOMENTA, SCHEDULES
from textgraft.training.uncompiled_optimizers import SGD, Adam, AdamW, Uncompiled


def is_vector(parameter: nn.Parameter) -> bool:
    """True for biases and the gains of normalisations, which weight decay should not apply to."""
    return parameter.ndim < 2


def build_optimizer(
    groups: Sequence[LayerGroup],
    phase: Phase,
    *,
    undecayed: Callable[[nn.Parameter], bool] = is_vector,
    processes: Processes = ALONE,
) -> Optimizer:
    """A new optimizer for the layer groups that a phase trains.

    Each parameter group has the layer group's `name` and its peak rate as `initial_lr`, which `set_rates` multiplies.
    Parameters without weight decay are a separate group of the same name; so, for muon, are the matrices that it
    orthogonalises. Adam and AdamW run fused, which on a CPU takes 7 ms instead of 115 for nine million parameters.

    Args:
        groups: All layer groups of the model, bottom -> top, head last.
        phase: Names the optimizer, its trainable groups, rates and weight decay.
        undecayed: True for a parameter without weight decay.
        processes: That train copies of the model.
    """
    hidden = _hidden_matrices(groups) if phase.optimizer == "muon" else set()
    param_groups: list[dict[str, Any]] = []
    for group, rate in zip(groups, phase.rates(len(groups)), strict=True):
        if rate is None:
            continue
        for decay in (phase.weight_decay, 0.0) if phase.weight_decay else (0.0,):
            chosen = [p for p in group.parameters if not phase.weight_decay or undecayed(p) == (decay == 0)]
            settings = {"name": group.name, "lr": rate, "initial_lr": rate, "weight_decay": decay}
            matrices = [p for p in chosen if id(p) in hidden]
            rest = [p for p in chosen if id(p) not in hidden]
            if matrices:
                param_groups.append({"params": matrices, **settings, "orthogonal": True})
            if rest:
                param_groups.append({"params": rest, **settings})
    match phase.optimizer:
        case "adamw":
            return AdamW(param_groups, betas=phase.betas, fused=True)
        case "adam":
            return Adam(param_groups, betas=phase.betas, fused=True)
        case "sgd":
            return SGD(param_groups, momentum=phase.betas[0], fused=True)
        case "ntasgd":
            return NTASGD(param_groups)
        case "muon":
            return Muon(param_groups, betas=phase.betas, processes=processes)


def _hidden_matrices(groups: Sequence[LayerGroup]) -> set[int]:
    """The ids of all matrices but those of the embedding and of the last group, which is the head."""
    body = [group for group in groups[:-1] if group.name != "embedding"]
    return {id(p) for group in body for p in group.parameters if p.ndim == 2}


def set_rates(optimizer: Optimizer, phase: Phase, step: int, total: int, *, scale: float = 1.0) -> float:
    """Set every group's learning rate for one step.

    A schedule of the momentum (one-cycle) sets the first beta of Adam or the momentum of SGD too.

    Args:
        optimizer: Made by `build_optimizer`.
        phase: Names the schedule and its warm-up.
        step: Number of the step, from 0.
        total: Number of steps in the phase.
        scale: Factor for this step alone, such as for a window longer or shorter than the mean (variable-length BPTT).

    Returns:
        The schedule's multiplier.
    """
    multiplier = SCHEDULES[phase.schedule](step, total, phase.warmup)
    for group in optimizer.param_groups:
        group["lr"] = group["initial_lr"] * multiplier * scale
        if phase.schedule in MOMENTA:
            momentum = MOMENTA[phase.schedule](step, total, phase.warmup)
            if "betas" in group:
                group["betas"] = (momentum, group["betas"][1])
            elif "momentum" in group:
                group["momentum"] = momentum
    return multiplier


class NTASGD(Uncompiled):
    """Non-monotonically triggered averaged SGD: SGD until the validation loss stops falling, then averages.

    Merity, Keskar & Socher 2018, Algorithm 1. Call `observe` with the validation loss every L steps (the logging
    interval; an epoch in the paper). Averaging starts the first time that a loss is worse than the best of those at
    least `patience` (the paper's n = 5) observations older. From then on `averaged` gives the model the mean of the
    weights since, step T included. Weight decay is L2, added to the gradient, as in the authors' code.

    All state is in torch's `state_dict`: the averages in `state`, plain numbers (`losses`, `averaged_steps`; None
    before the trigger) in `param_groups[0]`.
    """

    def __init__(
        self, params: Iterable[Any], lr: float = 30.0, *, weight_decay: float = 0.0, patience: int = 5
    ) -> None:
        defaults = {"lr": lr, "weight_decay": weight_decay, "patience": patience}
        super().__init__(params, defaults)
        self.param_groups[0].update(losses=[], averaged_steps=None)

    @property
    def averaging(self) -> bool:
        """True once averaging has started."""
        return self.param_groups[0]["averaged_steps"] is not None

    def observe(self, loss: float) -> bool:
        """Record a validation loss; True if it starts the averaging."""
        monitor = self.param_groups[0]
        older = monitor["losses"][: max(0, len(monitor["losses"]) - monitor["patience"])]
        triggered = not self.averaging and len(older) > 0 and loss > min(older)
        monitor["losses"] = [*monitor["losses"], float(loss)]
        if triggered:
            monitor["averaged_steps"] = 1
            for parameter in self._parameters():
                self.state[parameter]["average"] = parameter.detach().clone()
        return triggered

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One SGD step; once triggered, the new weights are added to the mean."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                if group["weight_decay"]:
                    parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.add_(parameter.grad, alpha=-group["lr"])
        if self.averaging:
            monitor = self.param_groups[0]
            monitor["averaged_steps"] += 1
            for parameter in self._parameters():
                self.state[parameter]["average"].lerp_(parameter, 1 / monitor["averaged_steps"])
        return loss

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Context in which the parameters are their averages (unchanged before the trigger)."""
        if not self.averaging:
            yield
            return
        current = {parameter: parameter.detach().clone() for parameter in self._parameters()}
        try:
            with torch.no_grad():
                for parameter in current:
                    parameter.copy_(self.state[parameter]["average"])
            yield
        finally:
            with torch.no_grad():
                for parameter, value in current.items():
                    parameter.copy_(value)

    def _parameters(self) -> Iterator[nn.Parameter]:
        for group in self.param_groups:
            yield from group["params"]
