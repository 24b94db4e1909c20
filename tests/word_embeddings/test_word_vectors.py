"""Look-up, neighbours and analogies beside brute force; what a block's border must not change."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from textgraft import UserError, WordVectors
from textgraft.word_embeddings import word_vectors
from textgraft.word_embeddings.subwords import Subwords


def made(size: int = 50, width: int = 6, seed: int = 0) -> WordVectors:
    rows = np.random.default_rng(seed).normal(size=(size, width)).astype(np.float32)
    return WordVectors([f"w{i}" for i in range(size)], rows)


def cosines(vectors: WordVectors, target: np.ndarray) -> np.ndarray:
    rows = np.asarray(vectors.rows, dtype=np.float64)
    return rows @ target / np.linalg.norm(rows, axis=1) / np.linalg.norm(target)


@pytest.mark.parametrize("block", [1, 7, 50, 8_192])
def test_neighbours_are_those_of_brute_force(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_vectors, "BLOCK", block)
    vectors = made()
    for place in (0, 6, 49):
        expected = cosines(vectors, np.asarray(vectors.rows[place], dtype=np.float64))
        order = [i for i in np.argsort(-expected) if i != place][:5]
        found = vectors.neighbours(f"w{place}", 5)
        assert [word for word, _ in found] == [f"w{i}" for i in order]
        assert [c for _, c in found] == pytest.approx(expected[order].tolist(), abs=1e-6)


@pytest.mark.parametrize("block", [9, 8_192])
def test_analogies_are_those_of_brute_force(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_vectors, "BLOCK", block)
    vectors = made()
    rows = np.asarray(vectors.rows, dtype=np.float64)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    scores = rows @ (rows[1] - rows[0] + rows[2])
    scores[:3] = -np.inf
    assert [word for word, _ in vectors.analogy("w0", "w1", "w2", 3)] == [f"w{i}" for i in np.argsort(-scores)[:3]]


def test_a_vector_may_be_asked_for_its_neighbours() -> None:
    vectors = made()
    assert vectors.neighbours(3 * vectors.rows[4], 1) == [("w4", pytest.approx(1, abs=1e-6))]
    with pytest.raises(ValueError, match="6 dimensions"):
        vectors.neighbours(np.zeros(5, dtype=np.float32))


def test_more_neighbours_than_there_are_words() -> None:
    assert len(made(4).neighbours("w0", 100)) == 3


def test_unknown_words() -> None:
    vectors = made()
    assert vectors.vector("nothing") is None
    assert "nothing" not in vectors
    rows = vectors.vectors(["w3", "nothing", "w3"])
    assert not rows[1].any()
    assert (rows[[0, 2]] == vectors.rows[3]).all()
    with pytest.raises(UserError, match=r"no word 'w9x'. Did you mean 'w9'"):
        vectors.neighbours("w9x")


def test_vectors_without_capitals_are_asked_in_lower_case() -> None:
    rows = np.eye(2, dtype=np.float32)
    assert WordVectors(["paris", "ÿ"], rows).vector("Paris") is not None
    assert WordVectors(["Paris", "rome"], rows).vector("paris") is None
    assert WordVectors(["Paris", "rome"], rows).vector("Rome") is None
    assert WordVectors(["paris", "rome"], rows, lowercase=False).vector("Rome") is None


def test_the_first_of_two_counts_and_a_warning_says_so() -> None:
    vectors = WordVectors(["a", "b", "a"], np.diag([1.0, 2.0, 3.0]).astype(np.float32))
    with pytest.warns(UserWarning, match="1 words have more than one vector"):
        found = vectors.vector("a")
    assert found is not None
    assert found.tolist() == [1, 0, 0]


def test_zero_vectors_are_nobodys_neighbours_but_by_chance() -> None:
    vectors = WordVectors(["a", "b", "zero"], np.array([[1, 0], [1, 1], [0, 0]], dtype=np.float32))
    assert vectors.neighbours("zero", 2) == [("a", 0.0), ("b", 0.0)]
    assert vectors.similarity("a", "b") == pytest.approx(0.5**0.5)


@given(st.integers(1, 60))
def test_truncated_vectors_are_the_first_ones(n: int) -> None:
    vectors = made(40)
    vectors.counts = np.arange(40, 0, -1)
    found = vectors.truncated(n)
    assert list(found.words) == list(vectors.words)[:n]
    assert found.counts is not None
    assert len(found.counts) == len(found) == min(n, 40)
    assert f"w{n}" not in found


def test_words_and_vectors_must_agree_in_number() -> None:
    with pytest.raises(ValueError, match="2 words but 3 vectors"):
        WordVectors(["a", "b"], np.zeros((3, 2), dtype=np.float32))


def test_an_unknown_word_is_the_mean_of_its_ngrams() -> None:
    table = np.random.default_rng(0).normal(size=(13, 4)).astype(np.float32)
    vectors = WordVectors(["a"], np.ones((1, 4), dtype=np.float32), subwords=Subwords(2, 3, table))
    ids = Subwords(2, 3, table).ids("ab")
    assert len(ids) == 5  # <a ab b> <ab ab>
    expected = np.mean([table[i] for i in ids], axis=0)
    np.testing.assert_allclose(vectors.vector("ab"), expected, rtol=1e-6)
    np.testing.assert_allclose(vectors.vectors(["ab", "a"]), [expected, np.ones(4)], rtol=1e-6)
    assert vectors.neighbours("ab", 5)[0][0] == "a"
