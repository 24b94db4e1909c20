"""Explanations by leaving words out, held to classifiers of which the right ones are known."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

import pytest
from adding_classifier import BIAS, WEIGHTS, Adding
from hypothesis import given
from hypothesis import strategies as st

from textgraft.core.errors import UserError
from textgraft.data.examples import Choice, Pair
from textgraft.tasks.classification.explaining import Explanation, Part, explain, removable_spans, without
from textgraft.tasks.classification.explanation_page import explanations_page
from textgraft.tasks.classification.predictor import Classifier, Prediction


def explained(model: Adding, texts: Iterable[str], label: str | None = None, most: int = 300) -> Iterator[Explanation]:
    return explain(Classifier([model]), texts, label=label, most=most)


@given(st.lists(st.sampled_from(sorted(WEIGHTS)), min_size=1, max_size=6))  # within LEAST_CHANCE, whatever they are
def test_what_adds_up_is_found_exactly(words: list[str]) -> None:
    text = " ".join(words)
    for label, sign in (("pos", 1), ("neg", -1)):
        (one,) = explained(Adding(), [text], label)
        assert [one.text_of(part) for part in one.parts] == words
        assert [part.weight for part in one.parts] == pytest.approx([sign * WEIGHTS[w] for w in words], abs=1e-6)
        total = BIAS + sum(WEIGHTS[word] for word in words)
        assert one.answer == pytest.approx(1 / (1 + math.exp(-sign * total)))


def test_without_a_label_the_likeliest_is_explained() -> None:
    fine, dull = explained(Adding(), ["a fine film", "a dull film"])
    assert (fine.label, dull.label) == ("pos", "neg")
    assert fine.text_of(fine.ranked()[0]) == "fine"
    assert dull.ranked()[0].weight == pytest.approx(2.0)


def test_numbers_are_explained_in_their_own_unit() -> None:
    (one,) = explained(Adding("numeric"), ["good plot"])
    assert (one.label, one.answer) == (None, pytest.approx(10 + 2 * (BIAS + 1.0)))
    assert [part.weight for part in one.parts] == pytest.approx([1.5, 0.5])
    with pytest.raises(UserError, match="has no labels"):
        list(explained(Adding("numeric"), ["good"], "pos"))


def test_both_sides_of_a_pair_are_explained() -> None:
    (one,) = explained(Adding(reads="pairs"), [Pair("a fine film", "dull, good")])
    assert [(one.text_of(part), part.side) for part in one.parts] == [
        *(("a", 0), ("fine", 0), ("film", 0)),
        *(("dull", 1), (",", 1), ("good", 1)),
    ]
    assert [part.weight for part in one.parts] == pytest.approx([0, 1.5, 0, -2, 0, 0.75])


@pytest.mark.parametrize(
    ("text", "stretch", "left"),
    [
        ("a fine film", (0, 2, 6), "a film"),
        ("fine film", (0, 0, 4), "film"),
        ("a fine", (0, 2, 6), "a "),
        ("fine, film", (0, 0, 4), ", film"),
        ("fine", (0, 0, 4), ""),
        ("หนังดีมาก", (0, 4, 6), "หนังมาก"),
        (Pair("a b", "c d"), (1, 0, 1), Pair("a b", "d")),
    ],
)
def test_a_word_leaves_no_trace(text: str, stretch: tuple[int, int, int], left: str) -> None:
    found = without(text, stretch)
    assert (found, type(found)) == (left, type(left))


def test_long_texts_lose_sentences_and_longer_ones_several() -> None:
    text = " ".join(f"This is the {i} fine sentence." for i in range(10))
    words, sentences, joined = (removable_spans(text, most) for most in (100, 20, 3))
    assert (len(words), len(sentences), len(joined)) == (70, 10, 3)  # full stops are words
    for found in (words, sentences, joined):
        left = text
        for stretch in reversed(found):
            left = without(left, stretch)
        assert not left.strip()
        assert all(a[2] <= b[1] for a, b in pairwise(found))
    assert len(removable_spans(Pair(text, text), 3)) <= 4


def test_each_text_is_read_once_more_than_it_has_words() -> None:
    model = Adding()
    next(explained(model, iter(["a fine film", "never asked"])))
    assert model.asked == ["a fine film", "fine film", "a film", "a fine "]


def test_what_cannot_be_explained_is_said() -> None:
    with pytest.raises(UserError, match="questions with options"):
        removable_spans(Choice("a", ["b", "c"]))
    with pytest.raises(UserError, match=r"no label 'poss'.*Did you mean 'pos'"):
        list(explained(Adding(), ["fine"], "poss"))


def test_empty_and_certain_texts() -> None:
    assert next(explained(Adding(), [""])).parts == ()
    (sure,) = explained(Adding(), ["fine " * 400], most=1000)
    assert all(math.isfinite(part.weight) for part in sure.parts)
    assert sure.answer == pytest.approx(1.0)


def test_the_page_shows_the_text_and_what_speaks_which_way() -> None:
    text = "a <b>fine</b> dull film"
    page = "".join(explanations_page(explained(Adding(), [text], "pos")))
    assert "<h2>pos, 40.1 %</h2>" in page
    assert "<b>" not in page
    dark = 'background: color-mix(in srgb, var(--bad) 70%, transparent); color: inherit" title="-2.00">dull</mark>'
    assert dark in page
    assert re.search(r'var\(--good\) 5[23]%, transparent\); color: inherit" title="\+1\.50">fine</mark>', page)
    plain = re.sub(r"<[^>]+>", "", page.partition('<p class="text" dir="auto">')[2].partition("</p>")[0])
    assert plain == text.replace("<", "&lt;").replace(">", "&gt;")


def test_the_answers_are_those_of_predict() -> None:
    model = Classifier([Adding()])
    prediction: Prediction = next(model.predict(["good plot"]))
    one = next(explain(model, ["good plot"]))
    assert (one.label, one.answer) == (prediction.label, prediction.confidence)
    assert one.parts[0] == Part(0, 4, pytest.approx(0.75))
