"""Questions and contexts as windows: every token leads back to its characters, whatever the tokenizer."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from textgraft.core.errors import UserError
from textgraft.data.sequences import Direction
from textgraft.data.squad import Answer, Question
from textgraft.data.streams.windows import WindowStream, window_batches
from textgraft.data.windows import (
    NO_ANSWER,
    WindowSettings,
    answer_tokens,
    encode_questions,
    most_context,
    stretches,
    tokenize,
)
from textgraft.text import wordpiece
from textgraft.text.tokenizer import Tokenizer
from textgraft.text.visible import visible

TEXTS = [
    "The TOWER is 330 metres tall; it was built in 1889, and painted (again!) in 1892.",
    "Der Turm an der Isar heißt „Löwenturm“ und ist älter als das Straßenfest.",
    "หอคอยสูง 330 เมตร สร้างเมื่อปี 1889 และทาสีใหม่ในปี 1892",
    "soooo tall, tall tall tall tall — 👩‍👩‍👧 café über naïve\n\n  two  spaces",
]
TOKENIZERS = ("wordpiece", "unigram", "bpe", "word", "byte_level")
DIRECTIONS: tuple[Direction, ...] = ("both", "left", "right")


@cache
def tokenizer(name: str) -> Tokenizer:
    if name == "wordpiece":
        return wordpiece.train(TEXTS * 3, vocab_size=220)
    if name == "word":
        return Tokenizer.train(TEXTS * 3, kind="word")
    if name == "byte_level":
        return Tokenizer.train(TEXTS * 3, model="byte_level", vocab_size=320)
    return Tokenizer.train(TEXTS * 3, model="unigram" if name == "unigram" else "bpe", vocab_size=150)


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("text", [*TEXTS, "", "   ", "x"])
def test_tokens_cover_every_visible_character_in_order(name: str, text: str) -> None:
    read = tokenize(tokenizer(name), text)
    assert len(read.ids) == len(read.spans)
    covered = np.zeros(len(text), dtype=bool)
    for start, end in read.spans:
        assert 0 <= start <= end <= len(text)
        assert text[start:end] == text[start:end].strip()
        covered[start:end] = True
    if name != "word":  # which makes one token of what is said again and again
        assert all(covered[i] for i, c in enumerate(text) if not c.isspace() and c != "\u200d"), text
    assert (np.diff(read.spans[:, 0]) >= 0).all()


words = st.text(st.sampled_from("abe TH.,éäก็ม 12\n"), max_size=60)


@settings(max_examples=80)
@given(context=words, question=words, name=st.sampled_from(TOKENIZERS), direction=st.sampled_from(DIRECTIONS))
@example(context="", question="", name="byte_level", direction="left")
@example(context=" \n ", question="a", name="wordpiece", direction="both")
def test_every_window_leads_back_to_the_characters(
    context: str, question: str, name: str, direction: Direction
) -> None:
    """Ids, spans and positions of all windows are those of the context read in one piece, and nothing is left out."""
    made, limits = tokenizer(name), WindowSettings(max_tokens=16, stride=4, max_question=6)
    windows = encode_questions([(context, Question("q", question))], made, limits, direction=direction)
    whole, asked = tokenize(made, context), tokenize(made, question).ids[:6]
    owners = np.zeros(len(whole.ids), dtype=int)
    for window in windows:
        assert len(window.ids) <= 16
        inside = slice(window.first, window.first + len(window.spans))
        piece = slice(window.start, window.start + len(window.spans))
        assert window.ids[inside].tolist() == whole.ids[piece].tolist()
        assert np.array_equal(window.spans, whole.spans[piece])
        begin = window.second if direction == "right" else 1
        assert window.ids[begin : begin + len(asked)].tolist() == asked.tolist()
        rest = np.ones(len(window.ids), dtype=bool)
        rest[inside] = rest[begin : begin + len(asked)] = False
        assert window.ids[rest].tolist() == [made.bos_id, *made.pair_marks.between, made.eos_id]
        assert rest[[0, window.second - 1, len(window.ids) - 1]].all()
        assert np.flatnonzero(window.answerable).tolist() == [
            window.first + i for i, (a, b) in enumerate(window.spans) if context[a:b].strip()
        ]
        owners[piece] += window.most_context
    assert (owners == 1).all()


@settings(max_examples=60)
@given(st.integers(0, 40), st.integers(1, 12), st.integers(1, 15))
def test_most_context_is_what_the_published_loop_says(length: int, room: int, stride: int) -> None:
    windows = stretches(length, room, stride)
    assert windows[0][0] == 0
    assert windows[-1][1] == length
    assert all(end - start <= room for start, end in windows)
    assert all(late[0] <= early[1] for early, late in pairwise(windows))  # nothing between two is left out
    found = most_context(windows, length)
    for position in range(length):
        best, owner = None, None
        for index, (start, end) in enumerate(windows):
            if not start <= position < end:
                continue
            score = min(position - start, end - 1 - position) + 0.01 * (end - start)
            if best is None or score > best:
                best, owner = score, index
        assert found[position] == owner


def test_a_token_in_two_windows_is_scored_where_it_has_more_around_it() -> None:
    assert stretches(10, 6, 4) == [(0, 6), (4, 10)]
    assert most_context([(0, 6), (4, 10)], 10).tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 1, 1]


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_targets_are_the_tokens_of_the_answer(name: str, direction: Direction) -> None:
    context = f"{TEXTS[0]} {TEXTS[1]}"
    start = context.index("1889")
    asked = Question("q", "When?", (Answer("1889", start), Answer("TOWER", 4)))
    limits = WindowSettings(max_tokens=26, stride=5)
    windows = encode_questions([(context, asked)], tokenizer(name), limits, direction=direction)
    holding = [w for w in windows if w.has_answer]
    assert holding
    assert len(holding) < len(windows)
    for window in holding:
        first, last = (window.spans[at - window.first] for at in window.target)
        assert context[first[0] : last[1]].strip(",") == "1889"  # a piece may have the comma with it
        assert window.answerable[list(window.target)].all()
    whole = answer_tokens(tokenize(tokenizer(name), context).spans, start, start + 4)
    assert whole is not None
    for window in windows:
        inside = window.start <= whole[0] and whole[1] < window.start + len(window.spans)
        assert window.has_answer == inside
        assert inside or window.target == (NO_ANSWER, NO_ANSWER)


def test_a_part_of_a_word_gets_the_whole_token() -> None:
    spans = np.array([[0, 5], [5, 5], [6, 9], [9, 12]])
    assert answer_tokens(spans, 1, 3) == (0, 0)
    assert answer_tokens(spans, 4, 10) == (0, 3)
    assert answer_tokens(spans, 5, 6) is None
    assert answer_tokens(np.zeros((0, 2), dtype=int), 0, 3) is None


def test_wordpiece_reads_a_pair_as_the_tokenizer_does() -> None:
    made = tokenizer("wordpiece")
    (window,) = encode_questions([(TEXTS[0], Question("q", "How tall?"))], made, WindowSettings())
    assert isinstance(made, wordpiece.WordPieceTokenizer)
    pair = made.encode_pair("How tall?", TEXTS[0])
    assert window.ids.tolist() == pair.ids
    (batch,) = window_batches([window], [[0]], made.pad_id)
    assert batch.segments is not None
    assert batch.segments[0].tolist() == pair.segments


def test_windows_too_short_are_told() -> None:
    long = Question("q", " ".join(TEXTS))
    with pytest.raises(UserError, match="question 'q': 8 tokens leave no room"):
        encode_questions([(TEXTS[0], long)], tokenizer("bpe"), WindowSettings(max_tokens=8))
    for bad in ({"stride": 0}, {"max_question": 0}, {"max_tokens": 7}):
        with pytest.raises(UserError):
            WindowSettings(**bad)


def test_the_stream_gives_every_window_once_and_goes_on_anywhere() -> None:
    asked = [(text, Question(str(i), "Wo?", (Answer(text[:3], 0),))) for i, text in enumerate(TEXTS * 4)]
    windows = encode_questions(asked, tokenizer("unigram"), WindowSettings(max_tokens=24, stride=9))
    stream = WindowStream(windows, pad_id=1, rows=4, seed=5)
    batches = list(stream.batches(0))
    assert len(batches) == stream.length(0)
    rows = torch.cat([b.rows for b in batches if b.rows is not None])
    assert sorted(rows.tolist()) == list(range(len(windows)))
    assert all(torch.equal(a.ids, b.ids) for a, b in zip(batches[3:], stream.batches(0, 3), strict=True))
    assert any(a.ids.shape != b.ids.shape or not torch.equal(a.ids, b.ids) for a, b in zip(batches, stream.batches(1)))
    for batch in batches:
        assert batch.rows is not None
        assert batch.answerable is not None
        assert batch.segments is not None
        assert batch.targets is not None
        for row, index in enumerate(batch.rows.tolist()):
            window, length = windows[index], len(windows[index].ids)
            assert batch.ids[row, :length].tolist() == window.ids.tolist()
            assert batch.answerable[row].tolist()[:length] == window.answerable.tolist()
            assert not batch.answerable[row, length:].any()
            assert batch.segments[row].tolist()[:length] == [int(i >= window.second) for i in range(length)]
            assert batch.targets[row].tolist() == list(window.target)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_answers_in_a_context_with_invisible_characters_are_of_the_users_text(name: str) -> None:
    """Ids are those of the clean text, and each span is the user's own characters, hidden ones included."""
    clean = "The TOWER is 330 metres tall; it was built in 1889."
    given = "The\u00a0TO\u00adWER  is\t330 me\u200btres tall; it was\u2009built in 18\ufeff89."
    expected, tokens = (tokenize(tokenizer(name), text, "visible") for text in (clean, given))
    assert np.array_equal(tokens.ids, expected.ids)
    for (a, b), (start, end) in zip(expected.spans, tokens.spans, strict=True):
        assert visible(given[start:end]) == clean[a:b]
    begin = given.index("18\ufeff89")
    question = Question("1", "when?", (Answer("18\ufeff89", begin),))
    windows = encode_questions([(given, question)], tokenizer(name), WindowSettings(64), form="visible")
    (window,) = (window for window in windows if window.has_answer)
    first, last = (position - window.first for position in window.target)
    assert given[window.spans[first, 0] : window.spans[last, 1]] == "18\ufeff89"
