"""Paragraph vectors: steps go uphill as brute force says, topics come out, and what is saved is whole."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from scipy.special import expit
from torch.nn.functional import logsigmoid

from textgraft.core.errors import UserError
from textgraft.linear import paragraph_vectors
from textgraft.linear.baselines import LsaBaseline
from textgraft.linear.paragraph_features import ParagraphFeatures
from textgraft.linear.paragraph_vectors import NEGATIVES, SHARPNESS, NgramVectors, _Block, _blocks
from textgraft.linear.state import State

TOPICS = [[f"{name}{i}" for i in range(40)] for name in ("animal", "tool", "food")]
THAI = ("บริการดีมากครับประทับใจ", "อินเทอร์เน็ตช้ามากใช้ไม่ได้เลย", "พอใช้ได้ธรรมดา")


def remarks(count: int, seed: int) -> tuple[list[str], np.ndarray]:
    """Texts of twelve words, eight of them of one of three topics."""
    generator = np.random.default_rng(seed)
    targets = generator.integers(0, 3, count)
    words = [[*generator.choice(TOPICS[t], 8), *generator.choice(TOPICS[generator.integers(0, 3)], 4)] for t in targets]
    return [" ".join(generator.permutation(text)) for text in words], targets


def counted(rows: int, columns: int, seed: int = 0) -> csr_matrix:
    counts = np.random.default_rng(seed).poisson(0.4, (rows, columns)).astype(np.float32)
    counts[:, 0] += 1
    return csr_matrix(counts)


@pytest.fixture
def ngrams() -> NgramVectors:
    """Of twelve n-grams, three dimensions, unequal weights and shares."""
    generator = np.random.default_rng(1)
    vectors = generator.normal(size=(12, 3)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    weights = generator.uniform(0.2, 1, 12).astype(np.float32)
    shares = generator.uniform(0.1, 1, 12)
    return NgramVectors(vectors, weights, shares / shares.sum())


def likelihood(
    ngrams: NgramVectors, text: torch.Tensor, counts: torch.Tensor, drawn: np.ndarray, vectors: torch.Tensor
) -> torch.Tensor:
    """Of one text, n-gram after n-gram, in as many words as the docstring's formula; `vectors` are the n-grams'."""
    total = torch.zeros(())
    for w, count in enumerate(counts):
        logit = SHARPNESS * vectors[w] @ text + float(ngrams.offsets[w])
        total = total + count * float(ngrams.weights[w]) * logsigmoid(logit)
    mass = (counts * torch.from_numpy(ngrams.weights)).sum()
    for w in drawn:
        logit = SHARPNESS * vectors[w] @ text + float(ngrams.offsets[w])
        total = total + mass * NEGATIVES / len(drawn) * logsigmoid(-logit)
    return total


def test_a_vector_is_where_its_text_is_likeliest(ngrams: NgramVectors) -> None:
    counts, drawn = counted(6, 12), np.tile(np.arange(12), 3)
    found = torch.from_numpy(ngrams._infer_block(_Block.of(counts, ngrams.weights), drawn, 60))
    vectors, offsets, weights = map(torch.from_numpy, (ngrams.vectors, ngrams.offsets, ngrams.weights))
    assert found.norm(dim=1).tolist() == pytest.approx([1] * 6, abs=1e-5)
    sphere = torch.nn.functional.normalize(torch.randn(3000, 3, generator=torch.Generator().manual_seed(0)), dim=1)
    for i, text in enumerate(found):
        row = torch.from_numpy(counts[[i]].toarray()[0])
        logits = SHARPNESS * sphere @ vectors.T + offsets
        own = (logsigmoid(logits) * row * weights).sum(1)
        mass = (row * weights).sum() * NEGATIVES / len(drawn)
        best = (own + mass * logsigmoid(-logits[:, drawn]).sum(1)).max()
        assert likelihood(ngrams, text, row, drawn, vectors) >= best - 1e-2


def test_ngrams_move_along_the_gradient_of_the_likelihood(ngrams: NgramVectors) -> None:
    counts, drawn = counted(5, 12, 3), np.array([0, 3, 3, 7])
    texts = torch.nn.functional.normalize(torch.randn(5, 3, generator=torch.Generator().manual_seed(1)), dim=1)
    before = torch.from_numpy(ngrams.vectors.copy())
    leaf = before.clone().requires_grad_()
    rows = torch.from_numpy(counts.toarray())
    total = sum(likelihood(ngrams, text, row, drawn, leaf) for text, row in zip(texts, rows, strict=True))
    total.backward()
    gradient = leaf.grad - (leaf.grad * before).sum(1, keepdim=True) * before
    squares = np.zeros(12, np.float32)
    loss, seen = ngrams._update_ngrams(texts.numpy(), counts, drawn, squares)
    assert loss == pytest.approx(-total.item(), rel=1e-5)
    assert seen == pytest.approx(float((rows * torch.from_numpy(ngrams.weights)).sum()), rel=1e-5)
    assert SHARPNESS**2 * squares == pytest.approx(gradient.square().sum(1).numpy(), rel=1e-3)
    step = paragraph_vectors.NGRAM_RATE * gradient / gradient.norm(dim=1, keepdim=True).clamp(min=1e-9)
    expected = torch.nn.functional.normalize(before + step, dim=1)
    moved = squares > 0
    assert moved.sum() > 8
    assert ngrams.vectors[moved] == pytest.approx(expected[moved].numpy(), abs=1e-4)
    assert np.array_equal(ngrams.vectors[~moved], before[~moved])


def test_what_is_known_without_the_text_is_how_often_an_ngram_is_drawn() -> None:
    shares = np.array([0.7, 0.2, 0.1])
    ngrams = NgramVectors(np.eye(3, dtype=np.float32), np.ones(3, np.float32), shares)
    drawn = shares**0.75 / (shares**0.75).sum()
    # Of the text's own and five drawn ones, how many of the n-gram are the text's own.
    assert expit(ngrams.offsets) == pytest.approx(shares / (shares + NEGATIVES * drawn), rel=1e-5)


def test_a_text_is_read_alone(ngrams: NgramVectors) -> None:
    counts = counted(150, 12, 4)
    together = ngrams.infer(counts)
    alone = np.concatenate([ngrams.infer(counts[[i]]) for i in range(0, 150, 10)])
    assert together[::10] == pytest.approx(alone, abs=1e-4)
    nothing = ngrams.infer(csr_matrix((2, 12), dtype=np.float32))
    assert not nothing.any()


def test_blocks_hold_each_text_once_and_not_too_many_ngrams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paragraph_vectors, "MAX_BLOCK_NGRAMS", 5_000)
    lengths = np.random.default_rng(0).integers(0, 900, 3_000)
    lengths[7] = 20_000
    for generator in (None, np.random.default_rng(1)):
        blocks = list(_blocks(lengths, generator))
        assert sorted(np.concatenate(blocks).tolist()) == list(range(3_000))
        assert all(len(b) == 1 or (len(b) <= 64 and lengths[b].max() * len(b) <= 5_000) for b in blocks)


@pytest.mark.slow
def test_learning_tells_the_other_half_ever_better() -> None:
    texts, _ = remarks(1_200, 0)
    space = ParagraphFeatures(dimensions=8, epochs=0).fit(texts)
    counts = space._vectorizer.transform(texts)
    half = counts.copy()
    half.data = np.random.default_rng(0).integers(0, 2, len(half.data)).astype(np.float32)
    other = (counts - half).maximum(0)
    for each in (half, other):
        each.eliminate_zeros()
    losses = space._ngrams.train(half.tocsr(), other.tocsr(), epochs=4, seed=0)
    assert losses[0] > losses[1] > losses[3]


@pytest.mark.slow
def test_topics_are_told_apart_by_a_few_labels() -> None:
    texts, targets = remarks(2_000, 1)
    space = ParagraphFeatures(dimensions=10).fit(texts)
    assert "2,000 texts" in space.about
    baseline = LsaBaseline(feature_maps=[space]).fit(texts[:30], targets[:30], num_classes=3)
    right = (baseline.predict_proba(texts[30:]).argmax(1) == targets[30:]).mean()
    assert right > 0.85
    again = ParagraphFeatures(dimensions=10).fit(texts)
    assert np.array_equal(again.transform(texts[:40]), space.transform(texts[:40]))


@pytest.mark.parametrize("texts", [["one"], ["a b", "c d"], list(THAI), ["same words here"] * 5])
def test_small_pools(texts: list[str]) -> None:
    space = ParagraphFeatures(dimensions=4).fit(texts)
    found = space.transform([*texts, "", "zzz"])
    assert found.shape == (len(texts) + 2, space.width)
    assert np.isfinite(found).all()
    assert not found[-2].any()
    assert space.transform([]).shape == (0, space.width)


def test_texts_without_words_are_refused() -> None:
    with pytest.raises(UserError, match="no text contains a word"):
        ParagraphFeatures().fit(["", "  "])


@pytest.mark.slow
def test_what_was_saved_is_the_same_space() -> None:
    texts, _ = remarks(1_100, 2)
    space = ParagraphFeatures(dimensions=6).fit(texts)
    loaded = ParagraphFeatures.from_state(space.state())
    assert loaded.about == space.about
    assert loaded.transform(texts[:60]) == pytest.approx(space.transform(texts[:60]), abs=2e-2)
    state, again = loaded.state(), ParagraphFeatures.from_state(loaded.state()).state()
    assert all(np.array_equal(state.arrays[name], again.arrays[name]) for name in state.arrays)
    assert again.settings == space.state().settings
    assert loaded.size_in_bytes() == space.size_in_bytes()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("kind", "word 9-grams", "unknown kind"),
        ("weights", -1.0, "weights of n-grams"),
        ("shares", 0.0, "shares of n-grams"),
    ],
)
def test_what_cannot_be_a_space_is_refused(name: str, value: str | float, message: str) -> None:
    state = ParagraphFeatures(dimensions=2).fit(["a b", "c d", "a d"]).state()
    settings, arrays = dict(state.settings), dict(state.arrays)
    if isinstance(value, str):
        settings[name] = value
    else:
        arrays[name] = np.full_like(arrays[name], value)
    with pytest.raises(ValueError, match=message):
        ParagraphFeatures.from_state(State(settings, arrays, state.documents))
