"""Scores of tags beside what conlleval and seqeval make of them, by hand and at random."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from textgraft.core.errors import UserError
from textgraft.data.tags import entities, strict_entities
from textgraft.metrics.tagging import Ratio, paired_ratio_test, score_tags
from textgraft.tasks.tagging.baseline import frequent_tags


def conlleval(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> tuple[int, int, int]:
    """Gold, guessed and right chunks, by the rules of the script, a word at a time with a sentence's end between."""

    def ends(before: tuple[str, str], now: tuple[str, str]) -> bool:
        (p, kind), (q, other) = before, now
        return (p in "BI" and q in "BSO") or p in "ES" or (p != "O" and kind != other)

    def starts(before: tuple[str, str], now: tuple[str, str]) -> bool:
        (p, kind), (q, other) = before, now
        return q in "BS" or (p in "ESO" and q in "EI") or (q != "O" and kind != other)

    def cut(tag: str) -> tuple[str, str]:
        place, _, kind = tag.partition("-")
        return place, kind

    found = [0, 0, 0]
    inside = False
    last = last_guess = ("O", "")
    pairs = [pair for a, b in zip(gold, predicted, strict=True) for pair in [*zip(a, b, strict=True), ("O", "O")]]
    for true, guess in pairs:
        now, now_guess = cut(true), cut(guess)
        if inside:
            over, over_guess = ends(last, now), ends(last_guess, now_guess)
            if over and over_guess and last[1] == last_guess[1]:
                inside, found[2] = False, found[2] + 1
            elif over != over_guess or now[1] != now_guess[1]:
                inside = False
        begun, begun_guess = starts(last, now), starts(last_guess, now_guess)
        if begun and begun_guess and now[1] == now_guess[1]:
            inside = True
        found[0] += begun
        found[1] += begun_guess
        last, last_guess = now, now_guess
    return found[0], found[1], found[2]


def at_random(seed: int, places: str) -> list[list[str]]:
    generator = random.Random(seed)
    tags = ["O", "O", *(f"{p}-{t}" for p in places for t in "xy")]
    return [[generator.choice(tags) for _ in range(n)] for n in (1, 7, 12, 3, 9, 20)]


def counts(gold: Any, predicted: Any, scheme: Any, reading: Any) -> tuple[int, int, int]:
    found = score_tags(gold, predicted, scheme, reading=reading)
    return int(found.gold.sum()), int(found.predicted.sum()), int(found.hits.sum())


def half_right(gold: list[list[str]], seed: int, places: str) -> list[list[str]]:
    others, generator = at_random(seed + 1000, places), random.Random(seed)
    return [[a if generator.random() < 0.7 else b for a, b in zip(x, y)] for x, y in zip(gold, others)]


@pytest.mark.parametrize(("scheme", "places"), [("IOB2", "BI"), ("IOB1", "BI"), ("BIOES", "BIES")])
@pytest.mark.parametrize("seed", range(25))
def test_counts_as_conlleval_does(seed: int, scheme: str, places: str) -> None:
    gold = at_random(seed, places)
    predicted = half_right(gold, seed, places)
    assert counts(gold, predicted, scheme, "conlleval") == conlleval(gold, predicted)


@pytest.mark.parametrize(("scheme", "places", "theirs"), [("IOB2", "BI", "IOB2"), ("BIOES", "BIES", "IOBES")])
@pytest.mark.parametrize("seed", range(25))
def test_counts_as_seqeval_strict_does(seed: int, scheme: str, places: str, theirs: str) -> None:
    pytest.importorskip("seqeval")
    from seqeval import scheme as schemes
    from seqeval.metrics.v1 import precision_recall_fscore_support

    gold = at_random(seed, places)
    predicted = half_right(gold, seed, places)
    found = score_tags(gold, predicted, scheme, reading="strict")
    options = {"scheme": getattr(schemes, theirs), "zero_division": 0}
    micro = precision_recall_fscore_support(gold, predicted, average="micro", **options)
    ours = [found.ratio(name).value or 0.0 for name in ("precision", "recall", "f1")]
    assert ours == pytest.approx(micro[:3])
    each = precision_recall_fscore_support(gold, predicted, average=None, **options)
    rows = found.of_types()
    assert sorted(rows) == found.types
    for k, name in enumerate(found.types):
        row = [rows[name][metric] or 0.0 for metric in ("precision", "recall", "f1")]
        assert row == pytest.approx([column[k] for column in each[:3]])
        assert rows[name]["support"] == each[3][k]


def test_by_hand() -> None:
    gold = [["B-x", "I-x", "O", "B-y"], ["O", "B-x"]]
    predicted = [["B-x", "I-x", "O", "B-x"], ["B-y", "I-y"]]
    found = score_tags(gold, predicted, "IOB2")
    assert [found.ratio(m).value for m in ("precision", "recall", "f1", "accuracy")] == [1 / 3, 1 / 3, 1 / 3, 0.5]
    assert found.of_types()["y"] == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 1}
    summary = found.summary()
    assert (summary["sentences"], summary["words"]) == (2, 6)
    plain = score_tags([["N", "V"], ["N"]], [["N", "N"], ["N"]], "plain").summary()
    assert plain.keys() == {"sentences", "words", "accuracy"}
    assert plain["accuracy"]["mean"] == 2 / 3


def test_illegal_tags_are_read_as_asked() -> None:
    stray = ["O", "I-x", "I-x", "I-y"]
    assert [e[:] for e in entities(stray)] == [("x", 1, 2), ("y", 3, 3)]
    assert strict_entities(stray, "IOB2") == []
    assert strict_entities(["B-x", "I-x", "O"], "BIOES") == []
    assert [e[:] for e in strict_entities(["B-x", "B-x", "E-x", "S-y"], "BIOES")] == [("x", 1, 2), ("y", 3, 3)]


def test_intervals_hold_the_value_and_shrink_with_sentences() -> None:
    generator = np.random.default_rng(0)

    def width(count: int) -> float:
        whole = generator.integers(0, 4, count)
        ratio = Ratio(generator.binomial(whole, 0.6), whole)
        found = ratio.interval()
        assert found is not None
        assert found.mean == ratio.value
        assert found.low < found.mean < found.high
        assert found == ratio.interval()
        return found.high - found.low

    assert width(1600) < 0.5 * width(100)
    perfect = Ratio(np.array([1, 0, 2]), np.array([1, 0, 2])).interval()
    assert perfect is not None
    assert (perfect.low, perfect.high) == (pytest.approx(0.025 ** (1 / 2)), 1.0)
    assert Ratio(np.zeros(2), np.zeros(2)).interval() is None


def test_an_interval_covers_the_truth_as_often_as_it_says() -> None:
    generator = np.random.default_rng(1)
    held = 0
    for _ in range(200):
        whole = generator.integers(1, 5, 80)
        found = Ratio(generator.binomial(whole, 0.7), whole).interval(resamples=300)
        assert found is not None
        held += found.low <= 0.7 <= found.high
    assert 178 <= held <= 200


def test_swaps_find_a_difference_and_no_other() -> None:
    whole = np.full(60, 4)
    good, same = Ratio(np.full(60, 3), whole), Ratio(np.tile([2, 4, 3], 20), whole)
    bad = Ratio(np.full(60, 2), whole)
    assert paired_ratio_test(good, bad).p < 0.001
    assert paired_ratio_test(good, bad).difference == 0.25
    assert paired_ratio_test(good, same).p == 1.0
    with pytest.raises(ValueError, match="without a whole"):
        paired_ratio_test(good, Ratio(np.zeros(60), np.zeros(60)))


def test_swaps_give_the_share_of_all_swaps() -> None:
    a, b = Ratio(np.array([3, 2, 0]), np.array([3, 4, 2])), Ratio(np.array([1, 2, 1]), np.array([4, 3, 2]))
    observed, extreme = abs(5 / 9 - 4 / 9), 0
    for swaps in itertools.product([False, True], repeat=3):
        parts = [(b, a) if s else (a, b) for s in swaps]
        sums = [
            sum(int(getattr(pair[k], f)[i]) for i, pair in enumerate(parts)) for k in (0, 1) for f in ("part", "whole")
        ]
        extreme += abs(sums[0] / sums[1] - sums[2] / sums[3]) >= observed - 1e-12
    assert paired_ratio_test(a, b, draws=20_000).p == pytest.approx(extreme / 8, abs=0.02)


def test_nothing_to_measure() -> None:
    with pytest.raises(UserError, match="contain no entity"):
        score_tags([["O"]], [["B-x"]], "IOB2")
    with pytest.raises(UserError, match="no sentences to evaluate"):
        score_tags([], [], "plain")


def test_the_baseline_gives_each_word_its_most_frequent_tag() -> None:
    words, tags = [["a", "b", "a"], ["b", "c"]], [["X", "Y", "X"], ["Z", "Z"]]
    assert frequent_tags(words, tags, [["a", "b", "c", "new"]], "plain") == [["X", "Y", "Z", "X"]]
    names = [["B-x", "I-x", "O"], ["I-x", "O"]]
    assert frequent_tags(words, names, [["b", "b", "new", "b"]], "IOB2") == [["B-x", "I-x", "O", "B-x"]]
