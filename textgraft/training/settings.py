"""Settings of a training that hold for all of its phases."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch

from textgraft.core.context import RunContext
from textgraft.core.device import resolve_device
from textgraft.core.errors import UserError
from textgraft.core.identity import identity_of
from textgraft.core.processes import current
from textgraft.nn.cpu.precision import resolve
from textgraft.training.engines import validate_sharding
from textgraft.training.phases import Stage


@dataclass(frozen=True)
class Settings:
    """Settings of all phases of a run.

    Attributes:
        seed: Of the order of the data, dropout and fresh weights.
        clip: Bound of the gradient's norm; None or 0: no clipping.
        accumulate: Number of batches whose gradients are accumulated for one optimizer step.
        precision: A name of nn.cpu.precision.
        patience: Validations without a better score before training stops; None: no limit.
        validate_every: Steps between validations; None: at the end of each epoch.
        minutes: Training time in place of the phases' epochs, whose shares of it the phases get; None: as the phases.
        save_seconds: Seconds between checkpoints; not part of a run's identity.
        device: A name of core.device.DEVICES; not part of a run's identity, since it may be resumed on another.
        sharding: How several processes hold the model, a name of training.engines.SHARDINGS; not part of the identity.
        activation_checkpointing: Keep only the inputs of each layer for the backward pass, and compute the rest again;
            not part of the identity.
    """

    seed: int = 0
    clip: float | None = 0.25
    accumulate: int = 1
    precision: str = "auto"
    patience: int | None = None
    validate_every: int | None = None
    minutes: float | None = None
    save_seconds: float = 60.0
    device: str = "auto"
    sharding: str = "none"
    activation_checkpointing: bool = False

    def __post_init__(self) -> None:
        minimum = {"seed": 0, "accumulate": 1, "patience": 1, "validate_every": 1, "clip": 0, "save_seconds": 0}
        values = {name: getattr(self, name) for name in minimum}
        wrong = [name for name, value in values.items() if value is not None and not value >= minimum[name]]
        if wrong:
            raise UserError(f"{wrong[0]} is {values[wrong[0]]}.", remedy=f"Give {minimum[wrong[0]]} or more.")
        if self.minutes is not None and not 0 < self.minutes < math.inf:
            raise UserError(f"minutes is {self.minutes}.", remedy="Give a number above 0.")
        validate_sharding(self.sharding)
        resolve(self.precision, resolve_device(self.device))  # fails here for an unknown name, and not after hours

    def identity(self) -> dict[str, Any]:
        """All settings but those that do not change the result."""
        return identity_of(self, without=("save_seconds", "device", "sharding", "activation_checkpointing"))

    def of(self, stage: Stage) -> Settings:
        """These settings with the stage's bound of the gradient's norm, if it has one.

        Raises:
            UserError: The processes of this training cannot divide the stage's batches, or its optimizer's work.
        """
        processes = current()
        if processes.several and stage.phases and stage.batch_size < processes.size:
            message = f"batches of {stage.batch_size} rows cannot be divided over {processes.size} processes."
            remedy = "Start fewer processes, or give a larger batch_size in the recipe."
            raise UserError(message, where="batch_size", remedy=remedy)
        if self.sharding == "full" and any(phase.optimizer == "muon" for phase in stage.phases):
            message = "muon orthogonalises whole matrices, which no process has of a model in parts."
            remedy = 'Take another recipe (optimizer = "adamw"), or sharding="none".'
            raise UserError(message, where="sharding", remedy=remedy)
        return replace(self, clip=stage.clip or self.clip)


def prepared(context: RunContext | None, settings: Settings) -> tuple[RunContext, Settings]:
    """Make a run's context and settings consistent, and set torch's number of threads.

    Args:
        context: Its seed, device and precision, where not None, replace those of the settings; None: an empty context.
        settings: Of the training.

    Returns:
        The context with seed, device and precision filled in, and settings with the same.
    """
    context = context or RunContext()
    names = ("seed", "device", "precision", "sharding", "activation_checkpointing")
    settings = replace(settings, **{n: value for n in names if (value := getattr(context, n)) is not None})
    if context.threads is not None:
        torch.set_num_threads(context.threads)
    return replace(context, **{n: getattr(settings, n) for n in names}), settings
