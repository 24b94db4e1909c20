"""Who is ahead with how many labels, and what is said of it."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from textgraft.comparison.learning_curve import (
    budget_verdict,
    efficiency_verdicts,
    label_efficiency,
    labels_needed,
    winner,
)
from textgraft.data.labels import Labels
from textgraft.metrics.paired_differences import holm, significance_text
from textgraft.tasks.classification.evaluation import Comparison, Outcome


@pytest.mark.parametrize(
    ("curve", "score", "found"),
    [
        ([(10, 0.5), (1_000, 0.7)], 0.6, ("about", 100.0)),  # half way up is half way along the logarithm
        ([(10, 0.5), (1_000, 0.7)], 0.55, ("about", math.sqrt(1_000))),
        ([(10, 0.5), (1_000, 0.7)], 0.7, ("about", 1_000.0)),
        ([(10, 0.5), (1_000, 0.7)], 0.5, ("at most", 10.0)),
        ([(10, 0.5), (1_000, 0.7)], 0.2, ("at most", 10.0)),
        ([(10, 0.5), (1_000, 0.7)], 0.71, ("not reached", None)),
        ([(10, 0.5), (100, 0.7), (1_000, 0.6)], 0.7, ("about", 100.0)),  # the first crossing counts
        ([(10, 0.6), (100, 0.5), (1_000, 0.7)], 0.65, ("about", 10**2.75)),
        ([(10, 0.5), (100, 0.5)], 0.5, ("at most", 10.0)),
        ([(10, 0.5)], 0.6, ("not reached", None)),
    ],
)
def test_labels_needed(curve: list, score: float, found: tuple) -> None:
    how, needed = labels_needed(curve, score)
    assert (how, needed) == (found[0], pytest.approx(found[1]))
    mirrored = [(labels, -value) for labels, value in curve]
    assert labels_needed(mirrored, -score, lower_is_better=True) == (how, needed)


def test_label_efficiency_is_told_for_every_pair() -> None:
    curves = {"good": [(10, 0.7), (1_000, 0.9)], "bad": [(10, 0.5), (1_000, 0.7)]}
    entries = {(e["method"], e["at"]): e for e in label_efficiency(curves)}
    assert len(entries) == 4
    assert entries["bad", 10] == {
        "method": "bad",
        "reaches": "good",
        "at": 10,
        "score": 0.7,
        "how": "about",
        "labels": 1_000,
    }
    assert (entries["bad", 1_000]["how"], entries["bad", 1_000]["labels"]) == ("not reached", None)
    assert (entries["good", 10]["how"], entries["good", 10]["labels"]) == ("at most", 10)
    assert json.loads(json.dumps(list(entries.values()))) == list(entries.values())


def compared(**right: list[float]) -> Comparison:
    """Methods on 100 texts of class 1, each right on the share given for each seed, its wrong texts the last ones."""
    outcomes = []
    for name, shares in right.items():
        yes = np.array([np.arange(100) < 100 * share for share in shares], dtype=float)
        outputs = np.stack([1 - yes, yes], axis=2)
        outcomes.append(Outcome(name, outputs, outputs, 0.0, 0.0))
    return Comparison(Labels("single", ("no", "yes")), np.ones(100, dtype=int), tuple(outcomes))


def test_the_winner_is_told_apart_from_every_other() -> None:
    comparison = compared(low=[0.5, 0.55], high=[0.9, 0.92], middle=[0.7, 0.7])
    found = winner(comparison)
    assert (found["name"], found["leader"], set(found["tests"])) == ("high", "high", {"low", "middle"})
    assert found["tests"]["middle"]["difference"] == pytest.approx(0.21)
    told = budget_verdict(comparison, found, 50)
    assert told.startswith("50 labels: high (91.0 % [")
    assert "better than every other method, the closest, middle, by 21.0 points (p < 0.001)." in told


def test_no_winner_where_one_other_is_as_good() -> None:
    comparison = compared(low=[0.5], high=[0.9], near=[0.88])
    found = winner(comparison)
    assert (found["name"], found["leader"]) == (None, "high")
    assert found["tests"]["low"]["p_holm"] < 0.001
    told = budget_verdict(comparison, found, 1_000)
    assert told.startswith("1,000 labels: no significant difference between high (90.0 % [")
    assert ") and near (p = 0.5" in told  # two texts, one in two chances
    assert "low" not in told
    three = compared(high=[0.9], near=[0.88], nearer=[0.89])
    assert "), near and nearer (p = 1.000)." in budget_verdict(three, winner(three), 5)
    alone = compared(only=[0.5])
    assert winner(alone) == {"name": None, "leader": "only", "tests": {}}
    assert "no other method was run" in budget_verdict(alone, winner(alone), 10)


def test_no_winner_where_another_draw_of_the_labels_could_undo_it() -> None:
    comparison = compared(lucky=[0.99, 0.7, 0.71], steady=[0.7, 0.7, 0.7], low=[0.3, 0.3, 0.3])
    found = winner(comparison)
    assert (found["name"], found["leader"]) == (None, "lucky")
    steady = found["tests"]["steady"]
    assert steady["p_holm"] < 0.001  # of these trainings the texts are sure
    assert steady["low"] < 0 < steady["difference"] < steady["high"]
    told = budget_verdict(comparison, found, 100)
    assert "is ahead, but not reliably over training samples, compared with steady (+10.0 points [-" in told
    assert "low" not in told
    assert "other seeds could undo it" in significance_text(steady)


def test_many_comparisons_ask_for_more_evidence() -> None:
    six_texts = 2 * 0.5**6  # the exact McNemar test
    found = winner(compared(a=[0.9], b=[0.84]))
    assert (found["name"], found["tests"]["b"]["p"]) == ("a", pytest.approx(six_texts))
    found = winner(compared(a=[0.9], b=[0.84], c=[0.84], d=[0.84]))
    assert found["name"] is None
    assert found["tests"]["d"]["p_holm"] == pytest.approx(3 * six_texts)


def test_the_winner_of_errors_has_the_smallest() -> None:
    truth = np.linspace(-1, 1, 50)
    near, far = (Outcome(n, (truth + e)[None], (truth + e)[None], 0.0, 0.0) for n, e in (("near", 0.1), ("far", 0.9)))
    comparison = Comparison(Labels("numeric", mean=3.0, std=2.0), truth, (far, near))
    found = winner(comparison)
    assert found["name"] == "near"
    assert found["tests"]["far"]["difference"] == pytest.approx(-1.6)  # in the user's unit


def test_holm() -> None:
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06})
    assert holm({"a": 0.9, "b": 0.8}) == pytest.approx({"a": 1.0, "b": 1.0})
    assert holm({}) == {}


def test_efficiency_is_said_only_of_winners() -> None:
    def entry(labels: int, name: str | None) -> dict[str, Any]:
        return {"labels": labels, "winner": {"name": name}, "methods": {"a": {"accuracy": {"mean": 0.8}}}}

    curves = {"a": [(10, 0.8), (100, 0.9)], "b": [(10, 0.7), (100, 0.9)], "c": [(10, 0.5), (100, 0.6)]}
    results = {"metric": "accuracy", "label_efficiency": label_efficiency(curves)}
    told = efficiency_verdicts(results | {"budgets": [entry(10, "a"), entry(100, "a")]})
    assert told == ["Labels needed for the score of a with 10 (80.0 %): b about 32; not reached with 100 labels by c."]
    assert efficiency_verdicts(results | {"budgets": [entry(10, None), entry(100, "a")]}) == []
