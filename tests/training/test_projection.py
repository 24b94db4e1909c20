"""How long a training will take: by the pace of its steps, and by what each phase trains."""

from __future__ import annotations

from dataclasses import replace

import pytest

from textgraft.training.phases import Phase
from textgraft.training.projection import Projection

GROUPS = 5
ALL = Phase(name="all", epochs=4, lr=0.1)
HEAD = Phase(name="head", epochs=2, lr=0.1, trainable=1)


@pytest.mark.parametrize(("trainable", "cost"), [(1, 1.0), (2, 1.5), (3, 2.0), (5, 3.0), (9, 3.0), (None, 3.0)])
def test_a_step_costs_what_it_trains(trainable: int | None, cost: float) -> None:
    assert replace(ALL, trainable=trainable).relative_cost(GROUPS) == cost


def test_the_first_steps_say_nothing() -> None:
    """A first step of four seconds, then one a second: of 4 + 39 seconds, and not of 160."""
    projection = Projection([ALL], GROUPS)
    assert projection.seconds(2.0, 0, 0.01) == 2.0
    assert projection.seconds(4.0, 0, 1 / 40) == 4.0  # too early
    assert projection.seconds(9.0, 0, 6 / 40) == 9.0
    for step in (7, 20, 40):
        assert projection.seconds(3.0 + step, 0, step / 40) == pytest.approx(43.0)


def test_steps_of_the_head_are_cheaper() -> None:
    """Of 12 + 2 units of cost, four epochs of all layers and two of the head, one takes three seconds."""
    projection = Projection([ALL, HEAD], GROUPS)
    projection.seconds(3.0, 0, 1 / 12)
    for spent, phase, progress in ((18.0, 0, 0.5), (36.0, 0, 1.0), (39.0, 1, 0.5), (42.0, 1, 1.0)):
        assert projection.seconds(spent, phase, progress) == pytest.approx(42.0)


def test_a_resumed_training_is_projected_by_its_new_pace() -> None:
    projection = Projection([ALL], GROUPS)
    assert projection.seconds(100.0, 0, 0.5) == 100.0
    assert projection.seconds(110.0, 0, 0.6) == pytest.approx(150.0)
