"""The score of a candidate as it is shown and recorded as soon as it is there."""

from __future__ import annotations

import numpy as np
import pytest

from textgraft.core import device
from textgraft.core.context import QUIET
from textgraft.data.examples import Examples
from textgraft.data.labels import Labels
from textgraft.metrics.classification import bootstrap_interval
from textgraft.tasks.classification import finetune_options
from textgraft.tasks.classification.finetune_options import FINE_TUNED, FinetuneOptions
from textgraft.tasks.classification.linear_candidates import Candidate
from textgraft.tasks.classification.rung_result import RungResult
from textgraft.tasks.classification.selection_context import SelectionContext

TRAIN = Examples([f"text {i}" for i in range(8)], ["a", "b"] * 4, "single")


def candidate(held_out: np.ndarray) -> Candidate:
    return Candidate(
        "bert-probe", held_out, lambda: pytest.fail("evaluated"), 1.0, 1.0, lambda run: pytest.fail("made")
    )


def selection(train: Examples = TRAIN) -> SelectionContext:
    return SelectionContext(train, None, "folds", Labels.fit(train), (), (), QUIET)


def test_it_has_the_texts_that_were_predicted_and_their_interval() -> None:
    held_out = np.tile([0.9, 0.1], (8, 1))  # the even ones are right
    held_out[6:] = np.nan
    result = RungResult.of(candidate(held_out), selection(), 8.6)
    assert result.interval == bootstrap_interval([1, 0, 1, 0, 1, 0])
    low, high = (f"{100 * bound:.1f}" for bound in result.interval[1:])
    assert str(result) == f"candidate bert-probe: accuracy 50.0 % [{low}, {high}] on 6 held-out texts, after 9 s"
    score = dict(zip(("mean", "low", "high"), result.interval))
    assert result.record() == {"candidate": "bert-probe", "accuracy": score, "texts": 6, "seconds": 8.6}


def test_a_quantity_has_its_error_in_its_own_unit() -> None:
    selected = selection(Examples(TRAIN.texts, [str(10 * i) for i in range(8)], "numeric"))
    means = np.zeros_like(selected.targets)  # 35, in standard deviations from the mean
    result = RungResult.of(candidate(means), selected, 0.4)
    assert result.metric == "mae"
    assert result.interval.mean == pytest.approx(20)  # of errors 35, 25, 15, 5, 5, 15, 25, 35


def test_the_limit_is_for_the_ladder_on_a_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finetune_options, "DEFAULT_MINUTES", 5.0)
    assert FinetuneOptions().budget_seconds == 300
    assert FinetuneOptions(minutes=2).budget_seconds == 120
    unlimited = (
        FinetuneOptions(minutes=float("inf")),
        FinetuneOptions(recipe="ulmfit"),
        FinetuneOptions(method=FINE_TUNED),
        FinetuneOptions(class_weights="balanced"),
    )
    assert {options.budget_seconds for options in unlimited} == {None}
    monkeypatch.setattr(device, "has_cuda", lambda: True)
    assert FinetuneOptions().budget_seconds is None
