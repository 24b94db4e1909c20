"""Halves of texts: how they are cut and counted, the canonical correlations, and what labels gain by them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import eigh

from textgraft.linear.baselines import LsaBaseline
from textgraft.linear.lsa import LSAFeatures
from textgraft.linear.methods import LSA, FeatureMaps
from textgraft.linear.ngram_counts import NgramCounts
from textgraft.linear.split_half_cca import MAX_CHUNK, MIN_TEXTS, RIDGE, cca_directions, first_half

FILLER = [f"w{i}" for i in range(300)]
TONES = [[f"tone{t}x{i}" for i in range(30)] for t in range(2)]
SUBJECTS = [[f"place{t}x{i}" for i in range(30)] for t in range(8)]


def told(count: int, seed: int) -> tuple[list[str], np.ndarray]:
    """Texts with a tone that runs through them, and a subject loud in one half that the other does not have."""
    generator = np.random.default_rng(seed)
    tones = generator.integers(0, 2, count)
    texts = []
    for tone in tones:
        parts = []
        for subject in generator.choice(8, 2, replace=False):
            words = [*generator.choice(SUBJECTS[subject], 12), *generator.choice(TONES[tone], 1)]
            parts += generator.permutation([*words, *generator.choice(FILLER, 8)]).tolist()
        texts.append(" ".join(parts))
    return texts, tones


def test_stretches_take_turns_and_short_texts_are_cut_in_the_middle() -> None:
    words = [f"w{i}" for i in range(50)]
    assert first_half(" ".join(words), spaced=True).split(" \uffff ") == [" ".join(words[:20]), " ".join(words[40:])]
    assert first_half("one two three", spaced=True) == "one two"
    assert first_half("", spaced=True) == first_half(" ", spaced=True) == ""
    assert first_half("กขคงจ", spaced=False) == "กขค"
    assert first_half("ก" * 1_000, spaced=False).split("\uffff") == ["ก" * MAX_CHUNK[False]] * 5


@given(st.lists(st.text("ab .\n!Σς", max_size=200), min_size=2, max_size=8))
def test_the_other_half_is_what_the_first_leaves(texts: list[str]) -> None:
    counted = NgramCounts.of([*texts, "a b a b", "a b"])
    one, other = (rows.toarray() for rows in counted.halves)
    assert (one >= 0).all()
    assert (other >= 0).all()
    assert (one + other == counted.whole.counts.toarray()).all()
    words = [i for i, word in enumerate(counted.whole.words) if " " not in word]
    for row, text in zip(one, texts, strict=False):
        in_half = counted.whole.count([first_half(text, spaced=True)]).toarray()[0]
        assert (row[words] == in_half[words]).all()


def test_counted_halves_are_weighed_as_texts_are() -> None:
    texts, _ = told(60, 2)
    counted = NgramCounts.of(texts)
    space = LSAFeatures(dimensions=5, residual_idf=True).fit_counted(counted)
    before = counted.halves[0].copy()
    rows = space._ngrams.transform_counts(counted.halves[0])
    again = space._ngrams.transform([first_half(text, spaced=True) for text in texts])
    assert abs(rows - again).max() < 1e-6
    assert abs(counted.halves[0] - before).max() == 0


def test_halves_of_a_script_without_spaces() -> None:
    texts = ["ภาษาไทยเขียนติดกัน" * 20, "แมวนอนบนเสื่อ" * 30] * 3
    counted = NgramCounts.of(texts)
    assert counted.whole.name == "character 1-3-grams"
    assert (counted.halves[0] > counted.whole.counts).nnz == 0
    one, other = (np.asarray(rows.sum(axis=1)).ravel() for rows in counted.halves)
    assert (one > 0).all()
    assert other / (one + other) == pytest.approx(0.5, abs=0.2)


def test_directions_are_canonical_correlations() -> None:
    generator = np.random.default_rng(0)
    shared = generator.normal(size=(4_000, 3)) * [1.0, 0.6, 0.3]
    mixing = generator.normal(size=(5, 5))
    one, other = (
        np.hstack([shared + 0.5 * generator.normal(size=shared.shape), generator.normal(size=(4_000, 2))]) @ mixing + 7
        for _ in range(2)
    )
    directions = cca_directions(one, other)
    found = np.linalg.norm(directions, axis=0)
    centred = [x - x.mean(axis=0) for x in (one, other)]
    within = sum(x.T @ x for x in centred) / 8_000
    within += RIDGE * np.trace(within) / 5 * np.eye(5)
    between = (centred[0].T @ centred[1] + centred[1].T @ centred[0]) / 8_000
    correlations = eigh(between, within, eigvals_only=True)[::-1]
    scaled = directions.T @ within @ directions
    assert scaled == pytest.approx(np.diag(np.maximum(correlations, 0) ** 2), abs=1e-8)
    across = directions.T @ between @ directions
    assert across == pytest.approx(np.diag(np.maximum(correlations, 0) ** 3), abs=1e-8)
    assert found[0] > 0


@pytest.mark.slow
def test_what_both_halves_say_stands_out() -> None:
    texts, tones = told(2 * MIN_TEXTS, 0)
    few = LSAFeatures().fit(texts[: MIN_TEXTS - 1])
    assert (few._centre == 0).all()
    turned = LSAFeatures().fit(texts[:MIN_TEXTS])
    right = []
    for space in (few, turned):
        lsa = LsaBaseline(feature_maps=[space]).fit(texts[:40], tones[:40])
        right.append((lsa.predict_proba(texts[MIN_TEXTS:]).argmax(1) == tones[MIN_TEXTS:]).mean())
    assert right[1] > right[0] + 0.05
    assert abs(turned.transform(texts[:MIN_TEXTS]).mean(axis=0)).max() < 1e-6
    assert (turned.transform(["zzz"]) == 0).all()


def test_spaces_are_counted_once_and_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts, _ = told(60, 1)
    calls = []
    of = NgramCounts.of.__func__
    monkeypatch.setattr(NgramCounts, "of", classmethod(lambda cls, *a, **k: calls.append(1) or of(cls, *a, **k)))
    made = FeatureMaps(texts, tmp_path).of(LSA)
    feature_maps = FeatureMaps(texts, tmp_path)
    assert [space.about for space in feature_maps.of(LSA)] == [space.about for space in made]
    assert len(calls) == 1
    assert feature_maps.seconds[LSA] > 0
    for space, again in zip(made, feature_maps.of(LSA), strict=True):
        assert np.array_equal(space.transform(texts), again.transform(texts))
