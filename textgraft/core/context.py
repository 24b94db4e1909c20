"""The circumstances of a run, as one value that every step of it passes on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True)
class RunContext:
    """Where a run keeps unfinished work, what its settings are overridden by, and what it shows.

    Attributes:
        folder: For unfinished work; a verb sets it, beside its output.
        seed: Of all random numbers; None: that of the settings.
        device: A name of core.device.DEVICES; None: that of the settings.
        precision: A name of nn.cpu.precision; None: that of the settings.
        sharding: How several processes hold the model (training.engines.SHARDINGS); None: that of the settings.
        activation_checkpointing: Compute activations again in the backward pass; None: that of the settings.
        threads: How many torch computes with; None: as many as it has.
        show: Progress and notes on stderr.
        overwrite: Replace what is at the output already.
    """

    folder: Path | None = None
    seed: int | None = None
    device: str | None = None
    precision: str | None = None
    sharding: str | None = None
    activation_checkpointing: bool | None = None
    threads: int | None = None
    show: bool = True
    overwrite: bool = False

    @property
    def work(self) -> Path:
        """The folder for unfinished work. Raises ValueError before the run has one."""
        if self.folder is None:
            raise ValueError("this run has no folder yet")
        return self.folder

    @property
    def first_seed(self) -> int:
        """The seed; 0 where none is given."""
        return self.seed or 0

    def at(self, folder: Path) -> RunContext:
        """The same run with its unfinished work in `folder`."""
        return replace(self, folder=folder)

    def with_seed(self, seed: int) -> RunContext:
        """The same run by another seed."""
        return replace(self, seed=seed)


QUIET = RunContext(show=False)
"""A run that shows nothing."""
