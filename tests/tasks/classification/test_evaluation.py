"""What a comparison says of its methods, and whether chance could have said it."""

import numpy as np
import pytest

from textgraft.data.examples import Examples
from textgraft.data.labels import Labels
from textgraft.tasks.classification.evaluation import Comparison, Outcome

N = 400


def labels(kind="single"):
    values = {"single": ["no", "yes"], "numeric": [1.0, 2.5]}[kind]
    return Labels.fit(Examples(["a", "b"], values, kind=kind))


def answering(name, right, targets, seeds=1):
    """A method that is right about the first `right` texts of every seed and wrong about the rest."""
    predicted = np.where(np.arange(N) < right, targets, 1 - targets)
    outputs = np.repeat(np.eye(2)[predicted][None] * 0.8 + 0.1, seeds, axis=0)
    return Outcome(name, outputs, outputs, minutes=1.5, peak_mb=900)


@pytest.fixture
def targets():
    return np.random.default_rng(0).integers(0, 2, N)


def test_verdict_names_the_best_baseline_and_whether_it_is_chance(targets):
    worse, best = answering("linear", 280, targets), answering("lsa", 320, targets)
    sure = Comparison(labels(), targets, (answering("ulmfit", 360, targets), worse, best)).verdict()
    assert sure.startswith("ulmfit: accuracy 90.0 % [")
    assert "on 400 texts. 10.0 points better than lsa (80.0 %): more than chance explains (p < 0.001)." in sure
    unsure = Comparison(labels(), targets, (answering("ulmfit", 319, targets), worse, best)).verdict()
    assert "0.2 points worse than lsa" in unsure or "0.3 points worse than lsa" in unsure
    assert "no more than chance could give" in unsure
    same = Comparison(labels(), targets, (answering("ulmfit", 320, targets), best)).verdict()
    assert "No different from lsa" in same
    alone = Comparison(labels(), targets, (answering("ulmfit", 320, targets),)).verdict()
    assert alone.endswith("no baseline was run.")
    linear = answering("linear", 320, targets)
    blend = Comparison(labels(), targets, (answering("ensemble", 320, targets),), parts=(linear,)).verdict()
    assert blend.endswith("It is linear alone; no other method was trained.")


def test_the_verdict_says_how_good_it_is_on_texts_that_are_not_in_training(targets):
    outcomes = answering("ulmfit", 300, targets), answering("linear", 200, targets)
    seen = np.arange(N) < 100  # all of which both are right about
    verdict = Comparison(labels(), targets, outcomes, seen=seen).verdict()
    assert "accuracy 75.0 % [" in verdict  # of all
    assert "100 of them are in the training texts too; on the other 300 it has 66.7 % [" in verdict
    assert verdict.endswith("], linear 33.3 %.")
    one = Comparison(labels(), targets, outcomes, seen=np.arange(N) == 0).verdict()
    assert "1 of them is in the training texts too; on the other 399 it has 74.9 % [" in one
    memory = Comparison(labels(), targets, outcomes, seen=np.full(N, True)).verdict()
    assert memory.endswith("All of them are in the training texts too: the score does not hold for new texts.")
    unknown = Comparison(labels(), targets, outcomes).verdict()
    assert Comparison(labels(), targets, outcomes, seen=np.full(N, False)).verdict() == unknown
    assert verdict.startswith(unknown)


def test_a_smaller_error_is_better():
    targets = np.linspace(-1, 1, N).astype(np.float32)
    close, far = targets[None] + 0.1, targets[None] + 0.5
    outcomes = (Outcome("ulmfit", close, close, 1, 1), Outcome("linear", far, far, 1, 1))
    assert "better than linear" in Comparison(labels("numeric"), targets, outcomes).verdict()


def test_results_keep_the_shape_and_the_table_shows_every_method(targets):
    outcomes = (answering("ulmfit", 360, targets, seeds=3), answering("linear", 300, targets))
    parts = (answering("forward", 350, targets), answering("backward", 340, targets))
    comparison = Comparison(labels(), targets, outcomes, parts)
    results = comparison.results(labels=100, seeds=3)
    assert list(results["methods"]) == ["ulmfit", "forward", "backward", "linear"]
    assert (results["labels"], results["test_n"], results["seeds"]) == (100, N, 3)
    accuracy = results["methods"]["ulmfit"]["accuracy"]
    assert accuracy["mean"] == pytest.approx(0.9)
    assert accuracy["low"] < 0.9 < accuracy["high"]
    assert results["methods"]["linear"]["minutes"] == 1.5
    assert results["methods"]["linear"]["peak_mb"] == 900
    lines = comparison.table().splitlines()
    assert [line.split()[0] for line in lines[1:5]] == list(results["methods"])
    assert "90.0 %" in lines[1]
    assert lines[-1] == comparison.verdict()
