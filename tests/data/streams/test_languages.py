"""Languages in smoothed shares: the formula, the tokenizer's sample, the mixed corpus."""

from __future__ import annotations

import math
import random
from collections import Counter
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from textgraft.data.streams.base import LanguageModelStream
from textgraft.data.streams.languages import MAX_REPEATS, Mixture, repeats, sample, smoothed_shares
from textgraft.data.streams.masking import MaskedStream, MaskingTokens
from textgraft.data.streams.shards import Corpus
from textgraft.text.tokenizer import Tokenizer

SIZES = st.dictionaries(st.sampled_from(["de", "en", "is", "th", "zh"]), st.integers(1, 10**9), min_size=1)
EXPONENTS = st.floats(0, 1)
TOKENIZER = Tokenizer.train(["a b c d e f g h i j k l m n o p q r s t u v w x"], kind="word", min_frequency=1)


@given(SIZES, EXPONENTS)
def test_shares_are_the_formula(sizes: dict[str, int], exponent: float) -> None:
    shares = smoothed_shares(sizes, exponent)
    assert shares.keys() == sizes.keys()
    assert sum(shares.values()) == pytest.approx(1)
    for one, n in sizes.items():
        for other, k in sizes.items():
            assert shares[one] / shares[other] == pytest.approx((n / k) ** exponent, rel=1e-9)
            assert n < k or shares[one] >= shares[other] * (1 - 1e-12)  # more text is never read less


@given(SIZES, EXPONENTS)
def test_nothing_is_left_out_and_nothing_is_read_too_often(sizes: dict[str, int], exponent: float) -> None:
    found, shares, largest = repeats(sizes, exponent), smoothed_shares(sizes, exponent), max(sizes.values())
    for language, size in sizes.items():
        assert 1 - 1e-9 <= found[language] <= MAX_REPEATS
        expected = (largest / size) ** (1 - exponent)
        assert found[language] == pytest.approx(min(MAX_REPEATS, expected), rel=1e-6)
    if max((largest / size) ** (1 - exponent) for size in sizes.values()) < MAX_REPEATS:
        read = {language: times * sizes[language] for language, times in found.items()}
        whole = sum(read.values())
        assert all(read[name] / whole == pytest.approx(share, rel=1e-6) for name, share in shares.items())


def test_a_thousand_times_smaller_is_a_hundred_and_twenty_six_times_rarer() -> None:
    """BERT's own example: 'English would be sampled 1000x more than Icelandic; after smoothing only 100x'."""
    shares = smoothed_shares({"en": 1_000_000_000, "is": 1_000_000}, 0.7)
    assert shares["en"] / shares["is"] == pytest.approx(1000**0.7)
    assert repeats({"en": 1_000_000_000, "is": 1_000_000}, 0.7) == pytest.approx({"en": 1.0, "is": 1000**0.3})


def texts(count: int, letters: str, seed: int) -> list[str]:
    generator = random.Random(seed)
    return ["".join(generator.choices(letters, k=generator.randint(1, 40))) for _ in range(count)]


RATES = st.floats(0.05, 5)


@settings(max_examples=60)
@given(st.integers(1, 80), st.integers(1, 80), RATES, RATES)
def test_a_sample_has_its_rates_to_within_a_text(count: int, other: int, rate: float, other_rate: float) -> None:
    found = {"x": texts(count, "xyz", count), "ก": texts(other, "กขค", other)}
    rates = {"x": rate, "ก": other_rate}
    sizes = {name: sum(map(len, some)) for name, some in found.items()}
    stream = list(sample(found, sizes, rates))
    for name, some in found.items():
        mine = [text for text in stream if text[0] in "xyz"] if name == "x" else [t for t in stream if t[0] in "กขค"]
        assert abs(sum(map(len, mine)) - rates[name] * sizes[name]) <= 20
        counted = Counter(mine)
        times = Counter(some)
        assert all(counted[text] <= times[text] * math.ceil(rates[name]) for text in counted)
        assert set(mine) <= set(some)
    assert stream == list(sample(found, sizes, rates))


def test_any_beginning_of_a_sample_has_all_languages_in_their_shares() -> None:
    found = {"th": texts(200, "กขค", 1), "en": texts(2000, "abc", 2)}
    sizes = {name: sum(map(len, some)) for name, some in found.items()}
    rates = repeats(sizes, 0.7)
    target = smoothed_shares(sizes, 0.7)["th"]
    for length in (100, 500, 1500):
        beginning = list(islice(sample(found, sizes, rates), length))
        thai = sum(len(text) for text in beginning if text[0] in "กขค")
        whole = sum(map(len, beginning))
        assert thai / whole == pytest.approx(target, abs=160 / whole)


def corpus(documents: int, seed: int, low: int, high: int) -> Corpus:
    """Documents of one to thirty ids from low to high, each beginning with the id 2."""
    generator = np.random.default_rng(seed)
    ids = [np.append(2, generator.integers(low, high, generator.integers(0, 30))) for _ in range(documents)]
    return Corpus.from_ids(ids, TOKENIZER, words=10 * documents, characters=50 * documents)


def documents_of(source: Corpus | Mixture) -> list[tuple[int, ...]]:
    ends = np.append(source.document_starts[1:], source.num_tokens)
    return [tuple(source.read(a, b).tolist()) for a, b in zip(source.document_starts.tolist(), ends.tolist())]


@settings(max_examples=60)
@given(st.integers(1, 40), st.integers(1, 40), st.floats(1, 6), st.integers(0, 5))
def test_a_mixture_is_its_corpora_as_often_as_asked(one: int, other: int, rate: float, seed: int) -> None:
    corpora = [corpus(one, 1, 10, 20), corpus(other, 2, 20, 30)]
    mixed = Mixture(corpora, [1.0, rate], seed=seed)
    found = Counter(documents_of(mixed))
    for source, times in zip(corpora, (1.0, rate)):
        for document, count in Counter(documents_of(source)).items():
            if len(document) > 1:  # shorter ones are in both
                assert count * int(times) <= found[document] <= count * (int(times) + 1)
    tokens = [source.num_tokens for source in corpora]
    assert mixed.tokens_of[0] == tokens[0]
    assert abs(mixed.tokens_of[1] - rate * tokens[1]) <= 15.5
    assert mixed.num_tokens == sum(mixed.tokens_of) == sum(len(d) * n for d, n in found.items())
    assert mixed.num_words == pytest.approx(
        sum(c.num_words * t / c.num_tokens for c, t in zip(corpora, mixed.tokens_of)), abs=1
    )
    again = Mixture(corpora, [1.0, rate], seed=seed)
    assert np.array_equal(again.read(0, again.num_tokens), mixed.read(0, mixed.num_tokens))


@settings(max_examples=100)
@given(st.data())
def test_any_stretch_of_a_mixture_is_that_of_its_documents(data: st.DataObject) -> None:
    mixed = Mixture([corpus(7, 1, 10, 20), corpus(4, 2, 20, 30)], [1.0, 2.4], seed=1)
    whole = np.array([token for document in documents_of(mixed) for token in document])
    start = data.draw(st.integers(0, mixed.num_tokens))
    stop = data.draw(st.integers(start, mixed.num_tokens))
    found = mixed.read(start, stop)
    assert np.array_equal(found, whole[start:stop])
    assert found.dtype == np.uint16


@pytest.mark.parametrize(("start", "stop"), [(-1, 3), (3, 2), (0, 10**6)])
def test_outside_of_a_mixture_there_is_nothing(start: int, stop: int) -> None:
    with pytest.raises(IndexError):
        Mixture([corpus(3, 1, 10, 20)], [1.0], seed=0).read(start, stop)


def test_languages_lie_mixed_and_another_seed_mixes_them_otherwise() -> None:
    corpora = [corpus(300, 1, 10, 20), corpus(300, 2, 20, 30)]
    mixed, other = (Mixture(corpora, [1.0, 1.0], seed=seed) for seed in (0, 1))
    for first in range(0, mixed.num_tokens - 1000, 1000):
        part = mixed.read(first, first + 1000)
        share = (part >= 20).sum() / (part >= 10).sum()
        assert 0.25 < share < 0.75
    assert not np.array_equal(mixed.read(0, 1000), other.read(0, 1000))


def test_streams_read_a_mixture_like_a_corpus() -> None:
    mixed = Mixture([corpus(60, 1, 10, 20), corpus(20, 2, 20, 30)], [1.0, 2.5], seed=0)
    batches = list(LanguageModelStream(mixed, rows=4, bptt=10, seed=0).batches(0))
    read = sum(int(batch.mask.sum()) for batch in batches)
    assert mixed.num_tokens - 5 <= read <= mixed.num_tokens
    tokens = MaskingTokens(0, 1, 2, 3, special=np.arange(30) < 4, continues=np.zeros(30, dtype=bool))
    masked = MaskedStream(mixed, tokens, length=16, rows=4, pairs=True)
    assert all(batch.mask.any() for batch in masked.batches(0))
