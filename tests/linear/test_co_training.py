"""Self-training: that views teach each other something, and the arithmetic that keeps classes apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.preprocessing import normalize

from textgraft.core.errors import UserError
from textgraft.linear.baselines import LinearBaseline
from textgraft.linear.co_training import (
    CoTrainedClassifier,
    Pool,
    Views,
    _balanced_log_probabilities,
    log_count_ratios,
)
from textgraft.linear.lsa import LSAFeatures
from textgraft.linear.ngram_counts import NgramCounts
from textgraft.linear.word_vector_features import WordVectorFeatures

TOPICS = [[f"{name}{i}" for i in range(60)] for name in ("animal", "tool", "food")]


def reviews(count: int, seed: int, classes: int = 2) -> tuple[list[str], np.ndarray]:
    """Texts of ten words, most of their topic's sixty: a handful of them show few of a topic's words."""
    generator = np.random.default_rng(seed)
    targets = generator.integers(0, classes, count)
    texts = []
    for target in targets:
        other = TOPICS[generator.integers(0, classes)]
        words = [*generator.choice(TOPICS[target], 7), *generator.choice(other, 3), *["the"] * 2]
        texts.append(" ".join(generator.permutation(words)))
    return texts, targets


@pytest.fixture(scope="module", params=[2, 3])
def pool(request: pytest.FixtureRequest) -> tuple[Pool, int]:
    texts, _ = reviews(1500, 0, request.param)
    feature_maps = {
        "LSA": [LSAFeatures(dimensions=20).fit(texts)],
        "word vectors": [WordVectorFeatures(dimensions=20).fit(texts)],
    }
    return Pool.of(NgramCounts.of(texts), feature_maps), request.param


def test_the_pool_teaches_what_the_labels_do_not_say(pool: tuple[Pool, int]) -> None:
    made, classes = pool
    texts, targets = reviews(8 * classes, 1, classes)
    test, truth = reviews(600, 2, classes)
    linear = LinearBaseline(characters=False).fit(texts, targets, num_classes=classes)
    trained = CoTrainedClassifier(made).fit(texts, targets, num_classes=classes)
    probabilities = trained.predict_proba(test)
    assert np.allclose(probabilities.sum(axis=1), 1)
    better = (probabilities.argmax(1) == truth).mean() - (linear.predict_proba(test).argmax(1) == truth).mean()
    assert better > 0.1
    assert trained.size_in_bytes() > 10_000


def test_same_labels_give_the_same_answers(pool: tuple[Pool, int]) -> None:
    made, classes = pool
    texts, targets = reviews(10 * classes, 1, classes)
    test, _ = reviews(50, 2, classes)
    first, second = (CoTrainedClassifier(made, seed=1).fit(texts, targets, num_classes=classes) for _ in range(2))
    assert np.array_equal(first.predict_proba(test), second.predict_proba(test))
    assert first.predict_proba([]).shape == (0, classes)


def test_a_class_without_texts_is_never_answered(pool: tuple[Pool, int]) -> None:
    made, classes = pool
    texts, targets = reviews(20, 1, 2)
    answers = CoTrainedClassifier(made).fit(texts, targets, num_classes=classes + 1).predict_proba(texts)
    assert answers.shape == (20, classes + 1)
    assert (answers[:, -1] < 1e-3).all()


def test_a_view_that_is_surer_of_itself_has_no_more_say(pool: tuple[Pool, int]) -> None:
    made, classes = pool
    texts, targets = reviews(10 * classes, 1, classes)
    test, _ = reviews(200, 2, classes)
    views = CoTrainedClassifier(made).fit(texts, targets, num_classes=classes).fitted
    said = [views.ngram_probabilities(made.rows)]
    for name, layer in views.layers.items():
        said.append(layer.probabilities(normalize(made.vectors[name][0]), classes))
    logs = [np.log(np.maximum(p, 1e-9)) for p in said]
    centred = [log - log.mean(axis=1, keepdims=True) for log in logs]
    assert views.spreads == pytest.approx([log.std() for log in centred], rel=1e-6)
    sure = replace(views.ngram_layer, coefficients=3 * views.ngram_layer.coefficients)
    sure = replace(sure, intercepts=3 * views.ngram_layer.intercepts)
    louder = replace(views, ngram_layer=sure, spreads=views.spreads * [3, 1, 1])
    assert np.array_equal(louder.outputs(test).argmax(1), views.outputs(test).argmax(1))
    state = views.state()
    del state.arrays["spreads"]
    assert (Views.from_state(state).spreads == 1).all()


def test_classes_become_as_frequent_as_among_the_labels() -> None:
    skewed = np.random.default_rng(0).beta(4, 1, 2000)
    evened = _balanced_log_probabilities(np.stack([skewed, 1 - skewed], axis=1), np.array([0.25, 0.75]))
    assert (evened.argmax(1) == 0).mean() == pytest.approx(0.25, abs=0.08)
    assert np.all(np.diff(evened[np.argsort(skewed), 0] - evened[np.argsort(skewed), 1]) >= -1e-9)


def test_ratios_are_those_of_naive_bayes() -> None:
    rows = csr_matrix(np.array([[0.5, 0, 0.1], [0.2, 0.3, 0], [0, 0.4, 0]], dtype=np.float32))
    got = log_count_ratios(rows, np.array([0, 1, 1]), np.array([2.0, 1.0, 10.0]))
    inside, outside = np.array([3.0, 1.0, 3.0]), np.array([2.0, 12.0, 1.0])  # weighted counts of class 0 and 1, plus 1
    expected = np.abs(np.log(inside / inside.sum()) - np.log(outside / outside.sum()))
    assert got == pytest.approx(expected, rel=1e-6)


def test_other_targets_are_refused(pool: tuple[Pool, int]) -> None:
    with pytest.raises(UserError, match="one label"):
        CoTrainedClassifier(pool[0]).fit(["a", "b"], np.array([0.5, 1.5]), kind="numeric")
