"""Scores against scikit-learn, intervals by their coverage, the paired test against brute force."""

import itertools

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as sk

from textgraft.metrics.classification import (
    bootstrap_interval,
    class_scores,
    confusion_matrix,
    difference_interval,
    document_scores,
    evaluate,
    mean_and_spread,
    paired_test,
    summarise_seeds,
)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(3)


def test_a_class_that_the_model_lacks_is_a_mistake_and_not_in_the_log_loss(rng):
    probs = rng.dirichlet(np.ones(3), 100)
    targets = rng.integers(0, 5, 100)  # two classes more than the model has
    scores, predicted, known = evaluate("single", targets, probs), probs.argmax(1), targets < 3
    assert scores["accuracy"] == pytest.approx(sk.accuracy_score(targets, predicted))
    assert scores["macro_f1"] == pytest.approx(sk.f1_score(targets, predicted, average="macro"))
    assert scores["log_loss"] == pytest.approx(sk.log_loss(targets[known], probs[known], labels=[0, 1, 2]))
    assert document_scores("single", targets, probs)[~known].sum() == 0
    assert (confusion_matrix(targets, predicted, 5) == sk.confusion_matrix(targets, predicted)).all()
    last = class_scores(targets, predicted, list("abcde"))[-1]
    assert (last.precision, last.recall, last.f1, last.support) == (None, 0.0, 0.0, (targets == 4).sum())
    assert evaluate("single", np.array([3, 4]), probs[:2])["log_loss"] is None


def test_a_label_that_the_model_lacks_makes_a_set_wrong(rng):
    probs, targets = rng.random((80, 3)), rng.integers(0, 2, (80, 5))
    scores, predicted = evaluate("multi", targets, probs), np.pad(probs >= 0.5, ((0, 0), (0, 2)))
    assert scores["subset_accuracy"] == pytest.approx(sk.accuracy_score(targets, predicted))
    assert scores["micro_f1"] == pytest.approx(sk.f1_score(targets, predicted, average="micro"))
    assert scores["macro_f1"] == pytest.approx(sk.f1_score(targets, predicted, average="macro"))
    assert scores["log_loss"] == pytest.approx(evaluate("multi", targets[:, :3], probs)["log_loss"])
    assert document_scores("multi", targets, probs)[targets[:, 3:].any(1)].sum() == 0
    assert class_scores(targets, probs >= 0.5, list("abcde"))[4].recall == 0.0


def test_single_label_scores_equal_scikit_learn(rng):
    probs = rng.dirichlet(np.ones(4), 200)
    targets = rng.integers(0, 4, 200)
    scores, predicted = evaluate("single", targets, probs), probs.argmax(1)
    assert scores["accuracy"] == pytest.approx(sk.accuracy_score(targets, predicted))
    assert scores["macro_f1"] == pytest.approx(sk.f1_score(targets, predicted, average="macro"))
    assert scores["micro_f1"] == pytest.approx(sk.f1_score(targets, predicted, average="micro"))
    assert scores["log_loss"] == pytest.approx(sk.log_loss(targets, probs))
    assert (confusion_matrix(targets, predicted, 4) == sk.confusion_matrix(targets, predicted)).all()
    reference = sk.precision_recall_fscore_support(targets, predicted)
    for c, row in enumerate(class_scores(targets, predicted, list("abcd"))):
        assert (row.precision, row.recall, row.f1, row.support) == pytest.approx([r[c] for r in reference])


def test_multi_label_scores_equal_scikit_learn(rng):
    probs, targets = rng.random((150, 5)), (rng.random((150, 5)) < 0.3).astype(np.float32)
    scores, predicted = evaluate("multi", targets, probs), (probs >= 0.5).astype(int)
    assert scores["subset_accuracy"] == pytest.approx(sk.accuracy_score(targets, predicted))
    assert scores["micro_f1"] == pytest.approx(sk.f1_score(targets, predicted, average="micro"))
    assert scores["macro_f1"] == pytest.approx(sk.f1_score(targets, predicted, average="macro"))
    per_label = [sk.log_loss(targets[:, c], probs[:, c]) for c in range(5)]
    assert scores["log_loss"] == pytest.approx(np.mean(per_label))
    assert document_scores("multi", targets, probs).mean() == pytest.approx(scores["subset_accuracy"])
    reference = sk.precision_recall_fscore_support(targets, predicted)
    for c, row in enumerate(class_scores(targets, predicted, list("abcde"))):
        assert (row.precision, row.recall, row.f1, row.support) == pytest.approx([r[c] for r in reference])


def test_numeric_scores_by_hand():
    scores = evaluate("numeric", np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 2.0, 3.0, 8.0]))
    assert scores["mae"] == 1.0
    assert scores["rmse"] == 2.0
    assert scores["spearman"] == pytest.approx(1.0)
    assert 0.9 < scores["pearson"] < 1.0


def test_what_cannot_be_computed_is_none():
    one_class = evaluate("single", np.array([1, 1]), np.array([[0.1, 0.9], [0.2, 0.8]]))
    assert one_class["accuracy"] == 1.0
    assert one_class["macro_f1"] is None
    constant = evaluate("numeric", np.array([2.0, 2.0]), np.array([1.0, 3.0]))
    assert constant["mae"] == 1.0
    assert constant["pearson"] is None
    assert constant["spearman"] is None
    nothing = evaluate("multi", np.zeros((3, 2)), np.zeros((3, 2)))
    assert nothing["subset_accuracy"] == 1.0
    assert nothing["micro_f1"] is None
    for kind, width in (("single", 2), ("multi", 2), ("numeric", 0)):
        shape = (0, width) if width else (0,)
        assert set(evaluate(kind, np.zeros(shape, dtype=int), np.zeros(shape)).values()) == {None}
    absent = class_scores(np.array([0, 0]), np.array([0, 1]), ["here", "claimed", "absent"])
    assert (absent[1].precision, absent[1].recall, absent[1].f1) == (0.0, None, 0.0)
    assert (absent[2].precision, absent[2].recall, absent[2].f1, absent[2].support) == (None, None, None, 0)


@pytest.mark.slow
def test_bootstrap_interval_holds_the_true_accuracy_as_often_as_it_says(rng):
    draws = rng.random((200, 300)) < 0.8
    intervals = [bootstrap_interval(draw, seed=i, resamples=400) for i, draw in enumerate(draws)]
    held = np.mean([i.low <= 0.8 <= i.high for i in intervals])
    assert 0.90 <= held <= 0.985


def test_bootstrap_interval_has_the_width_of_the_normal_approximation(rng):
    scores = rng.random(2000) < 0.7
    interval = bootstrap_interval(scores)
    expected = 2 * 1.96 * scores.std() / np.sqrt(2000)
    assert interval.high - interval.low == pytest.approx(expected, rel=0.1)
    narrower = bootstrap_interval(scores, level=0.5)
    assert interval.low < narrower.low < interval.mean < narrower.high < interval.high


def test_bootstrap_interval_over_seeds_is_wider_when_runs_disagree(rng):
    steady = np.tile(rng.random(1000) < 0.8, (3, 1)).astype(float)
    shaky = np.stack([(rng.random(1000) < p).astype(float) for p in (0.6, 0.8, 0.95)])
    assert bootstrap_interval(steady) == pytest.approx(bootstrap_interval(steady[0]), abs=5e-3)
    assert np.ptp(bootstrap_interval(shaky)[1:]) > 3 * np.ptp(bootstrap_interval(steady)[1:])


def test_bootstrap_interval_is_a_function_of_its_seed(rng):
    scores = rng.random(100)
    assert bootstrap_interval(scores, seed=1) == bootstrap_interval(scores, seed=1)
    assert bootstrap_interval(scores, seed=1) != bootstrap_interval(scores, seed=2)


def test_ten_right_of_ten_is_not_certainty():
    interval = bootstrap_interval(np.ones(10))
    assert interval.mean == interval.high == 1.0
    assert interval.low == pytest.approx(0.025**0.1)  # Clopper-Pearson: 69 %
    none = bootstrap_interval(np.zeros(10))
    assert none.low == 0.0
    assert none.high == pytest.approx(1 - 0.025**0.1)


@pytest.mark.parametrize("scores", [[], [0.5, np.nan], [[1.0, np.inf]]])
def test_scores_must_be_there_and_finite(scores):
    with pytest.raises(ValueError, match="finite"):
        bootstrap_interval(scores)


def test_paired_test_is_exact_mcnemar_for_one_run():
    a = np.array([1] * 9 + [0] * 2 + [1] * 20)
    b = np.array([0] * 9 + [1] * 2 + [1] * 20)
    flips = [sum(s) for s in itertools.product((-1, 1), repeat=11)]
    brute_force = np.mean([abs(f) >= 7 for f in flips])
    result = paired_test(a, b)
    assert result.p == pytest.approx(brute_force)
    assert result.difference == pytest.approx(7 / 31)
    assert paired_test(b, a) == pytest.approx((-result.difference, result.p))


def test_paired_test_over_seeds_equals_all_sign_flips(rng):
    a, b = rng.random((3, 12)) < 0.8, rng.random((2, 12)) < 0.5
    differences = a.mean(0) - b.mean(0)
    flips = np.array(list(itertools.product((-1, 1), repeat=12))) @ differences
    brute_force = np.mean(np.abs(flips) >= abs(differences.sum()) - 1e-9)
    assert paired_test(a, b).p == pytest.approx(brute_force, abs=0.015)


def crossed(rng, runs: int, documents: int, of_runs: float, of_documents: float) -> np.ndarray:
    """Differences (runs, documents) whose true mean is 0.3: a share of each run, one of each document, and the rest."""
    return (
        0.3
        + of_runs * rng.normal(size=(runs, 1))
        + of_documents * rng.normal(size=(1, documents))
        + rng.normal(size=(runs, documents))
    )


@pytest.mark.parametrize(
    ("runs", "of_runs", "of_documents"), [(5, 0.3, 0.2), (5, 0.05, 1.0), (3, 0.3, 0.0), (1, 0.0, 1.0)]
)
def test_difference_interval_holds_the_truth_as_often_as_it_says(rng, runs, of_runs, of_documents):
    drawn = [crossed(rng, runs, 100, of_runs, of_documents) for _ in range(800)]
    intervals = [difference_interval(table) for table in drawn]
    held = np.mean([i.low <= 0.3 <= i.high for i in intervals])
    assert 0.93 <= held <= 0.995


@pytest.mark.slow
def test_few_runs_make_a_bootstrap_too_sure_and_the_difference_interval_not(rng):
    drawn = [crossed(rng, 3, 100, 0.3, 0.0) for _ in range(300)]
    resampled = [bootstrap_interval(table, resamples=200) for table in drawn]
    assert np.mean([i.low <= 0.3 <= i.high for i in resampled]) < 0.85


def test_difference_interval_of_one_run_is_the_paired_t_interval(rng):
    differences = rng.normal(0.2, 1.0, 50)
    expected = stats.ttest_1samp(differences, 0).confidence_interval(0.95)
    interval = difference_interval(differences)
    assert interval[1:] == pytest.approx((expected.low, expected.high))
    assert interval.mean == pytest.approx(differences.mean())


def test_difference_interval_is_that_of_the_runs_where_all_documents_agree():
    of_runs = np.array([0.1, 0.3, 0.2, 0.5])
    expected = stats.ttest_1samp(of_runs, 0).confidence_interval(0.95)
    interval = difference_interval(np.repeat(of_runs[:, None], 40, axis=1))
    assert interval[1:] == pytest.approx((expected.low, expected.high))


def test_difference_interval_of_no_difference_is_what_could_have_been_missed():
    interval = difference_interval(np.zeros((3, 10)))
    assert interval == (0.0, pytest.approx(0.025**0.1 - 1), pytest.approx(1 - 0.025**0.1))
    with pytest.raises(ValueError, match="finite"):
        difference_interval([np.nan])


def test_paired_test_finds_no_difference_where_there_is_none(rng):
    scores = rng.random(500) < 0.8
    assert paired_test(scores, scores) == (0.0, 1.0)
    p = [paired_test(rng.random(200), rng.random(200), seed=i, resamples=500).p for i in range(100)]
    assert np.mean(np.array(p) < 0.05) < 0.13


def test_paired_test_wants_the_same_documents():
    with pytest.raises(ValueError, match="same documents"):
        paired_test(np.ones(3), np.ones(4))


def test_summary_over_seeds():
    table = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], dtype=float)
    summary = summarise_seeds(table)
    assert summary.mean == 0.625
    assert summary.spread == pytest.approx(np.std([0.75, 0.5], ddof=1))
    assert summary.interval.low <= 0.625 <= summary.interval.high
    assert summary.seeds == 2
    assert summarise_seeds(table[0]).spread is None


def test_mean_and_spread_keep_none():
    runs = [{"accuracy": 0.5, "macro_f1": None}, {"accuracy": 0.7, "macro_f1": 0.6}]
    assert mean_and_spread(runs)["accuracy"] == pytest.approx((0.6, 0.1 * 2**0.5))
    assert mean_and_spread(runs)["macro_f1"] is None
    assert mean_and_spread(runs[:1])["accuracy"] == (0.5, None)
    assert mean_and_spread([]) == {}
