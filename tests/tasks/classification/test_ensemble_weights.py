"""Ensemble selection beside brute force: the greedy path step by step, and the whole grid of weights."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from textgraft.data.examples import TargetKind
from textgraft.metrics.classification import evaluate
from textgraft.tasks.classification.ensemble_weights import STEPS, ensemble_weights, mean_loss

KINDS: tuple[TargetKind, ...] = ("single", "multi", "numeric")


def problem(kind: TargetKind, seed: int, models: int = 3, texts: int = 25) -> tuple[list[NDArray], NDArray]:
    """Models of different skill that err on different texts."""
    generator = np.random.default_rng(seed)
    if kind == "numeric":
        targets: NDArray = generator.normal(size=texts)
        return [targets + generator.normal(size=texts) * generator.uniform(0.5, 1.5) for _ in range(models)], targets
    if kind == "multi":
        targets = generator.integers(0, 2, (texts, 4)).astype(float)
        logits = [generator.normal(size=(texts, 4)) * 2 + (2 * targets - 1) for _ in range(models)]
        return [1 / (1 + np.exp(-one)) for one in logits], targets
    targets = generator.integers(0, 3, texts)
    scores = [np.exp(generator.normal(size=(texts, 3)) + np.eye(3)[targets]) for _ in range(models)]
    return [one / one.sum(1, keepdims=True) for one in scores], targets


def loss_by_loops(kind: TargetKind, targets: NDArray, outputs: NDArray) -> float:
    losses = []
    for i, target in enumerate(targets):
        if kind == "numeric":
            losses.append((outputs[i] - target) ** 2)
        elif kind == "single":
            losses.append(-math.log(outputs[i][target]))
        else:
            losses += [-math.log(p if t else 1 - p) for p, t in zip(outputs[i], target)]
    return sum(losses) / len(losses)


def greedy_by_loops(outputs: list[NDArray], targets: NDArray, kind: TargetKind, steps: int) -> list[float]:
    """The path written out: lists of models, of which all losses are computed anew at every step."""
    bag: list[int] = []
    best: tuple[float, list[int]] = (math.inf, [])
    for _ in range(steps):
        options = []
        for model in range(len(outputs)):
            members = [*bag, model]
            options.append((loss_by_loops(kind, targets, sum(outputs[m] for m in members) / len(members)), members))
        loss, bag = min(options, key=lambda option: option[0])
        if loss < best[0] - 1e-12:
            best = (loss, bag)
    return [best[1].count(model) / len(best[1]) for model in range(len(outputs))]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_the_path_is_the_one_that_loops_take(kind: TargetKind, seed: int) -> None:
    outputs, targets = problem(kind, seed)
    for steps in (1, 2, 7):
        assert ensemble_weights(outputs, targets, kind, steps=steps) == pytest.approx(
            greedy_by_loops(outputs, targets, kind, steps)
        )


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_is_the_one_that_is_reported(kind: TargetKind) -> None:
    outputs, targets = problem(kind, 0)
    assert mean_loss(kind, targets, outputs[0]) == pytest.approx(loss_by_loops(kind, targets, outputs[0]))
    scores = evaluate(kind, targets, outputs[0])
    expected = scores["log_loss"] if kind != "numeric" else (scores["rmse"] or 0) ** 2
    assert mean_loss(kind, targets, outputs[0]) == pytest.approx(expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(8))
def test_near_the_best_of_all_weights_and_never_worse_than_the_best_model(kind: TargetKind, seed: int) -> None:
    outputs, targets = problem(kind, seed)
    weights = ensemble_weights(outputs, targets, kind)
    assert weights.sum() == pytest.approx(1)
    assert (weights >= 0).all()
    got = mean_loss(kind, targets, np.average(outputs, axis=0, weights=weights))
    alone = [mean_loss(kind, targets, one) for one in outputs]
    grid = [
        mean_loss(kind, targets, np.average(outputs, axis=0, weights=[a, b, 20 - a - b]))
        for a, b in itertools.product(range(21), repeat=2)
        if a + b <= 20
    ]
    assert got <= min(alone)
    assert got <= min(grid) + 0.02 * (min(alone) - min(grid)) + 1e-9


def test_a_model_that_errs_elsewhere_helps_and_a_copy_does_not() -> None:
    targets = np.zeros(40, dtype=np.int64)
    first, second = np.full((40, 2), 0.5), np.full((40, 2), 0.5)
    first[:20], second[20:] = [0.95, 0.05], [0.95, 0.05]
    first[20:], second[:20] = [0.4, 0.6], [0.4, 0.6]
    assert ensemble_weights([first, second], targets, "single").tolist() == [0.5, 0.5]
    assert ensemble_weights([first, first, first], targets, "single").tolist() == [1, 0, 0]
    worthless = np.full((40, 2), [0.01, 0.99])
    assert ensemble_weights([worthless, first, worthless], targets, "single").tolist() == [0, 1, 0]


def test_ties_go_to_the_one_that_comes_first() -> None:
    targets = np.array([0, 1])
    left, right = np.array([[0.8, 0.2], [0.6, 0.4]]), np.array([[0.4, 0.6], [0.2, 0.8]])
    assert ensemble_weights([left, right], targets, "single", steps=1).tolist() == [1, 0]
    assert ensemble_weights([right, left], targets, "single", steps=1).tolist() == [1, 0]


def test_certain_and_wrong_is_bad_but_no_infinity() -> None:
    sure, unsure = np.array([[0.0, 1.0]]), np.array([[0.5, 0.5]])
    assert ensemble_weights([sure, unsure], np.array([0]), "single").tolist() == [0, 1]
    assert math.isfinite(mean_loss("single", np.array([0]), sure))


def test_with_a_favoured_model_each_step_is_charged_for_the_divergence_from_the_prior() -> None:
    outputs, targets = problem("single", 3, models=4, texts=30)
    favoured, prior = [True, False, False, True], [0.4, 0.1, 0.1, 0.4]
    bag: list[int] = []
    best: tuple[float, list[int]] = (math.inf, [])
    for _ in range(STEPS):
        options = []
        for model in range(4):
            members = [*bag, model]
            loss = loss_by_loops("single", targets, sum(outputs[m] for m in members) / len(members))
            for m in set(members):
                share = members.count(m) / len(members)
                loss += 1 / 30 * share * math.log(share / prior[m])
            options.append((loss, members))
        loss, bag = min(options, key=lambda option: option[0])
        best = min(best, (loss, bag), key=lambda option: option[0])
    expected = [best[1].count(m) / len(best[1]) for m in range(4)]
    assert ensemble_weights(outputs, targets, "single", favoured=favoured) == pytest.approx(expected)
    assert ensemble_weights(outputs, targets, "single") != pytest.approx(expected)


def test_the_prior_decides_between_equals_and_gives_way_to_evidence() -> None:
    one = np.full((40, 2), [0.6, 0.4])
    few, many = np.zeros(40, dtype=np.int64), np.zeros(4_000, dtype=np.int64)
    favoured = [False, True, True]
    assert ensemble_weights([one] * 3, few, "single", favoured=favoured).tolist() == [0.2, 0.4, 0.4]
    better = [np.full((4_000, 2), [p, 1 - p]) for p in (0.61, 0.6, 0.6)]
    assert ensemble_weights(better, many, "single", favoured=favoured)[0] > 0.9
    assert ensemble_weights([o[:40] for o in better], few, "single", favoured=favoured)[0] < 0.4
    nothing_told = ([], [False] * 3, [True] * 3)
    assert [ensemble_weights([one] * 3, few, "single", favoured=f).tolist() for f in nothing_told] == [[1, 0, 0]] * 3
