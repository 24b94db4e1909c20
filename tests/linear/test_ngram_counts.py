"""Texts counted once: what spaces and self-training make of the counts is what they make of the texts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from textgraft.core.errors import UserError
from textgraft.linear import ngram_counts
from textgraft.linear.fitted import feature_map_from_state
from textgraft.linear.lsa import FeatureMap, LSAFeatures
from textgraft.linear.methods import LINEAR_METHODS, FeatureMaps
from textgraft.linear.ngram_counts import NgramCounts, random_subset
from textgraft.linear.ngrams import Counts
from textgraft.linear.paragraph_features import ParagraphFeatures
from textgraft.linear.word_vector_features import WordVectorFeatures

WORDS = [f"w{i}" for i in range(80)]


def spoken(count: int, seed: int = 0) -> list[str]:
    generator = np.random.default_rng(seed)
    return [" ".join(generator.choice(WORDS, generator.integers(5, 40)).tolist()) for _ in range(count)]


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 3))
def test_numbers_are_drawn_once_each_and_ascend(count: int, most: int, seed: int) -> None:
    found = random_subset(count, most, seed)
    assert len(found) == min(count, most)
    assert (np.diff(found) > 0).all()
    assert set(found.tolist()) <= set(range(count))


def test_a_sample_is_some_of_the_texts_with_their_counts() -> None:
    texts = NgramCounts.of(spoken(40))
    some = texts.sample(15, seed=3)
    assert len(some) == 15
    assert some.whole.words == texts.whole.words
    count = texts.whole.count(list(some.texts))
    assert abs(some.whole.counts - count).nnz == 0
    assert abs(some.halves[0] + some.halves[1] - count).nnz == 0


def test_the_most_frequent_ngrams_stay_in_their_order() -> None:
    texts = NgramCounts.of(spoken(60))
    few = texts.most_frequent(30)
    frequency = dict(zip(texts.whole.words, texts.whole.counts.sum(axis=0).A1, strict=True))
    assert few.whole.words == sorted(few.whole.words)
    left_out = set(texts.whole.words) - set(few.whole.words)
    assert min(frequency[word] for word in few.whole.words) >= max(frequency[word] for word in left_out)
    # As they would have been counted had only so many been asked for, where no frequencies are equal at the border.
    border = sorted(frequency.values())[-31:-29]
    if border[0] != border[1]:
        asked = Counts.of(texts.texts, few.whole.name, max_features=30, min_df=2)
        assert asked.words == few.whole.words
        assert abs(asked.counts - few.whole.counts).nnz == 0
    assert (few.halves[0] + few.halves[1] != few.whole.counts).nnz == 0
    assert abs(texts.whole.columns(few.whole.words) - few.whole.counts).nnz == 0


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize(
    "space",
    [
        LSAFeatures(dimensions=6),
        LSAFeatures(dimensions=6, residual_idf=True),
        ParagraphFeatures(dimensions=6),
        WordVectorFeatures(),
    ],
)
def test_counted_texts_lie_where_texts_lie(space: FeatureMap, saved: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("textgraft.linear.lsa.MAX_NGRAMS", 50)
    texts = NgramCounts.of(spoken(80))
    found: FeatureMap = space.fit(texts.texts)  # type: ignore[attr-defined]
    if saved:
        found = feature_map_from_state(found.form, found.state())
    some = texts.sample(30, seed=1)
    assert found.transform_counts(some) == pytest.approx(found.transform(some.texts), abs=1e-5)


def test_all_ways_to_a_classifier_read_the_pool_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    of = Counts.of.__func__  # type: ignore[attr-defined]
    monkeypatch.setattr(Counts, "of", classmethod(lambda cls, *a, **k: read.append(len(a[0])) or of(cls, *a, **k)))
    texts = spoken(90)
    feature_maps = FeatureMaps(texts, tmp_path)
    for name in ("lsa", "co-training"):
        LINEAR_METHODS[name].classifier(feature_maps, 0)
    assert read == [90]
    assert feature_maps.pool.rows.shape[0] == 90
    # Begun again, the spaces are read and only the pool is counted.
    assert FeatureMaps(texts, tmp_path).pool.rows.shape[0] == 90
    assert read == [90, 90]


def test_a_large_pool_is_drawn_from_and_one_without_words_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ngram_counts, "MAX_TEXTS", 20)
    texts = spoken(50)
    some = NgramCounts.of(texts, seed=1)
    assert len(some) == 20
    assert list(some.texts) == [text for text in texts if text in set(some.texts)]
    assert list(NgramCounts.of(texts, seed=1).texts) == list(some.texts)
    with pytest.raises(UserError, match="no text contains a word"):
        NgramCounts.of(["", " "])
