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
