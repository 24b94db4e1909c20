"""The learning-rate range test: raise the rate step by step and watch where the loss falls, and where it breaks."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from textgraft.core.errors import UserError
from textgraft.data.streams.base import Stream
from textgraft.models.model import Model
from textgraft.training.loop import Run, Settings
from textgraft.training.phases import Phase

HIGHEST = 10.0
STEPS = 100
SMOOTHING = 0.95
WINDOW = 9
DIVERGED = 4.0
"""The test ends where the smoothed loss is so many times its lowest."""


@dataclass(frozen=True)
class RangeStep:
    """One step of the test: the top group's rate, the loss of the batch, and the smoothed loss."""

    lr: float
    loss: float
    smoothed: float


@dataclass(frozen=True)
class Finding:
    """What a range test says; None where the loss never fell.

    `steepest` is the rate at which the smoothed loss falls fastest, `tenth_of_lowest` a tenth of the rate where it is
    lowest. `suggestion`, their geometric mean, is a peak rate to begin with.
    """

    steps: tuple[RangeStep, ...]
    steepest: float | None
    tenth_of_lowest: float | None

    @property
    def suggestion(self) -> float | None:
        if self.steepest is None or self.tenth_of_lowest is None:
            return None
        return math.sqrt(self.steepest * self.tenth_of_lowest)


def range_test(
    model: Model, stream: Stream, phase: Phase, settings: Settings, *, steps: int = STEPS, highest: float = HIGHEST
) -> Iterator[RangeStep]:
    """Train a copy of `model` as `phase` would, with a rate that grows exponentially to `highest`.

    Smith 2017 (arXiv:1506.01186, section 3.3), with fastai's exponential growth (over eight powers of ten)
    and its stop once the loss has diverged. Optimizer, trainable groups, their discriminative rates and clipping are
    those of training. The model itself is left as it was.
    """
    rising = replace(phase, lr=highest, schedule="range_test", warmup=0.0, epochs=steps / stream.length(0))
    settings = replace(settings, minutes=None, patience=None, validate_every=None)
    run = Run(copy.deepcopy(model), [rising], stream, settings)
    average, lowest = 0.0, math.inf
    taken = run.steps()
    for index in range(1, steps + 1):
        try:
            step = next(taken, None)
        except UserError:  # the loop's word for a loss that is not a number: the rate is beyond any use
            return
        if step is None:
            return
        average = SMOOTHING * average + (1 - SMOOTHING) * step.loss
        smoothed = average / (1 - SMOOTHING**index)
        lowest = min(lowest, smoothed)
        if smoothed > DIVERGED * lowest:
            return
        yield RangeStep(step.lr, step.loss, smoothed)


def read_off(steps: Sequence[RangeStep]) -> Finding:
    """The rates that a range test suggests.

    A slope is that of the straight line through WINDOW steps of the smoothed loss over the logarithm of the rate; one
    batch more or less must not decide it. The first fifth of the steps, where smoothing has seen too little, is left
    out.
    """
    rates = np.array([step.lr for step in steps])
    losses = np.array([step.smoothed for step in steps])
    first = len(steps) // 5
    lowest = first + int(losses[first:].argmin()) if len(steps) else 0
    starts = range(first, lowest - WINDOW + 2)
    if not starts:
        return Finding(tuple(steps), None, None)
    windows = [slice(start, start + WINDOW) for start in starts]
    slopes = [np.polyfit(np.log(rates[w]), losses[w], 1)[0] for w in windows]
    steepest = windows[int(np.argmin(slopes))]
    return Finding(tuple(steps), float(rates[steepest][WINDOW // 2]), float(rates[lowest]) / 10)
