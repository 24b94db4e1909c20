"""Learning-rate range test: raise the rate step by step; find where the loss falls fastest and where it diverges."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from textgraft.core.brief import Brief
from textgraft.core.errors import UserError
from textgraft.data.streams.base import Stream
from textgraft.models.model import Model
from textgraft.training.loop import Run
from textgraft.training.phases import Phase
from textgraft.training.settings import Settings

HIGHEST = 10.0
STEPS = 100
SMOOTHING = 0.95
WINDOW = 9
DIVERGED = 4.0
"""The test ends where the smoothed loss is this many times its lowest value."""


@dataclass(frozen=True)
class RangeStep:
    """One step of the test: the top group's learning rate, the loss of the batch, and the smoothed loss."""

    lr: float
    loss: float
    smoothed: float


@dataclass(frozen=True, repr=False)
class RangeTestResult(Brief):
    """Steps of a range test and the learning rates that it suggests.

    Attributes:
        steps: The steps of the test.
        steepest: The rate at which the smoothed loss falls fastest; None where the loss never fell.
        tenth_of_lowest: A tenth of the rate where the smoothed loss is lowest; None where it never fell.
    """

    steps: tuple[RangeStep, ...]
    steepest: float | None
    tenth_of_lowest: float | None

    @property
    def suggestion(self) -> float | None:
        """A peak rate to begin with: the geometric mean of the two rates; None where the loss never fell."""
        if self.steepest is None or self.tenth_of_lowest is None:
            return None
        return math.sqrt(self.steepest * self.tenth_of_lowest)


def range_test(
    model: Model, stream: Stream, phase: Phase, settings: Settings, *, steps: int = STEPS, highest: float = HIGHEST
) -> Iterator[RangeStep]:
    """Train a copy of `model` with a learning rate that grows exponentially, until the loss diverges.

    Smith 2017 (arXiv:1506.01186, section 3.3), with fastai's exponential growth (over eight powers of ten) and its stop
    once the loss has diverged. The model itself is not changed.

    Args:
        model: The model to test.
        stream: Its training batches.
        phase: Optimizer, trainable groups and their discriminative rates.
        settings: Seed, clipping, device and precision.
        steps: Number of steps at most.
        highest: The last step's rate of the top group.

    Yields:
        The steps before the loss diverges.
    """
    rising = replace(phase, lr=highest, schedule="range_test", warmup=0.0, epochs=steps / stream.length(0))
    settings = replace(settings, minutes=None, patience=None, validate_every=None)
    run = Run(copy.deepcopy(model), [rising], stream, settings)
    average, lowest = 0.0, math.inf
    training_steps = run.steps()
    for index in range(1, steps + 1):
        try:
            step = next(training_steps, None)
        except UserError:  # the loss is not a finite number: the rate is far too high
            return
        if step is None:
            return
        average = SMOOTHING * average + (1 - SMOOTHING) * step.loss
        smoothed = average / (1 - SMOOTHING**index)
        lowest = min(lowest, smoothed)
        if smoothed > DIVERGED * lowest:
            return
        yield RangeStep(step.lr, step.loss, smoothed)


def suggest_rates(steps: Sequence[RangeStep]) -> RangeTestResult:
    """The learning rates that a range test suggests.

    A slope is that of the straight line through WINDOW steps of the smoothed loss over the logarithm of the rate, so
    that no single batch decides it. The first fifth of the steps is left out: the average is over too few of them.
    """
    rates = np.array([step.lr for step in steps])
    losses = np.array([step.smoothed for step in steps])
    first = len(steps) // 5
    lowest = first + int(losses[first:].argmin()) if len(steps) else 0
    starts = range(first, lowest - WINDOW + 2)
    if not starts:
        return RangeTestResult(tuple(steps), None, None)
    windows = [slice(start, start + WINDOW) for start in starts]
    slopes = [np.polyfit(np.log(rates[w]), losses[w], 1)[0] for w in windows]
    steepest = windows[int(np.argmin(slopes))]
    return RangeTestResult(tuple(steps), float(rates[steepest][WINDOW // 2]), float(rates[lowest]) / 10)
