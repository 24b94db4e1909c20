"""Similarity judgements, analogies and maps beside what can be computed by hand."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from textgraft import UserError, WordVectors, plot_vectors
from textgraft.word_embeddings.evaluation import (
    JudgedPair,
    Section,
    analogies,
    interval,
    read_analogies,
    read_similarities,
    similarity,
)
from textgraft.word_embeddings.projection import pca, project
from textgraft.word_embeddings.subwords import Subwords


def circle(*degrees: float) -> WordVectors:
    """Words named after their angle."""
    angles = np.radians(degrees)
    rows = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    return WordVectors([f"d{d:g}" for d in degrees], rows)


def test_spearman_is_scipys_and_unknown_pairs_are_left_out() -> None:
    generator = np.random.default_rng(0)
    vectors = WordVectors([f"w{i}" for i in range(30)], generator.normal(size=(30, 5)).astype(np.float32))
    pairs = [JudgedPair(f"w{i}", f"w{(i * 7 + 3) % 30}", float(generator.integers(4))) for i in range(30)]
    unknown = [JudgedPair("w1", "what", 3.0), JudgedPair("is", "this", 1.0)]
    found = similarity(vectors, [*unknown, *pairs])
    expected = spearmanr([vectors.similarity(p.first, p.second) for p in pairs], [p.score for p in pairs]).statistic
    assert found["spearman"] == pytest.approx(expected, abs=1e-6)
    assert (found["pairs"], found["unknown"], found["out_of_vocabulary"]) == (30, 2, 0)
    assert found["low"] < expected < found["high"]


def test_perfect_and_reversed_orders() -> None:
    vectors = circle(0, 10, 40, 90)
    pairs = [JudgedPair("d0", "d10", 9), JudgedPair("d0", "d40", 5), JudgedPair("d0", "d90", 1)]
    assert similarity(vectors, pairs)["spearman"] == pytest.approx(1)
    turned = [JudgedPair(p.first, p.second, -p.score) for p in pairs]
    assert similarity(vectors, turned)["spearman"] == pytest.approx(-1)
    assert similarity(vectors, pairs)["low"] is None  # of three pairs there is no interval


def test_no_known_pair_and_no_spread() -> None:
    vectors = circle(0, 10)
    nothing = similarity(vectors, [JudgedPair("x", "y", 1), JudgedPair("y", "z", 2)])
    assert (nothing["spearman"], nothing["pairs"], nothing["unknown"]) == (None, 0, 2)
    assert similarity(vectors, [JudgedPair("d0", "d10", 1)] * 2)["spearman"] is None


def test_words_made_of_ngrams_are_counted() -> None:
    table = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    vectors = circle(0, 10, 40)
    vectors.subwords = Subwords(3, 6, table)
    found = similarity(
        vectors, [JudgedPair("d0", "d10", 3), JudgedPair("d0", "unheard", 2), JudgedPair("d0", "d40", 1)]
    )
    assert (found["pairs"], found["unknown"], found["out_of_vocabulary"]) == (3, 0, 1)


def test_the_interval() -> None:
    low, high = interval(0.5, 103)
    assert low is not None
    assert high is not None
    half = 1.959964 * math.sqrt(1.125 / 100)
    assert math.atanh(high) - math.atanh(0.5) == pytest.approx(half)
    assert math.atanh(0.5) - math.atanh(low) == pytest.approx(half)
    assert interval(1.0, 50) == (None, None)


def test_analogies_by_section_and_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("textgraft.word_embeddings.evaluation.QUESTIONS", 2)
    vectors = circle(0, 30, 60, 90, 200)
    right = ("d0", "d30", "d60", "d90")  # d30 - d0 + d60 points to 75 degrees
    wrong = ("d0", "d30", "d60", "d200")
    sections = [
        Section("turns", [right, wrong, ("d0", "d30", "nowhere", "d90")]),
        Section("gram1-more", [right, right, right]),
        Section("gram2-none", [("no", "such", "words", "here")]),
    ]
    found = analogies(vectors, sections)
    assert found["sections"][0] == {"name": "turns", "right": 1, "questions": 2, "unknown": 1, "accuracy": 0.5}
    assert found["sections"][2] == {"name": "gram2-none", "right": 0, "questions": 0, "unknown": 1, "accuracy": None}
    assert found["semantic"] == {"right": 1, "questions": 2, "unknown": 1, "accuracy": 0.5}
    assert found["syntactic"] == {"right": 3, "questions": 3, "unknown": 1, "accuracy": 1.0}
    assert found["total"] == {"right": 4, "questions": 5, "unknown": 2, "accuracy": 0.8}


def test_only_frequent_words_may_be_asked_and_answer() -> None:
    vectors = circle(0, 30, 60, 90, 89)
    sections = [Section("s", [("d0", "d30", "d60", "d90"), ("d0", "d30", "d60", "d89")])]
    assert analogies(vectors, sections, restrict=4)["total"]["questions"] == 1
    assert analogies(vectors, sections, restrict=None)["total"]["questions"] == 2


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "pairs.txt"
    path.write_text("# a head\ncat\tdog\t7.5\n\nnew york\tcity\t3\n")
    assert read_similarities(path) == [JudgedPair("cat", "dog", 7.5), JudgedPair("new york", "city", 3)]
    path.write_text("cat,dog,7.5\ncat cow 1e0\n")
    assert [p.score for p in read_similarities(path)] == [7.5, 1]
    path.write_text(": capitals of \nParis France Rome Italy\n\n: gram1\na b c d\n")
    found = read_analogies(path)
    assert [(s.name, len(s.questions)) for s in found] == [("capitals of", 1), ("gram1", 1)]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("cat dog 1\ncat dog\n", "line 2: 'cat dog' is not two words and a score"),
        ("cat dog 1\ncat dog x\n", "line 2"),
        ("cat dog 1\ncat dog nan\n", "line 2"),
        ("cat dog 1\n", "fewer than two pairs"),
        ("", "fewer than two pairs"),
    ],
)
def test_malformed_similarities(text: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "pairs.txt"
    path.write_text(text)
    with pytest.raises(UserError, match=complaint):
        read_similarities(path)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a b c d\n", "line 1: a question stands before the first section"),
        (": s\na b c\n", "line 2: 3 words where a question has four"),
        (": s\n", "no questions"),
    ],
)
def test_malformed_analogies(text: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "questions.txt"
    path.write_text(text)
    with pytest.raises(UserError, match=complaint):
        read_analogies(path)


def test_principal_components_keep_what_lies_in_a_plane() -> None:
    generator = np.random.default_rng(0)
    flat = generator.normal(size=(20, 2)) * [3, 1]
    turned = flat @ np.linalg.qr(generator.normal(size=(7, 7)))[0][:2]
    points = pca(turned.astype(np.float32))
    between = lambda rows: np.linalg.norm(rows[:, None] - rows[None], axis=-1)  # noqa: E731
    np.testing.assert_allclose(between(points), between(flat), rtol=1e-4, atol=1e-5)
    assert points[:, 0].var() > points[:, 1].var()


def test_maps(tmp_path: Path) -> None:
    vectors = circle(*range(0, 120, 10))
    asked = [*vectors.words, "unheard", "d0"]
    for method in ("pca", "tsne"):
        words, points = project(vectors, asked, method=method)
        assert words == list(vectors.words)
        assert points.shape == (12, 2)
        assert np.array_equal(points, project(vectors, asked, method=method)[1])
    plot_vectors(vectors, asked).save(tmp_path / "map.svg")
    drawn = (tmp_path / "map.svg").read_text()
    assert all(f">{word}<" in drawn for word in vectors.words)
    assert "unheard" not in drawn
    with pytest.raises(UserError, match="2 of the words have a vector"):
        project(vectors, ["d0", "d10", "unheard"])
    with pytest.raises(UserError, match="unknown projection 'umap'"):
        project(vectors, asked, method="umap")
