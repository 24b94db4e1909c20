"""The n-gram reference of research/ against dictionaries filled straight from the formulas."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from textgraft.data.streams.shards import Corpus
from textgraft.text.tokenizer import Tokenizer

RESEARCH = Path(__file__).parents[2] / "research"
BOS, V = 2, 12


@pytest.fixture(scope="module", autouse=True)
def script_imports() -> Iterator[None]:
    before = set(sys.modules)
    sys.path.insert(0, str(RESEARCH))
    yield
    sys.path.remove(str(RESEARCH))
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(RESEARCH)):
            del sys.modules[name]


@pytest.fixture
def ngrams(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    import ngrams

    return ngrams


class Oracle:
    """Chen & Goodman's equations 24 to 27 with dictionaries; a document's start is no part of what follows another."""

    def __init__(self, train: list[int], order: int) -> None:
        self.order = order
        raw: dict[int, Counter[tuple[int, ...]]] = {n: Counter() for n in range(1, order + 1)}
        for n in raw:
            for i in range(len(train) - n + 1):
                gram = tuple(train[i : i + n])
                raw[n][gram] += BOS not in gram[1:-1]
        self.counts: dict[int, dict[tuple[int, ...], int]] = {order: {g: c for g, c in raw[order].items() if c}}
        for n in range(1, order):
            before = Counter(gram[1:] for gram, count in raw[n + 1].items() if count)
            starts = {g: c for g, c in raw[n].items() if c and not before[g]} if n > 1 else {}
            self.counts[n] = {**before, **starts}
        self.discounts = {n: self._discounts(list(self.counts[n].values())) for n in self.counts}
        self.children: dict[tuple[int, ...], dict[int, int]] = defaultdict(dict)
        for counts in self.counts.values():
            for gram, count in counts.items():
                self.children[gram[:-1]][gram[-1]] = count

    @staticmethod
    def _discounts(counts: list[int]) -> list[float]:
        t = [0, *(counts.count(k) for k in (1, 2, 3, 4))]
        found = [0.5, 1.0, 1.5]
        if all(t[1:]):
            y = t[1] / (t[1] + 2 * t[2])
            exact = [k - (k + 1) * y * t[k + 1] / t[k] for k in (1, 2, 3)]
            found = exact if all(0 < d < k for d, k in zip(exact, (1, 2, 3))) else found
        return found

    def probability(self, history: list[int], token: int) -> float:
        known = history[-self.order + 1 :] if self.order > 1 else []
        last = max((i for i, w in enumerate(known) if w == BOS), default=0)
        return self._interpolated(tuple(known[last:]), token)

    def _interpolated(self, context: tuple[int, ...], token: int) -> float:
        lower = self._interpolated(context[1:], token) if context else 1.0 / V
        children = self.children.get(context)
        if not children:
            return lower
        d, total = self.discounts[len(context) + 1], sum(children.values())

        def taken(count: int) -> float:
            return d[min(count, 3) - 1] if count else 0.0

        count = children.get(token, 0)
        return (count - taken(count)) / total + sum(map(taken, children.values())) / total * lower


def sample(seed: int, length: int) -> list[int]:
    """Tokens 2 to 9 of Zipf's law that like to follow each other, in documents of some ten."""
    generator = np.random.default_rng(seed)
    text = [BOS]
    for _ in range(length):
        follows = generator.random() < 0.5
        text.append((text[-1] * 3) % 7 + 3 if follows else int(min(9, 1 + generator.zipf(1.5))))
    return text


@pytest.mark.parametrize("order", [1, 2, 3, 5])
@pytest.mark.parametrize("at_once", [7, 10_000])
def test_equals_the_formulas(ngrams: ModuleType, monkeypatch: pytest.MonkeyPatch, order: int, at_once: int) -> None:
    monkeypatch.setattr(ngrams, "PASS_TOKENS", at_once)
    train, held = sample(0, 900), np.array([sample(seed, 99) for seed in (1, 2, 3)])
    held[1, 5:9] = 10  # never seen in training
    oracle = Oracle(train, order)
    found = ngrams.log_probabilities(
        np.array(train, dtype=np.uint16), held.astype(np.uint16), vocab_size=V, bos_id=BOS, order=order
    )
    wanted = [[oracle.probability(row[:i], row[i]) for i in range(len(row))] for row in held.tolist()]
    assert np.abs(np.exp(found) - wanted).max() < 1e-10
    assert np.array([abs(np.log(p) - q) for p, q in zip(np.ravel(wanted), found.ravel())]).max() < 1e-10


@settings(max_examples=60)
@given(
    train=st.lists(st.integers(2, 5), min_size=2, max_size=40),
    history=st.lists(st.integers(2, 6), max_size=5),
    order=st.integers(1, 4),
)
def test_sums_to_one_whatever_was_and_was_not_seen(train: list[int], history: list[int], order: int) -> None:
    from ngrams import log_probabilities

    held = np.array([[*history, token] for token in range(V)])
    found = log_probabilities(np.array(train), held, vocab_size=V, bos_id=BOS, order=order)[:, -1]
    assert abs(np.exp(found).sum() - 1) < 1e-10
    assert np.isfinite(found).all()
    oracle = Oracle(train, order)
    assert np.allclose(np.exp(found), [oracle.probability(history, token) for token in range(V)], rtol=0, atol=1e-10)


def test_sums_to_one_after_seen_and_unseen_contexts(ngrams: ModuleType) -> None:
    train = sample(4, 2000)
    for history in (train[10:14], train[500:503], [10, 10, 10, 10], [*train[20:22], 10, 3], [3, BOS], []):
        held = np.array([[*history, token] for token in range(V)])
        found = ngrams.log_probabilities(np.array(train), held, vocab_size=V, bos_id=BOS)
        assert abs(np.exp(found[:, -1]).sum() - 1) < 1e-10


def test_discounts_are_those_of_the_paper(ngrams: ModuleType) -> None:
    counts = np.repeat([1, 2, 3, 4, 9], [40, 12, 6, 3, 5])
    y = 40 / (40 + 2 * 12)
    wanted = (1 - 2 * y * 12 / 40, 2 - 3 * y * 6 / 12, 3 - 4 * y * 3 / 6)
    assert ngrams.discounts(counts) == pytest.approx(wanted, abs=1e-12)
    assert ngrams.discounts(counts[counts != 3]) == ngrams.FALLBACK
    assert ngrams.discounts(np.repeat([1, 2, 3, 4], [1, 2, 9, 50])) == ngrams.FALLBACK  # D2 would be below 0


def test_a_document_does_not_know_the_one_before(ngrams: ModuleType) -> None:
    train = np.array(sample(5, 500))
    alone, after = np.array([[9, BOS, 4, 5]]), np.array([[3, BOS, 4, 5]])
    one, other = (
        ngrams.log_probabilities(train, held, vocab_size=V, bos_id=BOS)[0, 2:].tolist() for held in (alone, after)
    )
    assert one == other


def test_too_little_to_count(ngrams: ModuleType) -> None:
    with pytest.raises(ValueError, match="two tokens"):
        ngrams.log_probabilities(np.array([BOS]), np.array([[BOS, 3]]), vocab_size=V, bos_id=BOS)


def test_figures_are_normalised_as_a_language_models() -> None:
    """Trained on a token that never comes, all others cost the same, and the other figures follow from that."""
    from kneser_ney import n_gram_scores

    tokenizer = Tokenizer.train(["some words and some more"], kind="word", min_frequency=1)
    ids = [np.array([2, *np.random.default_rng(k).integers(9, tokenizer.vocab_size, 50)]) for k in range(70)]
    held = Corpus.from_ids(ids, tokenizer, words=1234, characters=9876)
    train = np.array([1, 1], dtype=np.uint16)
    found = n_gram_scores(train, held, vocab_size=tokenizer.vocab_size, bos_id=2, order=1)
    # Of the count of 2, D2 = 1 is left to the uniform distribution.
    assert found["loss"] == pytest.approx(-np.log(0.5 / tokenizer.vocab_size))
    assert found["bits_per_character"] == pytest.approx(found["loss"] / np.log(2) * held.num_tokens / 9876)
    assert np.log(found["perplexity_per_word"]) == pytest.approx(found["loss"] * held.num_tokens / 1234)
