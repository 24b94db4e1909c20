"""The linear baselines on small made corpora: they learn, repeat themselves, and take what users bring."""

import numpy as np
import pytest

from textgraft.core.errors import UserError
from textgraft.linear.baselines import BASELINES, LinearBaseline, LsaBaseline
from textgraft.linear.estimators import MIN_TEXTS_PER_CLASS
from textgraft.linear.lsa import LSAFeatures
from textgraft.linear.ngrams import is_space_separated

WORDS = {0: ["awful", "dull", "boring", "bad", "weak"], 1: ["superb", "moving", "great", "fine", "strong"]}
FILLER = ["the", "film", "was", "with", "a", "plot", "and", "music", "scene", "end"]


def reviews(n: int, seed: int = 0) -> tuple[list[str], np.ndarray]:
    rng = np.random.default_rng(seed)
    targets = rng.integers(0, 2, n)
    return [" ".join([*rng.choice(FILLER, 8), *rng.choice(WORDS[t], 2)]) for t in targets], targets


@pytest.mark.parametrize("name", BASELINES)
def test_learns_repeats_itself_and_gives_probabilities(name):
    texts, targets = reviews(80)
    unlabelled, _ = reviews(100, seed=2)
    held_out, truth = reviews(60, seed=1)
    first, second = (BASELINES[name](seed=5).fit(texts, targets, unlabelled=unlabelled) for _ in range(2))
    probabilities = first.predict_proba(held_out)
    assert probabilities.shape == (60, 2)
    assert probabilities.sum(1) == pytest.approx(1.0)
    assert (probabilities.argmax(1) == truth).mean() > 0.9
    assert (probabilities == second.predict_proba(held_out)).all()
    assert first.predict_proba([]).shape == (0, 2)
    assert "logistic regression" in first.about


@pytest.mark.parametrize("name", BASELINES)
def test_multi_label_with_labels_that_never_and_always_occur(name):
    texts, targets = reviews(80)
    labels = np.stack([targets, 1 - targets, np.zeros(80), np.ones(80)], axis=1).astype(np.float32)
    held_out, truth = reviews(40, seed=1)
    probabilities = BASELINES[name]().fit(texts, labels, kind="multi").predict_proba(held_out)
    assert ((probabilities[:, 0] > 0.5) == truth).mean() > 0.9
    assert ((probabilities[:, 1] > 0.5) == 1 - truth).mean() > 0.9
    assert (probabilities[:, 2] == 0).all()
    assert (probabilities[:, 3] == 1).all()


@pytest.mark.parametrize("name", BASELINES)
def test_numeric_targets(name):
    texts, targets = reviews(200)
    ratings = (targets * 4 + 1).astype(np.float32)
    held_out, truth = reviews(60, seed=1)
    baseline = BASELINES[name]().fit(texts, ratings, kind="numeric")
    predicted = baseline.predict_proba(held_out)
    assert predicted.shape == (60,)
    assert np.corrcoef(predicted, truth)[0, 1] > 0.9
    assert np.abs(predicted - (truth * 4 + 1)).mean() < 1.0
    assert "ridge" in baseline.about


def test_classes_without_a_training_text_keep_probability_zero():
    texts, targets = reviews(40)
    probabilities = LinearBaseline().fit(texts, targets * 2 + 1, num_classes=5).predict_proba(texts)
    assert probabilities.shape == (40, 5)
    assert (probabilities[:, [0, 2, 4]] == 0).all()


def test_one_class_is_always_predicted():
    texts, _ = reviews(10)
    probabilities = LinearBaseline().fit(texts, np.ones(10, dtype=int), num_classes=3).predict_proba(texts)
    assert (probabilities == [0.0, 1.0, 0.0]).all()


@pytest.mark.parametrize("name", BASELINES)
def test_regularisation_is_cross_validated_only_with_five_of_each_class(name):
    texts, targets = reviews(60)
    five = np.where(np.arange(60) < MIN_TEXTS_PER_CLASS, 2, targets)
    assert "(cross-validated)" in BASELINES[name]().fit(texts, five).about
    four = np.where(np.arange(60) < MIN_TEXTS_PER_CLASS - 1, 2, targets)
    assert "C=10 (fixed)" in BASELINES[name]().fit(texts, four).about


def test_few_labels_read_few_dimensions():
    rng = np.random.default_rng(0)
    words = [f"w{i}" for i in range(300)]
    topics = [words[:30], words[30:60]]
    targets = np.arange(300) % 2
    texts = [" ".join([*rng.choice(topics[t], 3), *rng.choice(words, 12)]) for t in targets]
    space = LSAFeatures().fit(texts)
    few = LsaBaseline(feature_maps=[space]).fit(texts[:40], targets[:40])
    assert "cross-validated" in few.about
    assert "200 of them" not in few.about
    assert (few.predict_proba(texts[40:]).argmax(1) == targets[40:]).mean() > 0.6


def test_latent_space_carries_labels_over_to_words_seen_only_unlabelled():
    rng = np.random.default_rng(0)
    pool = [" ".join(rng.choice(WORDS[i % 2], 4)) for i in range(400)]
    texts, targets = ["awful awful", "superb superb"] * 5, np.array([0, 1] * 5)
    unseen = ["dull boring", "moving great"]
    space = LSAFeatures(dimensions=2).fit(pool)
    lsa = LsaBaseline(feature_maps=[space]).fit(texts, targets).predict_proba(unseen)
    linear = LinearBaseline(characters=False).fit(texts, targets, unlabelled=pool).predict_proba(unseen)
    assert lsa.argmax(1).tolist() == [0, 1]
    assert linear == pytest.approx(0.5)


def test_a_fitted_space_is_used_as_it_is():
    texts, targets = reviews(60)
    space = LSAFeatures(dimensions=7).fit(texts)
    vectors = space.transform(texts)
    assert vectors.shape == (60, 7)
    assert (vectors.std(0)[1:-1] >= vectors.std(0)[2:] * 0.8).all()
    assert (space.transform(["zzz qqq"]) == 0).all()
    reused = LsaBaseline(feature_maps=[space]).fit(texts, targets, unlabelled=["never read"] * 50)
    assert (
        reused.predict_proba(texts) == LsaBaseline(feature_maps=[space]).fit(texts, targets).predict_proba(texts)
    ).all()
    assert "60 texts" in reused.about


def test_languages_without_spaces_get_character_ngrams():
    good, bad = "บริการดีมากครับประทับใจ", "อินเทอร์เน็ตช้ามากใช้ไม่ได้เลย"
    texts, targets = (
        [good + str(i) for i in range(10)] + [bad + str(i) for i in range(10)],
        np.repeat([1, 0], 10),
    )
    assert not is_space_separated(texts)
    baseline = LinearBaseline().fit(texts, targets)
    assert "character 1-3-grams" in baseline.about
    assert "word" not in baseline.about
    assert baseline.predict_proba(["ดีมากครับ", "ช้ามาก"]).argmax(1).tolist() == [1, 0]


def test_spaced_and_unspaced_texts():
    assert not is_space_separated(["ดีมาก"])
    assert not is_space_separated(["この映画はとても面白かったです。", "很好看的电影"])
    for spaced in (
        ["Der Film war überraschend langweilig."],
        ["oneword"],
        ["ดี มาก ครับ"],
        ["한국어 영화"],
        [],
        [""],
    ):
        assert is_space_separated(spaced)


def test_character_ngrams_only_while_the_text_is_small(monkeypatch):
    texts, targets = reviews(30)
    assert "character 3-5-grams" in LinearBaseline().fit(texts, targets).about
    assert "character" not in LinearBaseline(characters=False).fit(texts, targets).about
    monkeypatch.setattr("textgraft.linear.baselines.MAX_TEXT_FOR_CHARACTERS", 100)
    assert "character" not in LinearBaseline().fit(texts, targets).about
    assert "character" in LinearBaseline(characters=True).fit(texts, targets).about


def test_many_classes_get_fewer_features(monkeypatch):
    monkeypatch.setattr("textgraft.linear.baselines.MAX_COEFFICIENTS", 4_000)
    texts = [f"a{i} a{i + 1} b c d" for i in range(1_500)] * 2
    baseline = LinearBaseline(characters=False).fit(texts, np.arange(3_000) % 2, num_classes=4)
    assert baseline.about.startswith("TF-IDF of 1,000 word")


@pytest.mark.parametrize(
    "texts", [["😀 😀", "😡 😡"], ["हिन्दी अच्छी", "बुरा बुरा"], ["مرحبا جميل", "سيئ جدا"], ["a", "b"]]
)
def test_texts_of_emoji_marks_and_single_letters_have_words(texts):
    baseline = LinearBaseline(characters=False).fit(texts, np.array([0, 1]))
    assert baseline.predict_proba(texts).argmax(1).tolist() == [0, 1]


@pytest.mark.parametrize("name", BASELINES)
def test_texts_without_words_are_the_users_mistake(name):
    with pytest.raises(UserError, match="contains a word"):
        BASELINES[name]().fit(["", "  "], np.array([0, 1]))
