"""Evenness: the arithmetic, what it does to weights, and that labels choose between topics and judgements."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from textgraft.linear.baselines import LsaBaseline
from textgraft.linear.co_training import CoTrainedClassifier, Pool
from textgraft.linear.linear_layer import fit_variant
from textgraft.linear.lsa import LSAFeatures, plain_and_residual_idf
from textgraft.linear.ngram_counts import NgramCounts
from textgraft.linear.ngrams import Ngrams
from textgraft.linear.pool_words import PoolWords
from textgraft.linear.residual_idf import POWER, residual_idf_shares
from textgraft.linear.split_half_cca import MAX_CHUNK, split_halves
from textgraft.linear.word_vector_features import plain_and_residual_idf_words

TOPICS = [[f"topic{t}x{i}" for i in range(20)] for t in range(6)]
TONES = [[f"tone{t}x{i}" for i in range(20)] for t in range(2)]
FILLER = [f"filler{i}" for i in range(40)]


def remarks(count: int, seed: int) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Texts that come back to a few words of one of six topics, and pass two judgements of one of two tones."""
    generator = np.random.default_rng(seed)
    topics, tones = generator.integers(0, 6, count), generator.integers(0, 2, count)
    texts = []
    for topic, tone in zip(topics, tones, strict=True):
        subjects = generator.choice(generator.choice(TOPICS[topic], 3, replace=False), 12)
        judgements = generator.choice(TONES[tone], 2, replace=False)
        words = [*subjects, *judgements, *generator.choice(FILLER, 6, replace=False)]
        texts.append(" ".join(generator.permutation(words)))
    return texts, topics, tones


@given(st.lists(st.lists(st.integers(0, 4), min_size=3, max_size=3), min_size=1, max_size=12))
def test_evenness_is_the_share_of_the_texts_that_chance_would_reach(rows: list[list[int]]) -> None:
    got = residual_idf_shares(csr_matrix(np.array(rows, dtype=np.float32)))
    for word in range(3):
        often, found = sum(row[word] for row in rows), sum(row[word] > 0 for row in rows)
        by_chance = len(rows) * (1 - math.exp(-often / len(rows)))
        assert got[word] == pytest.approx(min(1.0, found / by_chance) if often else 1.0, rel=1e-6)


def test_words_that_crowd_into_few_texts_weigh_less() -> None:
    texts, _, _ = remarks(300, 0)
    plain = Ngrams(characters=False, max_features=1_000)
    residual_idf = Ngrams(characters=False, max_features=1_000, residual_idf=True)
    assert abs(plain.fit_transform(texts) - plain.transform(texts)).max() == 0
    assert abs(residual_idf.fit_transform(texts) - residual_idf.transform(texts)).max() == 0
    (weights,), (lowered,) = ([v.idf_ for v in n._vectorizers.values()] for n in (plain, residual_idf))
    words = plain._vectorizers["word 1-2-grams"].vocabulary_
    counts = np.zeros((len(texts), len(words)))
    for i, text in enumerate(texts):
        for word in text.split():
            counts[i, words[word]] += 1
    shares = residual_idf_shares(csr_matrix(counts))
    single = [i for word, i in words.items() if " " not in word]
    assert lowered[single] == pytest.approx((weights * shares**POWER)[single], rel=1e-5)
    topic, tone = ([words[w] for w in group if w in words] for group in (TOPICS[0], TONES[0]))
    assert shares[topic].max() < 0.7 < 0.95 < shares[tone].min()


def test_labels_choose_between_topics_and_judgements() -> None:
    texts, topics, tones = remarks(1_200, 1)
    feature_maps = plain_and_residual_idf(NgramCounts.of(texts))
    by_topic = LsaBaseline(feature_maps=feature_maps).fit(texts[:60], topics[:60] % 2)
    by_tone = LsaBaseline(feature_maps=feature_maps).fit(texts[:60], tones[:60])
    assert "residual-IDF" not in by_topic.about
    assert "residual-IDF" in by_tone.about
    plain = LsaBaseline(feature_maps=feature_maps[:1]).fit(texts[:60], tones[:60])
    right = [(b.predict_proba(texts[60:]).argmax(1) == tones[60:]).mean() for b in (by_tone, plain)]
    assert right[0] > right[1] + 0.05


@pytest.mark.slow
def test_self_training_looks_at_the_space_that_the_labels_choose() -> None:
    texts, topics, tones = remarks(1_200, 2)
    feature_maps = plain_and_residual_idf(NgramCounts.of(texts))
    words = plain_and_residual_idf_words(texts)
    pool = Pool.of(NgramCounts.of(texts), {"LSA": feature_maps, "word vectors": words})
    for targets, side in ((topics % 2, 0), (tones, 1)):
        chosen = CoTrainedClassifier(pool).fit(texts[:60], targets[:60]).fitted.feature_maps
        assert (chosen["LSA"], chosen["word vectors"]) == (feature_maps[side], words[side])


def test_an_even_space_is_saved_whole() -> None:
    texts, _, _ = remarks(200, 3)
    space = LSAFeatures(dimensions=10, residual_idf=True).fit(texts)
    again = LSAFeatures.from_state(space.state())
    assert again.residual_idf
    assert again.about == space.about
    assert again.transform(texts) == pytest.approx(space.transform(texts), abs=2e-3)


def test_even_word_vectors_differ_from_plain_ones_by_weights_and_axes() -> None:
    texts, _, _ = remarks(1_200, 4)
    pool = PoolWords.of(texts)
    plain, residual_idf = plain_and_residual_idf_words(texts)
    assert residual_idf.vectors is plain.vectors
    shares = residual_idf_shares(pool.counts())
    assert residual_idf._weights == pytest.approx(plain._weights * shares**POWER)
    assert pytest.approx([len(ids) for ids in pool.documents]) == pool.counts().sum(axis=1).A1
    # Where halves agree lies first: the halves' coordinates on the first axis correlate more than on the last one.
    one, other = (
        np.stack([residual_idf._weights[ids] @ residual_idf.vectors[ids] / len(ids) for ids in side])
        @ residual_idf._axes
        for side in zip(*map(split_halves, pool.documents), strict=True)
    )
    correlations = [np.corrcoef(one[:, axis], other[:, axis])[0, 1] for axis in (0, 1, len(residual_idf._axes) // 2)]
    assert correlations[0] > correlations[2] + 0.2
    assert "residual-IDF" in residual_idf.about
    again = type(residual_idf).from_state(residual_idf.state())
    assert again.residual_idf
    assert again.transform(texts[:50]) == pytest.approx(residual_idf.transform(texts[:50]), abs=2e-2)


@given(st.integers(0, 200))
def test_halves_of_a_text_are_all_of_it(length: int) -> None:
    ids = np.arange(length, dtype=np.int32)
    one, other = split_halves(ids)
    assert sorted([*one, *other]) == list(ids)
    assert 0 <= len(one) - len(other) <= MAX_CHUNK[True]


def test_the_side_is_chosen_by_the_mean_of_all_settings_in_all_views() -> None:
    """One view speaks for the first side a little, the other for the second one by much."""
    generator = np.random.default_rng(5)
    targets = np.arange(80) % 2
    noise = [generator.normal(size=(80, 30)) for _ in range(4)]

    def knowing(rows: np.ndarray, strength: float) -> np.ndarray:
        known = rows.copy()
        known[:, 0] += strength * (2 * targets - 1)
        return known

    clear, faint = knowing(noise[0], 8), knowing(noise[1], 1)
    side, outputs = fit_variant([[faint, noise[2]], [noise[3], clear]], targets, "single", 2, 0)
    assert side == 1
    assert [len(o.layers) for o in outputs] == [1, 1]
    assert (outputs[1].predict(clear).argmax(1) == targets).mean() > 0.95
    few, _ = fit_variant([[noise[0][:6], clear[:6]]], targets[:6], "single", 2, 0)
    assert few == 0, "six labels choose nothing"
