"""Word2vec by hand (demo/word2vec_by_hand.py): its gradients, its loss beside gensim's, its data and what it prints."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from test_demo import DEMO, script
from torch.nn import functional as F

import textgraft
from textgraft.word_embeddings.word_vectors import WordVectors

TOPICS = DEMO / "data" / "topics"
PAGE = DEMO.parent / "docs" / "word2vec-by-hand.md"
hand = script("word2vec_by_hand")


def test_a_text_becomes_pairs_of_numbers() -> None:
    cleaned = [hand.clean("My card, MY card!"), hand.clean("Where’s my card? 24/7")]
    assert cleaned == [["my", "card", "my", "card"], ["where's", "my", "card"]]
    numbers, counts = hand.index_words(cleaned, min_count=2)
    assert numbers == {"my": 0, "card": 1}
    assert counts.tolist() == [3, 3]
    pairs = hand.skipgram_pairs([np.array([5, 6, 7, 8]), np.array([9])], window=2)
    assert pairs.tolist() == [[5, 6], [5, 7], [6, 5], [6, 7], [6, 8], [7, 5], [7, 6], [7, 8], [8, 6], [8, 7]]
    assert hand.skipgram_pairs([], window=2).shape == (0, 2)


def test_gradients_are_those_of_autograd() -> None:
    """-log sigmoid(u · v) - sum_k log sigmoid(-n_k · v), equation 4 of Mikolov et al. 2013."""
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape) for shape in ((6, 4), (6, 4), (6, 3, 4))]
    centre, context, noise = (torch.tensor(array, requires_grad=True) for array in arrays)
    true, false = (context * centre).sum(1), (noise * centre[:, None]).sum(2)
    expected = -F.logsigmoid(true) - F.logsigmoid(-false).sum(1)
    expected.sum().backward()
    loss, *gradients = hand.loss_and_gradients(*arrays)
    np.testing.assert_allclose(loss, expected.detach().numpy(), rtol=1e-12)
    for gradient, tensor in zip(gradients, (centre, context, noise), strict=True):
        np.testing.assert_allclose(gradient, tensor.grad.numpy(), rtol=1e-10)


def test_gradients_are_finite_differences() -> None:
    rng, step = np.random.default_rng(1), 1e-6
    arrays = [rng.normal(size=shape) for shape in ((2, 3), (2, 3), (2, 2, 3))]
    _, *gradients = hand.loss_and_gradients(*arrays)
    for array, gradient in zip(arrays, gradients, strict=True):
        for place in np.ndindex(array.shape):
            losses = []
            for sign in (1, -1):
                array[place] += sign * step
                losses.append(hand.loss_and_gradients(*arrays)[0].sum())
                array[place] -= sign * step
            assert (losses[0] - losses[1]) / (2 * step) == pytest.approx(gradient[place], abs=1e-7)


def test_frequent_words_are_dropped_and_noise_follows_the_three_quarters_power() -> None:
    counts, rng = np.array([900, 90, 10]), np.random.default_rng(0)
    pairs = np.array([[0, 1], [1, 2]] * 20_000)
    left = Counter(map(tuple, hand.without_frequent(pairs, counts, 0.05, rng).tolist()))
    keep = np.minimum(1, np.sqrt(0.05 / (counts / counts.sum())))
    assert left[(0, 1)] / 20_000 == pytest.approx(keep[0] * keep[1], abs=0.02)
    assert left[(1, 2)] / 20_000 == pytest.approx(keep[1] * keep[2], abs=0.02)
    drawn = np.bincount(hand.noise_words(counts, (10_000, 4), rng).ravel(), minlength=3) / 40_000
    np.testing.assert_allclose(drawn, counts**0.75 / (counts**0.75).sum(), atol=0.01)


@pytest.mark.slow
def test_loss_and_neighbours_are_near_those_of_gensim_on_the_same_pairs() -> None:
    """gensim is given each pair as a sentence of two words: with window 1 it has the same pairs, each both ways."""
    models = pytest.importorskip("gensim.models")
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 5, 1_500)  # words of five groups, which stand beside words of their own group
    sentences = [list(rng.integers(0, 8, 6) + 8 * group) for group in groups]
    pairs = hand.skipgram_pairs([np.array(words) for words in sentences], window=2)
    counts = np.bincount(pairs[:, 0], minlength=40)
    options = hand.Options(dimensions=16, epochs=4, rate=0.025, batch=16, threshold=1.0)
    ours = hand.train(pairs, counts, options)
    one_way = pairs[pairs[:, 0] < pairs[:, 1]]
    equal = pairs[pairs[:, 0] == pairs[:, 1]]
    texts = [[str(c), str(o)] for c, o in rng.permutation(np.concatenate([one_way, equal[::2]]))]
    about = {"vector_size": 16, "alpha": 0.025, "epochs": 4, "negative": 5, "seed": 1}
    model = models.Word2Vec(texts, window=1, min_count=1, sg=1, sample=0, workers=1, **about)
    rows = [model.wv.key_to_index[str(word)] for word in range(40)]
    found = {"ours": ours[:2], "gensim": (model.wv.vectors[rows], model.syn1neg[rows])}
    c, o = pairs[:20_000].T
    noise = hand.noise_words(counts, (len(c), 5), rng)
    losses = {
        name: hand.loss_and_gradients(centres[c], contexts[o], contexts[noise])[0].mean()
        for name, (centres, contexts) in found.items()
    }
    assert losses["ours"] == pytest.approx(losses["gensim"], rel=0.03)
    assert losses["ours"] < 0.8 * 6 * np.log(2)  # of zero vectors
    for centres, _ in found.values():
        vectors = WordVectors([str(word) for word in range(40)], np.asarray(centres, dtype=np.float32))
        near = [int(other) // 8 == word // 8 for word in range(40) for other, _ in vectors.neighbours(str(word), 5)]
        assert np.mean(near) > 0.9


@pytest.mark.slow
def test_it_prints_every_step_and_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train = textgraft.read(TOPICS / "train.csv.xz")
    for name, rows in (("train", range(1200)), ("test", range(1200, 1260))):
        lines = (f'{train.labels[i * 5]},"{train.texts[i * 5].replace(chr(34), "")}"\n' for i in rows)
        (tmp_path / f"{name}.csv").write_text("label,text\n" + "".join(lines), encoding="utf-8")
    vectors = WordVectors(["card", "cash", "transfer", "top"], np.eye(4, dtype=np.float32))
    textgraft.save_vectors(vectors, tmp_path / "vectors")
    arguments = ["--train", tmp_path / "train.csv", "--test", tmp_path / "test.csv", "--vectors", tmp_path / "vectors"]
    arguments += ["--epochs", "1", "--labels", "4", "--samples", "2", "--words", "card"]
    monkeypatch.setattr(sys, "argv", ["word2vec_by_hand.py", *map(str, arguments), "--picture", f"{tmp_path}/map.svg"])
    hand.main()
    printed = capsys.readouterr().out
    assert [line[:8] for line in printed.splitlines()[:4]] == ["1. clean", "2. index", "3. pairs", "4. train"]
    assert "Accuracy on 60 test questions, mean of 2 samples" in printed
    assert "mean of our vectors" in printed
    assert (tmp_path / "map.svg").read_text(encoding="utf-8").startswith("<?xml")


def test_the_topics_are_those_that_the_names_of_the_intents_say() -> None:
    made = script("make_topics")
    assert made.topic_of("card_arrival") == "card"
    assert made.topic_of("verify_top_up") == "top-up"
    assert made.topic_of("topping_up_by_card") is None  # two of the words
    assert made.topic_of("age_limit") is None
    train, test = (textgraft.read(TOPICS / f"{name}.csv.xz") for name in ("train", "test"))
    assert set(train.labels) == set(test.labels) == set(made.TOPICS)
    described = (TOPICS / "README.md").read_text(encoding="utf-8")
    for part in (train, test):
        assert f"{len(part):,} questions" in described
        assert all(f"{count:,} {topic}" in described for topic, count in Counter(part.labels).items())
    texts = Counter(text.lower() for part in (train, test) for text in part.texts)
    assert max(texts.values()) == 1
    assert "Changes:" in described
    assert "Casanueva" in described
