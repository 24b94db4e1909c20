"""Word vectors by counting: each formula beside loops, and what a space does at its edges."""

from __future__ import annotations

import math

import numpy as np
import pytest

from textgraft.core.errors import UserError
from textgraft.linear.pool_words import WINDOW, _cooccurrences, _mutual_information
from textgraft.linear.word_vector_features import WordVectorFeatures

ANIMALS = ["cat", "dog", "mouse", "horse", "cow", "sheep"]
TOOLS = ["hammer", "saw", "drill", "file", "plane", "chisel"]


def topical(words: list[str], count: int, seed: int) -> list[str]:
    generator = np.random.default_rng(seed)
    return [" ".join(["the", *generator.choice(words, 6), "and", *generator.choice(words, 5)]) for _ in range(count)]


def test_neighbours_are_those_that_loops_count() -> None:
    generator = np.random.default_rng(0)
    documents = [generator.integers(0, 7, length).astype(np.int32) for length in (0, 1, 2, 9, 30)]
    expected = np.zeros((7, 7))
    for ids in documents:
        for i, a in enumerate(ids):
            for j, b in enumerate(ids):
                expected[a, b] += 0 < abs(i - j) <= WINDOW
    assert np.array_equal(_cooccurrences(documents, 7).toarray(), expected)


def test_mutual_information_is_the_formula() -> None:
    generator = np.random.default_rng(1)
    half = generator.integers(0, 5, (6, 6)).astype(np.float32)
    counts = half + half.T
    from scipy.sparse import csr_matrix

    got = _mutual_information(csr_matrix(counts)).toarray()
    totals = counts.sum(1)
    for i in range(6):
        for j in range(6):
            p_context = totals[j] ** 0.75 / sum(t**0.75 for t in totals)
            pmi = math.log(counts[i, j] / totals[i] / p_context) if counts[i, j] else 0.0
            assert got[i, j] == pytest.approx(max(0.0, pmi), abs=1e-5)


def test_words_of_one_topic_lie_together_and_texts_of_one_topic_too() -> None:
    space = WordVectorFeatures(dimensions=4).fit([*topical(ANIMALS, 150, 0), *topical(TOOLS, 150, 1)])
    vector = {word: space.vectors[i] for word, i in space._ids.items()}
    assert vector["cat"] @ vector["dog"] > vector["cat"] @ vector["saw"] + 0.3
    texts = space.transform(["a cat and a dog", "a cow and a sheep", "a hammer and a saw"])
    assert np.linalg.norm(texts[0] - texts[1]) < 0.5 * np.linalg.norm(texts[0] - texts[2])


def test_axes_come_widest_first_and_unknown_texts_lie_at_the_centre() -> None:
    texts = [*topical(ANIMALS, 100, 0), *topical(TOOLS, 100, 1)]
    space = WordVectorFeatures(dimensions=6).fit(texts)
    rows = space.transform([*texts, "", "zzz qqq"])
    spread = rows[:-2].var(axis=0)
    assert np.all(np.diff(spread) <= 1e-6)
    assert np.allclose(rows[-2:], 0)
    assert space.transform([]).shape == (0, 6)


def test_same_texts_and_seed_give_the_same_space() -> None:
    texts = [*topical(ANIMALS, 60, 0), *topical(TOOLS, 60, 1)]
    first, second = (
        WordVectorFeatures(dimensions=5, seed=3).fit(texts),
        WordVectorFeatures(dimensions=5, seed=3).fit(texts),
    )
    assert np.array_equal(first.transform(texts), second.transform(texts))


def test_more_dimensions_than_words_are_cut_down() -> None:
    space = WordVectorFeatures(dimensions=200).fit(topical(ANIMALS, 50, 0))
    assert space.transform(["cat dog"]).shape == (1, space.vectors.shape[1])
    assert space.vectors.shape[1] < len(space._ids)


def test_text_without_spaces_is_cut_into_subwords() -> None:
    news, sport = "รัฐบาลแถลงข่าวนโยบายเศรษฐกิจ", "นักเตะทีมชาติยิงประตูชัย"
    space = WordVectorFeatures(dimensions=4).fit([news * 2, sport * 2] * 60)
    assert "subwords" in space.about
    one, other = space.transform([news, sport])
    assert one[0] * other[0] < 0
    assert abs(one[0] - other[0]) > 10 * abs(one[1] - other[1])


def test_too_little_text_is_a_clear_error() -> None:
    with pytest.raises(UserError, match="too few"):
        WordVectorFeatures().fit(["one word", "another one"])
