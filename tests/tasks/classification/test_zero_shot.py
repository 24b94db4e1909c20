"""Zero-shot classification: what the similarity is, what self-training learns from a pool, what is saved, mistakes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_up_reviews import BAD, GOOD, reviews
from scipy.special import softmax

import textgraft
from textgraft import UserError
from textgraft.core.context import QUIET
from textgraft.data.examples import Examples, Pair
from textgraft.models import artifact, default_encoders, loading, packaged
from textgraft.models.sentence_embedding import SentenceEmbedding
from textgraft.tasks.classification import self_training, zero_shot
from textgraft.tasks.classification.label_texts import LabelTexts
from textgraft.tasks.classification.self_training import ZeroShot, confident_texts
from textgraft.tasks.classification.vector_cache import VectorCache

LABELS = {"pos": "praise", "neg": "blame"}
TOPIC = 40
"""Dimensions of the stub that say what a text is about, and not whether it is good."""


def embedded(texts: Sequence[str]) -> np.ndarray:
    """A made-up encoder: its first two coordinates are praise and blame, the others a topic of each text's own.

    The description of praise is a bit like every text, so similarity alone prefers it.
    """
    rows = np.zeros((len(texts), 2 + TOPIC))
    for row, text in zip(rows, texts, strict=True):
        words = text.replace(".", " ").split()
        row[0] = sum(word in GOOD for word in words) / 10
        row[1] = sum(word in BAD for word in words) / 10
        row[2:] = np.random.default_rng(len(text)).normal(size=TOPIC) / 8 + 0.1
        if text in ("praise", "blame"):
            row[:] = 0
            row[["praise", "blame"].index(text)] = 1
            row[2:] = 0.1 if text == "praise" else 0
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def accuracy(model: ZeroShot, texts: Sequence[str], labels: Sequence[str]) -> float:
    names = np.array(["neg", "pos"])[model.outputs(texts).argmax(axis=1)]
    return float(np.mean(names == np.array(labels)))


def test_similarity_is_a_softmax_of_cosines() -> None:
    texts = reviews(6)[0]
    model = ZeroShot(embedded).fit(LABELS, texts)  # too few for self-training
    cosines = embedded(texts) @ embedded(["blame", "praise"]).T
    np.testing.assert_allclose(model.outputs(texts), softmax(cosines / 0.07, axis=1), atol=1e-12)
    assert model.about == "similarity"
    assert model.outputs([]).shape == (0, 2)


def test_a_label_is_the_mean_of_its_texts_drawn_to_its_examples() -> None:
    labels = LabelTexts(("a", "b"), (("praise", "blame"), ("blame",)), ((), ("praise", "praise")))
    model = ZeroShot(embedded).fit(labels)
    praise, blame = embedded(["praise", "blame"])
    means = np.stack([praise + blame, blame + 2 / 8 * praise])
    expected = means / np.linalg.norm(means, axis=1, keepdims=True) / 0.07
    np.testing.assert_allclose(model.layer[:, :-1], expected, atol=1e-12)


def test_self_training_learns_from_the_pool_what_similarity_does_not_see() -> None:
    pool, (texts, labels) = reviews(400, 1)[0], reviews(300, 2)
    before = accuracy(ZeroShot(embedded, method="similarity").fit(LABELS, pool), texts, labels)
    model = ZeroShot(embedded).fit(LABELS, pool)
    assert model.about == "self-training"
    assert before < 0.96
    assert accuracy(model, texts, labels) > 0.99


def test_n_grams_take_part_in_a_large_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_training, "MIN_CO_TRAINING_TEXTS", 200)
    pool, (texts, labels) = reviews(400, 1)[0], reviews(300, 2)
    alone = ZeroShot(embedded, method="self-training").fit(LABELS, pool)
    both = ZeroShot(embedded).fit(LABELS, pool)
    assert (alone.about, both.about) == ("self-training", "co-training")
    three = ZeroShot(embedded).fit({**LABELS, "both": "praise blame"}, pool[:299])
    assert three.about == "self-training"  # fewer than 100 texts a label
    assert not np.allclose(alone.layer, both.layer)
    assert accuracy(both, texts, labels) >= accuracy(alone, texts, labels)


def test_a_pool_without_words_has_no_n_grams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_training, "MIN_CO_TRAINING_TEXTS", 20)
    monkeypatch.setattr(self_training, "MIN_CO_TRAINING_TEXTS_PER_LABEL", 10)
    pool = ["," * n for n in range(1, 41)]
    assert ZeroShot(embedded).fit(LABELS, pool).about == "self-training"


def test_only_distinct_texts_that_are_not_empty_count() -> None:
    texts = reviews(19)[0]
    assert ZeroShot(embedded).fit(LABELS, [*texts, "", "  ", texts[0]]).about == "similarity"
    assert ZeroShot(embedded).fit(LABELS, [*texts, "another"]).about == "self-training"


def test_a_large_pool_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_training, "MAX_POOL_TEXTS", 30)
    seen: list[int] = []

    def counted(texts: Sequence[str]) -> np.ndarray:
        seen.append(len(texts))
        return embedded(texts)

    ZeroShot(counted).fit(LABELS, reviews(100)[0])
    assert max(seen) == 30


def test_a_label_that_no_text_is_like_stays_possible() -> None:
    model = ZeroShot(embedded).fit({**LABELS, "zzz": "praise blame"}, reviews(100, 1)[0])
    outputs = model.outputs(reviews(20, 2)[0])
    assert outputs.shape == (20, 3)
    assert outputs.min() > 1e-6
    np.testing.assert_allclose(outputs.sum(axis=1), 1, atol=1e-12)


def test_labelled_texts_weigh_more_than_pseudo_labels() -> None:
    """Labels the other way round than their descriptions: twenty labelled texts outweigh these."""
    pool, (texts, labels) = reviews(100, 1)[0], reviews(40, 2)
    targets = [int(label == "neg") for label in labels]  # 0 is neg, so all are wrong
    model = ZeroShot(embedded).fit(LABELS, pool, texts=texts, targets=targets)
    assert accuracy(model, texts, labels) < 0.3


def test_the_most_confident_texts_of_each_class() -> None:
    scores = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.45, 0.55], [0.7, 0.3]])
    indices, classes = confident_texts(scores, 0.5)  # at least ten each, so all
    assert (indices.tolist(), classes.tolist()) == ([0, 4, 2, 1, 3], [0, 0, 0, 1, 1])
    many = np.concatenate([np.linspace(0.5, 1, 101)[1:, None] * [1, -1], [[-1.0, 1.0]]])
    indices, classes = confident_texts(many, 0.2)
    assert indices.tolist() == [*range(99, 79, -1), 100]
    assert classes.tolist() == [0] * 20 + [1]


@pytest.fixture(scope="module")
def encoder(tiny_lm: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that describes itself as a sentence encoder."""
    source = replace(loading.load_network(tiny_lm), embedding=SentenceEmbedding("mean", max_length=40))
    return artifact.save(source, tmp_path_factory.mktemp("encoder") / "tiny")


def test_what_is_saved_predicts_the_same(encoder: Path, tmp_path: Path) -> None:
    texts, (held_out, labels) = reviews(60, 1)[0], reviews(30, 2)
    test = Examples(held_out, labels, "single")
    more = {"model": encoder, "unlabelled": reviews(40, 3)[0], "test": test, "context": QUIET}
    result = textgraft.zero_shot(texts, {"pos": GOOD, "neg": BAD}, out=tmp_path / "out", **more)
    assert result.folder == tmp_path / "out"
    assert "self-training on 100 unlabelled texts" in result.about
    opened = loading.load(tmp_path / "out", precision="fp32")
    for first, second in zip(result.predictions, opened.predict(texts), strict=True):
        assert first.label == second.label
        assert first.confidence == pytest.approx(second.confidence, abs=1e-5)
        assert first.probabilities == pytest.approx(second.probabilities, abs=1e-5)
    assert result.evaluation is not None
    assert result.evaluation == opened.evaluate(test)
    assert result.evaluation["accuracy"]["low"] < result.evaluation["accuracy"]["high"]
    card = (tmp_path / "out" / "README.md").read_text()
    assert "made from descriptions of its labels" in card
    assert opened.members[0].run["label_texts"]["pos"] == GOOD
    np.testing.assert_allclose(np.linalg.norm(opened.embed(texts), axis=1), 1, atol=1e-5)


def test_the_labels_of_the_test_set_change_nothing(encoder: Path) -> None:
    texts, held_out = reviews(60, 1)[0], reviews(30, 2)[0]
    results = [
        textgraft.zero_shot(texts, "pos, neg", model=encoder, context=QUIET, test=test)
        for test in (None, Examples(held_out, ["pos"] * 30, "single"), Examples(held_out, ["neg"] * 30, "single"))
    ]
    assert results[0].predictions == results[1].predictions == results[2].predictions
    assert results[1].evaluation is not None
    assert results[2].evaluation is not None
    sum_of_both = results[1].evaluation["accuracy"]["mean"] + results[2].evaluation["accuracy"]["mean"]
    assert sum_of_both == pytest.approx(1)


def test_a_text_is_embedded_once(encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    real = VectorCache._embed
    monkeypatch.setattr(VectorCache, "_embed", lambda self, texts: calls.append(len(texts)) or real(self, texts))
    texts = reviews(50, 1)[0]
    textgraft.zero_shot([*texts, *texts], "pos, neg", model=encoder, unlabelled=texts, context=QUIET)
    assert sum(calls) == len(set(texts)) + 2


def test_without_a_model_it_takes_the_default_encoder(encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    real = loading.load_network
    monkeypatch.setattr(loading, "load_network", lambda name: loaded.append(name) or real(encoder))
    monkeypatch.setattr(default_encoders, "in_cache", lambda entry: encoder if "minilm" in entry.name else None)
    zero_shot.sentence_encoder(None, ["Where is the station?"])
    zero_shot.sentence_encoder(None, ["ข้อความ"])
    assert [*dict.fromkeys(loaded)] == ["minilm-l12", "multilingual-minilm"]  # first opened to see that they can be
    monkeypatch.setattr(default_encoders, "in_cache", lambda entry: None)
    with pytest.raises(UserError, match="no sentence encoder") as caught:
        zero_shot.sentence_encoder(None, ["Where is the station?"])
    assert caught.value.remedy == 'Install one by: pip install "textgraft[minilm]"'
    with pytest.raises(UserError, match="textgraft fetch multilingual-minilm"):
        zero_shot.sentence_encoder(None, ["ข้อความ"])


def test_models_that_are_no_sentence_encoders_are_refused(tiny_lm: Path) -> None:
    with pytest.raises(UserError, match="language model from left to right") as caught:
        textgraft.zero_shot(["a"], "x, y", model=tiny_lm)
    assert f"textgraft prompt {tiny_lm} FILE" in caught.value.remedy
    with pytest.raises(UserError, match="not trained to compare texts") as caught:
        textgraft.zero_shot(["a"], "x, y", model="en-bert-small")
    assert "minilm" in caught.value.remedy
    with pytest.raises(UserError, match="word vectors, not a network"):
        textgraft.zero_shot(["a"], "x, y", model="en-vectors")


@pytest.mark.parametrize(
    ("texts", "part"),
    [("one text", "this is one text"), ([], "no texts"), (["", " "], "no texts"), ([Pair("a", "b")], "single texts")],
)
def test_texts_that_are_none_are_refused(texts: Any, part: str) -> None:
    with pytest.raises(UserError, match=part):
        textgraft.zero_shot(texts, "x, y")


def test_a_folder_that_exists_is_kept(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="exists already"):
        textgraft.zero_shot(["a"], "x, y", out=tmp_path)


@pytest.mark.skipif(not packaged.is_installed("minilm"), reason="the package of minilm is not installed")
def test_minilm_tells_a_refund_from_a_recipe() -> None:
    texts = ["I want my money back.", "Please return what I paid.", "Bake it for an hour.", "Add two eggs and flour."]
    labels = {"refund": "The customer wants money back.", "cooking": "How to cook a dish."}
    result = textgraft.zero_shot(texts, labels, model="minilm", context=QUIET)
    assert [one.label for one in result.predictions] == ["refund", "refund", "cooking", "cooking"]
    assert result.about == "Zero-shot, from label texts and vectors of all-MiniLM-L6-v2: similarity"
