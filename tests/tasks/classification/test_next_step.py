"""The next step where an ensemble is worse than one of its candidates."""

from __future__ import annotations

import numpy as np
import pytest

from textgraft.data.labels import Labels
from textgraft.tasks.classification.evaluation import Comparison, Outcome
from textgraft.tasks.classification.finetune_options import FINE_TUNED
from textgraft.tasks.classification.next_step import candidate_method, keep_candidate

TARGETS = np.zeros(200, dtype=int)
LABELS = Labels("single", ("no", "yes"))


def right_about(name: str, count: int) -> Outcome:
    outputs = np.eye(2)[np.where(np.arange(200) < count, 0, 1)][None]
    return Outcome(name, outputs, outputs, 1.0, 1.0)


def compared(ensemble: int, *rivals: tuple[str, int]) -> Comparison:
    outcomes = (right_about("ensemble", ensemble), *(right_about(*rival) for rival in rivals))
    return Comparison(LABELS, TARGETS, outcomes)


def test_a_better_candidate_is_named_with_the_method_that_keeps_it() -> None:
    told = keep_candidate(compared(190, ("lsa", 150), ("linear", 198)))
    assert told.startswith("To keep linear alone, run again with method 'linear'; ")
    assert told.endswith("measure it on others.")
    assert "no rung but 'bert-co-training'" in keep_candidate(compared(190, ("bert-co-training", 198)))


@pytest.mark.parametrize("linear", [150, 190, 192])  # worse, the same, better by chance
def test_nothing_is_offered_where_the_ensemble_is_not_reliably_worse(linear: int) -> None:
    assert keep_candidate(compared(190, ("linear", linear))) == ""
    assert keep_candidate(compared(190)) == ""


def test_the_lower_error_of_a_quantity_is_the_better_one() -> None:
    near, far = (
        Outcome(name, np.full((1, 200), value), np.zeros(1), 1.0, 1.0) for name, value in (("a", 0.1), ("b", 2.0))
    )
    numbers = Labels("numeric")
    assert keep_candidate(Comparison(numbers, TARGETS.astype(float), (near, far))) == ""
    assert keep_candidate(Comparison(numbers, TARGETS.astype(float), (far, near))).startswith("To keep a alone")


def test_the_verdict_ends_with_the_next_step() -> None:
    comparison = Comparison(LABELS, TARGETS, (right_about("ensemble", 190),), next_step="Do this.")
    assert comparison.verdict().endswith(" Do this.")


def test_co_training_with_an_encoder_is_no_method_of_its_own() -> None:
    names = ("co-training", "bert-co-training", "bert")
    assert [candidate_method(name) for name in names] == ["co-training", "", FINE_TUNED]
