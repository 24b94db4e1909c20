"""research/pooling.py measures every way of combining answers, with the weights that the library computes."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from textgraft.metrics.classification import evaluate
from textgraft.tasks.classification.ensemble_weights import ensemble_weights

sys.path.insert(0, str(Path(__file__).parents[2] / "research"))
import pooling


def made(texts: int = 60, classes: int = 3, models: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Answers of models that know more or less of the targets."""
    generator = np.random.default_rng(0)
    targets = generator.integers(classes, size=texts)
    noise = generator.normal(size=(models, texts, classes))
    logits = noise + np.arange(models)[:, None, None] * np.eye(classes)[targets]
    chances = np.exp(logits)
    return chances / chances.sum(-1, keepdims=True), targets


def test_the_mean_of_probabilities_is_weighed_as_in_finetune() -> None:
    answers, targets = made()
    found = pooling.chosen(answers, targets, pooling.LINEAR_METHODS["probabilities, log loss"], list("abcd"))
    np.testing.assert_allclose(found, ensemble_weights(list(answers), targets, "single"), atol=1e-12)
    answers, targets, names = answers[:, :40], targets[:40], ["linear", "lsa", "probe", "co-training"]
    found = pooling.chosen(answers, targets, pooling.LINEAR_METHODS["log loss, spread 1, lean 0.8"], names)
    favoured = [name == "co-training" for name in names]
    expected = ensemble_weights(list(answers), targets, "single", favoured=favoured)
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_the_more_spread_the_nearer_the_weights_are_to_the_prior() -> None:
    answers, targets = made(texts=40)
    names = ["linear", "lsa", "probe", "co-training"]
    for lean in (None, 0.7):
        ways = [pooling.LinearMethod(spread=spread, lean=lean) for spread in (0.0, 2.0, 1e6)]
        prior = ways[0].prior(names)
        apart = [pooling.divergence(pooling.chosen(answers, targets, way, names), prior) for way in ways]
        assert apart == sorted(apart, reverse=True)
        assert apart[-1] == pytest.approx(0.0, abs=1e-9)
    assert pooling.divergence(np.array([3.0, 1.0, 0.0]), np.array([0.5, 0.25, 0.25])) == pytest.approx(
        0.75 * np.log(1.5)
    )


def test_a_prior_leans_on_self_training_where_it_is_there() -> None:
    way = pooling.LinearMethod(lean=0.7)
    np.testing.assert_allclose(way.prior(["linear", "co-training", "lsa", "probe"]), [0.1, 0.7, 0.1, 0.1])
    np.testing.assert_allclose(way.prior(["linear", "lsa"]), [0.5, 0.5])
    assert way.prior(["co-training"]).tolist() == [1.0]
    np.testing.assert_allclose(pooling.LinearMethod().prior(["linear", "co-training"]), [0.5, 0.5])


def test_all_alike_are_alike_and_the_best_is_alone() -> None:
    answers, targets = made()
    alike, alone = (pooling.LINEAR_METHODS[name] for name in ("probabilities, all alike", "the best alone"))
    assert pooling.chosen(answers, targets, alike, list("abcd")).tolist() == [0.25] * 4
    losses = [pooling.log_loss(one, targets) for one in answers]
    assert pooling.chosen(answers, targets, alone, list("abcd")).argmax() == int(np.argmin(losses))


def test_differences_are_told_in_points_with_their_standard_error() -> None:
    assert pooling.beside(np.array([0.01, 0.03])) == "+2.0 ± 1.0"


def test_the_mean_of_logits_is_a_product_of_the_answers_to_their_weights() -> None:
    answers, _ = made()
    weights = np.array([0.1, 0.2, 0.3, 0.4])
    product = np.prod(answers ** weights[:, None, None], axis=0)
    expected = product / product.sum(1, keepdims=True)
    np.testing.assert_allclose(pooling.of_logits(answers, 2 * weights), expected, atol=1e-12)
    certain = np.array([[[1.0, 0.0, 0.0]], [[0.5, 0.5, 0.0]]])
    assert np.isfinite(pooling.of_logits(certain, np.ones(2))).all()


def test_losses_are_those_of_the_metrics() -> None:
    answers, targets = made()
    found = evaluate("single", targets, answers[0])
    assert pooling.log_loss(answers[0], targets) == pytest.approx(found["log_loss"], abs=1e-12)
    assert pooling.brier(np.eye(3)[targets], targets) == 0.0
    assert pooling.brier(np.eye(3)[(targets + 1) % 3], targets) == 2.0


def test_every_way_is_measured_on_texts_that_chose_nothing() -> None:
    answers, targets = made()
    found = pooling.measured(answers[:, :30], targets[:30], answers[:, 30:], targets[30:], list("abcd"))
    left_out = {f"without {name}" for name in "abcd"}
    assert set(found) == {*pooling.LINEAR_METHODS, *left_out, *(f"{name} alone" for name in "abcd")}
    weights = ensemble_weights(list(answers[1:, :30]), targets[:30], "single")
    expected = evaluate("single", targets[30:], np.tensordot(weights, answers[1:, 30:], 1))
    assert found["without a"] == pytest.approx([expected["accuracy"], expected["log_loss"]])
    assert found["c alone"][0] == (answers[2, 30:].argmax(1) == targets[30:]).mean()
    weights = ensemble_weights(list(answers[:, :30]), targets[:30], "single")
    asked = np.tensordot(weights, answers[:, 30:], 1)
    assert found["probabilities, log loss"][0] == (asked.argmax(1) == targets[30:]).mean()
