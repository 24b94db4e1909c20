"""The time that each training of a fine-tuning has, and what is done where that is too little."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from textgraft.core.context import RunContext
from textgraft.core.errors import UserError
from textgraft.tasks.classification.budget import Budget
from textgraft.tasks.classification.early_rejection import EarlyRejected
from textgraft.tasks.classification.fine_tuning_candidate import FineTuningCandidate
from textgraft.tasks.classification.ladder import MARGIN, SHORTEST, Ladder
from textgraft.tasks.classification.training_config import (
    SLACK,
    OverTime,
    TimeLimit,
    TrainingConfig,
    too_slow_reason,
)
from textgraft.training.driver import TooSlow

FOLDS = [(list(range(8)), [8, 9]), (list(range(2, 10)), [0, 1]), (list(range(8)), [8, 9])]
CONFIG = TrainingConfig("test", 1, FOLDS, RunContext(show=False), seconds=104.0)


def test_each_training_has_the_share_that_its_texts_have() -> None:
    """Two folds of 8 of 10 texts and the training on all 10; a third fold is begun only if there is time for it."""
    assert TimeLimit(CONFIG, 1, 10, spent=0.0).seconds == pytest.approx(104 * 8 / 26)
    assert TimeLimit(replace(CONFIG, seeds=3), 1, 10, spent=0.0).seconds == pytest.approx(104 * 8 / 46)
    assert TimeLimit(replace(CONFIG, folds=1), 1, 10, spent=0.0).seconds == pytest.approx(104 * 8 / 18)
    assert TimeLimit(replace(CONFIG, seconds=None), 1, 10, spent=0.0).seconds is None


def test_what_a_fold_did_not_need_is_for_those_after_it() -> None:
    quick, slow = (TimeLimit(CONFIG, 2, 10, spent).seconds for spent in (14.0, 32.0))
    assert quick == pytest.approx(SLACK * 90 * 8 / 18)
    assert slow == pytest.approx(SLACK * 32)  # its share and the slack
    assert TimeLimit(CONFIG, 3, 10, spent=64.0).seconds == pytest.approx(SLACK * 40 * 8 / 18)
    assert TimeLimit(CONFIG, 2, 10, spent=200.0).seconds == 0


def test_what_did_not_fit_says_for_which_share_there_is_time() -> None:
    first = TimeLimit(CONFIG, 1, 10, spent=0.0).exceeded_by(TooSlow(48.0, spent=4.0))
    assert (first.reason, first.seconds) == (too_slow_reason(156, 104), 4.0)
    assert first.share == pytest.approx((104 - 4) / 156)
    second = TimeLimit(CONFIG, 2, 10, spent=30.0).exceeded_by(TooSlow(48.0, spent=4.0))
    assert second.share == pytest.approx((104 - 34) / (30 + 48 * 18 / 8))
    assert TimeLimit(CONFIG, 1, 10, spent=0.0).exceeded_by(TooSlow(200.0, spent=200.0)).share == 0


def test_further_folds_are_begun_in_half_of_the_time_only() -> None:
    """After 2 folds of 13 s another one and the final training are due at 52 s, half of 104."""
    assert CONFIG.has_time(26.0, 13.0)
    assert not CONFIG.has_time(26.5, 13.0)
    assert not replace(CONFIG, seeds=2).has_time(26.0, 13.0)
    assert replace(CONFIG, seconds=None).has_time(1e9, 1e9)


@pytest.mark.parametrize(
    ("seconds", "said"), [(1500, "25 min, of 10 allowed"), (601, "a little over 10 min, of 10 allowed")]
)
def test_how_much_too_long_it_would_take(seconds: float, said: str) -> None:
    assert too_slow_reason(seconds, 600) == f"rejected: its trainings would take {said}"


def ladder(budget: Budget) -> Any:
    one: Any = SimpleNamespace(budget=budget, _early_rejection=lambda one: None)
    one._seconds_left = lambda: None if budget.remaining == math.inf else budget.remaining
    return one


def candidate(train: Callable[..., Any], *, compares: bool = True) -> Any:
    source: Any = SimpleNamespace(source=SimpleNamespace(compares=compares))
    return FineTuningCandidate("bert", source, train)


def too_slow_for_all(share: float, asked: list[float]) -> Callable[..., Any]:
    """A training that has time for a share of its steps; `asked` gets the shares that are asked for."""

    def train(reading: Any, early_rejection: Any, folds: int, seconds: float | None, steps: float) -> str:
        asked.append(steps)
        if steps > share:
            raise OverTime("rejected: too slow", 1.0, 0.0, share)
        return f"{folds} folds"

    return train


def test_with_time_for_a_part_of_the_steps_it_is_trained_with_those() -> None:
    asked: list[float] = []
    budget = Budget(60)
    assert Ladder._trained(ladder(budget), candidate(too_slow_for_all(0.8, asked)), None, 2) == "2 folds"  # type: ignore[arg-type]
    percent = int(100 * MARGIN * 0.8)
    assert asked == [1.0, percent / 100]
    assert budget.record()["rungs"] == {"bert-steps-percent": percent}
    assert budget.limited == [f"bert {percent} % of the steps"]


def test_that_is_repeated_without_a_clock() -> None:
    asked: list[float] = []
    budget = Budget(repeat={"bert": 2, "bert-steps-percent": 68})
    Ladder._trained(ladder(budget), candidate(too_slow_for_all(1.0, asked)), None, 2)  # type: ignore[arg-type]
    assert asked == [0.68]
    assert budget.record()["rungs"] == {"bert-steps-percent": 68}
    asked.clear()
    everything = Budget(repeat={"bert": 2})
    Ladder._trained(ladder(everything), candidate(too_slow_for_all(1.0, asked)), None, 2)  # type: ignore[arg-type]
    assert asked == [1.0]
    assert everything.record()["rungs"] == {}


def test_an_interrupted_run_goes_on_with_the_share_that_it_had(tmp_path: Any) -> None:
    asked: list[float] = []
    Budget(60, folder=tmp_path).correct("bert-steps-percent", 55, "55 % of the steps")
    Ladder._trained(ladder(Budget(60, folder=tmp_path)), candidate(too_slow_for_all(1.0, asked)), None, 2)  # type: ignore[arg-type]
    assert asked == [0.55]


def test_a_machine_that_becomes_slower_still_is_not_waited_for() -> None:
    def train(reading: Any, early_rejection: Any, folds: int, seconds: float | None, steps: float) -> None:
        raise OverTime("rejected: too slow", 1.0, 0.0, 0.9)

    budget = Budget(60)
    with pytest.raises(OverTime):
        Ladder._trained(ladder(budget), candidate(train), None, 2)  # type: ignore[arg-type]
    assert (budget.record()["rungs"], budget.limited, budget.skipped) == ({}, [], {})


def test_more_than_all_steps_are_refused() -> None:
    one = ladder(Budget(repeat={"bert": 2, "bert-steps-percent": 120}))
    with pytest.raises(UserError, match=r"bert-steps-percent is above 100.*percentage"):
        Ladder.climb(one, [], [candidate(lambda *_: None)])


@pytest.mark.parametrize(("share", "compares"), [(SHORTEST / 100, True), (0.9, False)])
def test_with_time_for_too_few_steps_it_is_rejected(share: float, compares: bool) -> None:
    asked: list[float] = []
    budget = Budget(60)
    with pytest.raises(EarlyRejected, match="too slow"):
        Ladder._trained(ladder(budget), candidate(too_slow_for_all(share, asked), compares=compares), None, 2)  # type: ignore[arg-type]
    assert asked == [1.0]
    assert budget.record()["rungs"] == {}
