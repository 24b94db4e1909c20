"""How long a training will take in all, extrapolated from its steps so far."""

from __future__ import annotations

from collections.abc import Sequence

from textgraft.training.phases import Phase

WARM = 3.0
"""Seconds of training that say nothing of its pace: the first steps are slower than the others."""
PROJECTED_FROM = 10.0
"""Seconds of training after which its total time is extrapolated."""


class Projection:
    """The total time of a training by its pace: the phases' steps are weighted by how much of the model they train.

    Args:
        phases: Of the training.
        num_groups: Number of the model's layer groups, the head among them.
    """

    def __init__(self, phases: Sequence[Phase], num_groups: int) -> None:
        self._costs = [phase.epochs * phase.relative_cost(num_groups) for phase in phases]
        self._from: tuple[float, float] | None = None

    def seconds(self, spent: float, phase: int, progress: float) -> float:
        """The total time in seconds; before PROJECTED_FROM just the time spent.

        Args:
            spent: Seconds of training so far.
            phase: Index of the phase.
            progress: Share of the phase that is done.
        """
        done = (sum(self._costs[:phase]) + progress * self._costs[phase]) / sum(self._costs)
        if spent < WARM:
            return spent
        if self._from is None:
            self._from = spent, done
        began, before = self._from
        if spent < PROJECTED_FROM or done == before:
            return spent
        return spent + (1 - done) * (spent - began) / (done - before)
