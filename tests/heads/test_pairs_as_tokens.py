"""Pairs and choices as tokens, batches and losses, beside loops that do the same by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from textgraft.core.errors import UserError
from textgraft.data.batch import Batch, pad
from textgraft.data.examples import Choice, Examples, Pair
from textgraft.data.labels import Labels
from textgraft.data.sequences import PairIds, Rows, TokenIds, cut_pair, encode_texts, shuffled_batches
from textgraft.linear.artifact import LinearArtifact
from textgraft.linear.baselines import LinearBaseline
from textgraft.linear.multiple_choice import FrequentPosition, WordOverlap
from textgraft.linear.ngrams import Ngrams
from textgraft.linear.pair_ngrams import MEASURES, PairNgrams
from textgraft.metrics.calibration import fit_temperature
from textgraft.models import artifact, loading
from textgraft.models.inference import predict_logits
from textgraft.models.model import Model, build
from textgraft.text.byte_level import train_byte_level
from textgraft.text.tokenizer import PairMarks, Tokenizer
from textgraft.text.wordpiece import train as train_wordpiece

TEXTS = ["the cat sat on the mat", "a dog ran to the cat", "where did the dog run to"] * 3
TOKENIZERS: dict[str, Callable[[], Tokenizer]] = {
    "word": lambda: Tokenizer.train(TEXTS, kind="word", min_frequency=1),
    "subword": lambda: Tokenizer.train(TEXTS, vocab_size=60),
    "wordpiece": lambda: train_wordpiece(TEXTS, vocab_size=80),
    "bytes": lambda: train_byte_level(TEXTS, vocab_size=270),
}
MARKS = PairMarks((90,), (91,), (92,))


def pair(first: int, second: int) -> PairIds:
    return PairIds(np.arange(first), np.arange(50, 50 + second), MARKS)


def ids_of(example: TokenIds) -> NDArray:
    assert isinstance(example, PairIds)
    return example.ids


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        ("word", ["xxbos", "the", "cat", "xxfld", "a", "dog"]),
        ("subword", ["xxbos", "▁the", "▁cat", "xxfld", "▁a", "▁dog"]),
        ("wordpiece", ["[CLS]", "the", "cat", "[SEP]", "a", "dog", "[SEP]"]),
        ("bytes", ["<|endoftext|>", "the", "Ġcat", "<|endoftext|>", "a", "Ġdog"]),
    ],
)
def test_the_marks_of_each_vocabulary(kind: str, shape: list[str]) -> None:
    tokenizer = TOKENIZERS[kind]()
    (found,), truncation = encode_texts(tokenizer, [Pair("the cat", "a dog")], 99)
    tokens = [tokenizer.tokens[i] for i in ids_of(found)]
    marks = [token for token in tokens if token in shape[:1] + shape[3:4] + ["[SEP]"]]
    assert marks == [token for token in shape if token in shape[:1] + shape[3:4] + ["[SEP]"]]
    if kind in ("word", "wordpiece"):
        assert tokens == shape
    (alone,), (other,) = tokenizer.bodies(["the cat"]), tokenizer.bodies(["a dog"])
    assert isinstance(found, PairIds)
    assert found.first.tolist() == alone.tolist()
    assert found.ids[found.start : found.start + len(other)].tolist() == other.tolist()
    assert (truncation.tokens, truncation.lost_tokens) == (len(tokens), 0)


def test_bert_pairs_are_those_of_its_tokenizer() -> None:
    tokenizer = train_wordpiece(TEXTS, vocab_size=80)
    pairs = [Pair("the cat sat", "a dog"), Pair("where", "did the dog run to the mat"), Pair("cat [SEP] dog", "a dog")]
    examples, _ = encode_texts(tokenizer, pairs, 99)
    batch = pad(examples, tokenizer.pad_id)
    assert batch.segments is not None
    for row, one in enumerate(pairs):
        expected = tokenizer.encode_pair(one.first, one.second)  # held to the transformers library's elsewhere
        assert batch.ids[row][batch.mask[row]].tolist() == expected.ids
        assert batch.segments[row][batch.mask[row]].tolist() == expected.segments
        assert not batch.segments[row][~batch.mask[row]].any()


@pytest.mark.parametrize("lengths", [(a, b) for a in (0, 1, 4, 9) for b in (0, 1, 5, 9)])
@pytest.mark.parametrize("most", [5, 6, 8, 12, 30])
def test_the_longer_text_is_cut_first(lengths: tuple[int, int], most: int) -> None:
    """As by taking one token after another from the longer text, of equal ones from the second."""
    a, b = lengths
    while a + b > most - 3:
        a, b = (a - 1, b) if a > b else (a, b - 1)
    found = cut_pair(pair(*lengths), most)
    assert (len(found.first), len(found.second)) == (a, b)
    assert len(found) == len(found.ids) <= most
    assert [i for i in found.ids if i >= 90] == [90, 91, 92]
    for kept, whole in ((found.first, pair(*lengths).first), (found.second, pair(*lengths).second)):
        head = len(kept) // 4 if len(kept) < len(whole) else len(kept)
        assert kept.tolist() == [*whole[:head], *whole[len(whole) - len(kept) + head :]]


def test_truncation_is_counted_and_no_room_is_told() -> None:
    tokenizer = TOKENIZERS["word"]()
    examples, truncation = encode_texts(tokenizer, [Pair("the cat sat on the mat", "a dog"), Pair("a", "dog")], 7)
    assert [len(e) for e in examples] == [7, 4]
    assert (truncation.cut_texts, truncation.lost_tokens, truncation.tokens) == (1, 3, 14)
    with pytest.raises(UserError, match="3 tokens leave no room for two texts"):
        encode_texts(tokenizer, [Pair("a", "dog")], 3)
    with pytest.raises(UserError, match="text 2 is a single text among pairs"):
        encode_texts(tokenizer, [Pair("a", "dog"), "cat"], 9)


def test_rows_of_one_example_stay_together() -> None:
    examples: list[TokenIds] = [Rows((pair(2, 3), pair(4, 1), pair(1, 1))), Rows((pair(2, 2), pair(6, 1)))]
    batch = pad(examples, 99)
    assert batch.groups is not None
    assert batch.groups.tolist() == [0, 0, 0, 1, 1]
    for row, one in zip(range(5), [p for e in examples if isinstance(e, Rows) for p in e.rows], strict=True):
        assert batch.ids[row][batch.mask[row]].tolist() == one.ids.tolist()
    assert [len(e) for e in examples] == [24, 20]
    generator = np.random.default_rng(0)
    batches = shuffled_batches([24] * 20, rows=16, generator=generator, tokens=100)
    assert max(map(len, batches)) * 24 <= 100 + 24  # a budget of tokens holds for all rows of the examples


def model(name: str, head: dict[str, object]) -> Model:
    encoder: dict[str, object] = {"name": name, "vocab_size": 100, "embedding_dim": 6}
    if name == "awd_lstm":
        encoder |= {"hidden_dim": 5, "num_layers": 2}
    else:
        encoder |= {"num_layers": 2, "num_heads": 2, "max_length": 32}
        encoder |= {"feed_forward_dim": 8, "pooler": False} if name == "bert" else {}
    torch.manual_seed(1)
    made = build({"encoder": encoder, "head": {"input_dim": 6, "hidden_dim": 4, **head}})
    with torch.no_grad():  # from weights near 0 nothing could be told apart
        for parameter in made.parameters():
            parameter.normal_(std=0.5)
    return made.eval()


families = pytest.mark.parametrize("name", ["awd_lstm", "bert", "gpt"])


@families
def test_options_are_scored_one_by_one_and_their_order_is_not_seen(name: str) -> None:
    chooser = model(name, {"name": "choice", "hidden_dim": 0})
    rows = (pair(2, 3), pair(4, 1), pair(3, 5))
    examples: list[TokenIds] = [Rows(rows), Rows(rows[::-1]), Rows(rows[:2])]
    logits = torch.from_numpy(predict_logits(chooser, examples, 99, "fp32"))
    batches = [pad([Rows((row,))], 99) for row in rows]
    alone = torch.cat([chooser(batch)[:, 0] for batch in batches]).detach()
    torch.testing.assert_close(logits[0], alone, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(logits[1], alone.flip(0), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(logits[2], torch.tensor([*alone[:2], -torch.inf]), rtol=1e-5, atol=1e-6)
    assert alone.std() > 1e-3


@families
def test_the_loss_of_a_choice_is_a_softmax_over_its_options(name: str) -> None:
    chooser = model(name, {"name": "choice", "hidden_dim": 0})
    rows = (pair(2, 3), pair(4, 1), pair(3, 5))
    batch = pad([Rows(rows), Rows(rows[:2])], 99).with_targets(torch.tensor([2, 0]))
    loss = chooser.loss(batch)
    scores = torch.cat([chooser(pad([Rows((row,))], 99))[:, 0] for row in rows])
    expected = -(scores.log_softmax(0)[2] + scores[:2].log_softmax(0)[0])
    torch.testing.assert_close(loss.total, expected, rtol=1e-5, atol=1e-6)
    assert loss.count == 2
    loss.total.backward()
    assert all(bool(p.grad.isfinite().all()) for p in chooser.parameters() if p.grad is not None)


@families
def test_both_orders_are_added_before_the_output(name: str) -> None:
    """Radford et al. 2018, figure 1: similarity."""
    head = {"name": "classification", "outputs": 1, "kind": "numeric", "batch_norm": False, "hidden_dim": 0}
    similar = model(name, {**head, "both_orders": True})
    one_way = model(name, head)
    examples: list[TokenIds] = [pair(2, 5), pair(7, 1)]
    found = torch.from_numpy(predict_logits(similar, examples, 99, "fp32"))
    for row, one in enumerate(examples):
        assert isinstance(one, PairIds)
        swapped = PairIds(one.second, one.first, MARKS)
        last = similar.head.layers[-1]
        parts = [one_way.encoder(pad([order], 99)) for order in (one, swapped)]
        pooled = torch.zeros(1, 18)
        for part in parts:
            pooled = pooled + torch.cat([part.top[:, -1], part.top.amax(1), part.top.mean(1)], dim=1)
        torch.testing.assert_close(found[row], F.linear(pooled, last.weight, last.bias)[0], rtol=1e-4, atol=1e-5)
    turned = [PairIds(e.second, e.first, MARKS) for e in examples if isinstance(e, PairIds)]
    np.testing.assert_allclose(predict_logits(similar, turned, 99, "fp32"), found, rtol=1e-4, atol=1e-5)
    assert abs(predict_logits(one_way, turned, 99, "fp32") - predict_logits(one_way, examples, 99, "fp32")).max() > 1e-3
    with pytest.raises(UserError, match="these are not pairs"):
        predict_logits(similar, [np.arange(4)], 99, "fp32")


def test_a_segment_table_of_one_row_serves_both_texts() -> None:
    encoder = {"name": "bert", "vocab_size": 100, "embedding_dim": 6, "num_layers": 1, "num_heads": 2}
    encoder |= {"feed_forward_dim": 8, "max_length": 32, "num_segments": 1}
    single = build({"encoder": encoder, "head": {"name": "features", "input_dim": 6}}).eval()
    batch = pad([pair(2, 3)], 99)
    without = Batch(ids=batch.ids, mask=batch.mask)
    assert torch.equal(single.encoder(batch).top, single.encoder(without).top)


def test_a_temperature_passes_over_options_that_are_not_there() -> None:
    generator = np.random.default_rng(0)
    logits = generator.normal(size=(200, 3)) * 4
    targets = (logits + generator.gumbel(size=(200, 3))).argmax(1)
    known = fit_temperature(logits, targets, "choice")
    padded = np.concatenate([logits, np.full((200, 1), -np.inf)], axis=1)
    assert fit_temperature(padded, targets, "choice") == pytest.approx(known, rel=1e-3)
    assert known == pytest.approx(1, abs=0.25)


def test_pair_rows_by_hand() -> None:
    texts = [Pair("a b c", "b c d"), Pair("b d", "b d"), Pair("c d a", "b"), Pair("a", "")]
    ngrams = Ngrams(characters=False, max_features=100, min_df=1)
    rows = PairNgrams(ngrams).fit(texts)
    found = rows.transform(texts).toarray()
    width = ngrams.width
    first = ngrams.transform([t.first for t in texts]).toarray()
    second = ngrams.transform([t.second for t in texts]).toarray()
    expected = np.concatenate([first, second, np.minimum(first, second), second * (first == 0)], axis=1)
    np.testing.assert_allclose(found[:, : 4 * width], expected, rtol=1e-6)
    assert found.shape[1] == rows.width == 4 * width + MEASURES
    for row in range(4):
        a, b = set(np.flatnonzero(first[row])), set(np.flatnonzero(second[row]))
        measures = [float(first[row] @ second[row]), len(a & b) / max(1, len(a)), len(a & b) / max(1, len(b))]
        measures += [len(a & b) / max(1, len(a | b)), np.log((len(a) + 1) / (len(b) + 1))]
        np.testing.assert_allclose(found[row, 4 * width :], measures, rtol=1e-5, atol=1e-7)
    again = PairNgrams.from_state(rows.state())
    assert (again.transform(texts) != rows.transform(texts)).nnz == 0
    with pytest.raises(UserError, match="got a single text"):
        rows.transform(["a b"])


def test_a_linear_classifier_of_pairs_is_saved_and_loaded(tmp_path: Path) -> None:
    pairs = [Pair(f"a b {n}", f"{'a b' if n % 2 else 'c d'} {n}") for n in range(20)]
    examples = Examples(pairs, [("no", "yes")[n % 2] for n in range(20)], "single")
    labels = Labels.fit(examples)
    fitted = LinearBaseline().fit(pairs, labels.encode(examples), num_classes=2).fitted
    made = LinearArtifact(fitted, labels, {"name": "pairs", "reads": "pairs"})
    answers = made.outputs(pairs)
    assert answers.argmax(axis=1).tolist() == labels.encode(examples).tolist()
    loaded = loading.open_model(artifact.save(made, tmp_path / "model"))
    np.testing.assert_array_equal(loaded.outputs(pairs), answers)
    with pytest.raises(UserError, match="got a single text"):
        loaded.outputs(["a b"])


def test_simple_ways_to_choose() -> None:
    texts = [Choice("the cat sat", ["a dog", "the cat"]), Choice("a dog ran", ["the dog ran", "cats", "mat"])] * 5
    targets = np.array([1, 0] * 5)
    usual = FrequentPosition().fit(texts[:9], targets[:9]).predict_proba([*texts[:2], Choice("c", "abcd")])
    np.testing.assert_allclose(usual[0, :2], np.array([5, 6]) / 11)  # the second was right five times of nine
    assert usual[0, 2:].tolist() == [0, 0]
    np.testing.assert_allclose(usual.sum(axis=1), 1)
    overlap = WordOverlap().fit(texts, targets)
    answers = overlap.predict_proba(texts)
    assert answers.argmax(axis=1).tolist() == targets.tolist()
    np.testing.assert_allclose(answers.sum(axis=1), 1)
    assert answers[0, 2] == 0
    swapped = overlap.predict_proba([Choice("the cat sat", ["the cat", "a dog"])])
    np.testing.assert_allclose(swapped[0], answers[0, 1::-1])
    with pytest.raises(UserError, match="no options to choose from"):
        overlap.predict_proba(["the cat"])
