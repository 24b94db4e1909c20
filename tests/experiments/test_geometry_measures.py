"""Ethayarajh's measures beside loops over pairs, and where the answer is known without any."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from textgraft.experiments.geometry_measures import (
    cone,
    directions,
    drawn_mean_cosines,
    drawn_means,
    explained_variance,
    interval,
    intra_similarity,
    mean_cosine,
)

SHAPES = st.tuples(st.integers(2, 7), st.integers(1, 5))
VECTORS = SHAPES.flatmap(lambda shape: arrays(np.float64, shape, elements=st.integers(-5, 5).map(float)))


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    lengths = np.linalg.norm(a) * np.linalg.norm(b)
    return float(a @ b / lengths) if lengths else 0.0


@given(VECTORS)
@settings(max_examples=60)
def test_a_mean_over_pairs_is_one_over_a_loop(vectors: np.ndarray) -> None:
    pairs = [cosine(a, b) for a, b in permutations(vectors, 2)]
    assert mean_cosine(vectors) == pytest.approx(np.mean(pairs), abs=1e-12)
    assert -1 - 1e-9 <= mean_cosine(vectors) <= 1 + 1e-9


@given(VECTORS)
@settings(max_examples=60)
def test_likeness_to_a_sentence_is_a_loop_over_its_words(vectors: np.ndarray) -> None:
    mean = vectors.mean(axis=0)
    assert intra_similarity(vectors) == pytest.approx(np.mean([cosine(mean, v) for v in vectors]), abs=1e-12)


@given(VECTORS, st.floats(0.1, 50))
@settings(max_examples=60)
def test_explained_variance_lies_between_its_bounds_and_knows_no_scale(vectors: np.ndarray, factor: float) -> None:
    found = explained_variance(vectors)
    assert 1 / min(vectors.shape) - 1e-9 <= found <= 1 + 1e-9
    assert explained_variance(vectors * factor) == pytest.approx(found)
    gram = np.linalg.eigvalsh(vectors @ vectors.T)
    if gram.sum() > 0:
        assert found == pytest.approx(gram[-1] / gram.sum())


def test_orthogonal_identical_and_opposite_vectors() -> None:
    orthogonal, same = np.eye(6), np.tile([3.0, -4.0, 0.0], (5, 1))
    assert mean_cosine(orthogonal) == 0
    assert explained_variance(orthogonal) == pytest.approx(1 / 6)
    assert cone(orthogonal) == pytest.approx(6**-0.5)
    assert intra_similarity(orthogonal) == pytest.approx(6**-0.5)
    for measure in (mean_cosine, intra_similarity, explained_variance, cone):
        assert measure(same) == pytest.approx(1)
    opposite = np.array([[1.0, 2.0], [-1.0, -2.0]])
    assert (mean_cosine(opposite), cone(opposite)) == (pytest.approx(-1), pytest.approx(0))
    assert explained_variance(np.zeros((3, 2))) == 1


def test_a_shifted_cloud_is_a_cone_until_its_mean_is_taken_away() -> None:
    """At a distance of c standard deviations in D dimensions random vectors have a cosine of c^2 / (c^2 + D)."""
    cloud = np.random.default_rng(0).normal(size=(2000, 64))
    shifted = cloud + 8.0 * np.eye(64)[0]
    assert mean_cosine(cloud) == pytest.approx(0, abs=0.01)
    assert mean_cosine(shifted) == pytest.approx(0.5, abs=0.02)
    assert mean_cosine(shifted - shifted.mean(axis=0)) == pytest.approx(0, abs=0.01)
    assert cone(shifted) == pytest.approx(mean_cosine(shifted) ** 0.5, abs=0.02)


def test_a_resample_is_the_loop_over_pairs_of_different_rows() -> None:
    """Of two vectors drawn with replacement every resample that has a pair has the one that there is."""
    two = np.array([[1.0, 0.0], [1.0, 1.0]])
    drawn = drawn_mean_cosines(two, np.random.default_rng(0), 50)
    assert set(np.round(drawn[~np.isnan(drawn)], 9)) == {round(0.5**0.5, 9)}
    assert np.isnan(drawn).any()
    vectors = np.random.default_rng(1).normal(size=(6, 3))
    times = np.random.default_rng(2).multinomial(6, np.full(6, 1 / 6), size=4)
    cosines = [[cosine(a, b) for b in vectors] for a in vectors]
    for row, found in zip(times, drawn_mean_cosines(vectors, np.random.default_rng(2), 4), strict=True):
        rows = np.repeat(np.arange(6), row)
        assert found == pytest.approx(np.mean([cosines[i][j] for i in rows for j in rows if i != j]))


def test_intervals_cover_what_they_should() -> None:
    """Of 200 samples of a known mean about 95 in a hundred intervals hold it."""
    held = 0
    for seed in range(200):
        generator = np.random.default_rng(seed)
        values = generator.normal(3.0, 1.0, size=60)
        found = interval(float(values.mean()), drawn_means(values, generator, 300))
        assert found.low < found.mean < found.high
        held += found.low <= 3.0 <= found.high
    assert 176 <= held <= 199


def test_directions_leave_zeros_alone_and_one_vector_has_no_pair() -> None:
    found = directions(np.array([[0.0, 0.0], [3.0, 4.0]], dtype=np.float32))
    np.testing.assert_allclose(found, [[0, 0], [0.6, 0.8]], atol=1e-7)
    with pytest.raises(ValueError, match="two vectors"):
        mean_cosine(np.ones((1, 3)))
