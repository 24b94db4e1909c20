"""The budget of a fine-tuning: what is begun, with how much, and that it can be repeated."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from textgraft.core.errors import UserError
from textgraft.tasks.classification import budget as module
from textgraft.tasks.classification import ladder
from textgraft.tasks.classification.budget import Budget, Decision, parse_rungs
from textgraft.training.phases import Phase, Stage


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, in its only element."""
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def test_the_largest_amount_that_fits_is_chosen(clock: list[float]) -> None:
    budget = Budget(60)
    assert budget.choose("pool", [1_000, 100, 10], lambda amount: amount / 10, share=0.5) == Decision(
        100, "pool 100 of 1,000"
    )
    clock[0] += 50
    assert budget.remaining == 10
    assert budget.choose("folds", [5, 3, 2], lambda folds: 3 * folds).amount == 3
    late = budget.choose("slow", [1], lambda _: 60)
    assert late.amount == 0
    assert late.reason == "not begun: it would take about 1 min, and 0.17 min are left"
    assert budget.skipped == {"slow": late.reason}
    assert budget.record() == {"rungs": {"pool": 100, "folds": 3}, "minutes": 1.0}
    clock[0] += 100
    assert budget.remaining == 0


def test_without_a_limit_everything_is_begun_and_nothing_is_estimated() -> None:
    budget = Budget()
    assert budget.remaining == math.inf
    assert budget.choose("pool", [7, 1], lambda _: pytest.fail("estimated")) == Decision(7)
    assert budget.record()["minutes"] is None


def test_time_is_kept_for_the_evaluation(clock: list[float]) -> None:
    budget = Budget(60)
    budget.reserve(20)
    assert budget.remaining == 40
    budget.reserve(1_000)  # no more than half of the rest
    assert budget.remaining == 20


def test_a_run_is_repeated_whatever_the_clock_says(clock: list[float]) -> None:
    budget = Budget(1e-3, repeat={"pool": 100})
    clock[0] += 1_000
    assert budget.choose("pool", [1_000, 10], lambda _: pytest.fail("estimated")).amount == 100
    assert budget.choose("other", [1], lambda _: pytest.fail("estimated")).amount == 0
    assert budget.skipped == {"other": "not among the rungs to repeat"}


def test_a_resumed_run_decides_as_before(tmp_path: Path, clock: list[float]) -> None:
    first = Budget(60, folder=tmp_path)
    assert first.choose("a", [1], lambda _: 1).amount == 1
    first.correct("b", 0, "rejected: too slow")
    clock[0] += 1_000
    again = Budget(0.001, folder=tmp_path)
    assert again.choose("a", [1], lambda _: 1).amount == 1
    assert again.choose("b", [1], lambda _: 0).amount == 0
    assert json.loads((tmp_path / module.FILE).read_text())["a"] == {"amount": 1, "reason": ""}


def test_what_was_decided_before(tmp_path: Path) -> None:
    assert Budget(repeat={"a": 7}).decided("a") == 7
    assert Budget(repeat={"a": 7}).decided("b") == 0
    Budget(60, folder=tmp_path).correct("a", 3, "fewer")
    again = Budget(60, folder=tmp_path)
    assert (again.decided("a"), again.decided("b")) == (3, 0)
    assert again.limited == ["fewer"]
    again.correct("a", 0, "rejected")
    assert again.limited == []


def test_rungs_on_the_command_line() -> None:
    assert parse_rungs("linear-probe, co-training:5000,bert:2") == {"linear-probe": 1, "co-training": 5000, "bert": 2}
    for wrong in ("", "a,,b", "a:x", "a:0", ":3", "a:-1"):
        with pytest.raises(UserError, match="is not a rung"):
            parse_rungs(wrong)


def test_a_rung_to_repeat_that_there_is_not() -> None:
    Budget(repeat={"linear": 1, "bert": 2}).validate_repeated(["bert", "linear", "lsa"])
    Budget().validate_repeated([])
    with pytest.raises(UserError, match=r"no rung 'bert-prob' here.*Did you mean 'bert-probe'"):
        Budget(repeat={"bert-prob": 1}).validate_repeated(["bert-probe", "linear"])


def test_a_phase_costs_what_it_trains() -> None:
    """Of ten texts of 20 tokens: all layers, the upper half, and the head alone, which encodes the texts once."""
    from textgraft.tasks.classification import costs

    class Encoder:
        def layer_groups(self) -> list[None]:
            return [None] * 4

    def plan(**phase: object) -> SimpleNamespace:
        stage = Stage(phases=(Phase(name="p", epochs=5, lr=0.1, **phase),), batch_size=10)  # type: ignore[arg-type]
        return SimpleNamespace(language_model=SimpleNamespace(encoder=Encoder()), stage=stage)

    def tokens(**phase: object) -> float:
        return costs.training_tokens(plan(**phase), [20] * 10)  # type: ignore[arg-type]

    assert tokens() == pytest.approx(costs.OVERHEAD * 5 * 200 * 3)
    assert tokens(trainable=3) == pytest.approx(costs.OVERHEAD * 5 * 200 * 2)
    assert tokens(trainable=1) == 200


@pytest.mark.parametrize(
    ("left", "done", "share"),
    [
        (100.0, (), ladder.POOL_SHARE),  # one of two could be fine-tuned
        (100.0, ("quick",), 1.0),
        (20.0, (), 1.0),
        (math.inf, (), 1.0),
    ],
)
def test_time_is_kept_for_a_fine_tuning_that_can_be(left: float, done: tuple[str, ...], share: float) -> None:
    """Without one, LSA and co-training were not begun either, and the rest of the time was not used."""

    def seconds(each: float) -> Any:
        return lambda costs, folds: math.nan if left == math.inf else each * folds

    waiting = [SimpleNamespace(name="quick", seconds=seconds(30)), SimpleNamespace(name="slow", seconds=seconds(900))]
    one: Any = SimpleNamespace(
        budget=SimpleNamespace(remaining=left),
        members=dict.fromkeys(done),
        rejected={},
        costs=None,
        _to_fine_tune=waiting,
    )
    assert ladder.Ladder._pool_share(one) == share
