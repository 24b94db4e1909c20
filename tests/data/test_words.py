"""Words as windows of tokens: every word has its positions, whatever the tokenizer and however long the sentence."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from textgraft.core.errors import UserError
from textgraft.data.batch import IGNORE
from textgraft.data.conll import Sentence
from textgraft.data.sequences import Direction
from textgraft.data.streams.words import WordStream, word_batches
from textgraft.data.words import default_subword_pooling, encode_words, word_windows
from textgraft.text import wordpiece
from textgraft.text.tokenizer import Tokenizer
from textgraft.text.words import split_words

TEXT = ["The quick brown foxes jumped over lazy dogs, didn't they? Über straße 123 the the"] * 3
TOKENIZERS = {
    "wordpiece": wordpiece.train(TEXT, vocab_size=90),
    "byte_level": Tokenizer.train(TEXT, model="byte_level", vocab_size=300),
    "unigram": Tokenizer.train(TEXT, vocab_size=90),
    "bpe": Tokenizer.train(TEXT, model="bpe", vocab_size=90),
    "word": Tokenizer.train(TEXT, kind="word"),
}
every_tokenizer = pytest.mark.parametrize("name", TOKENIZERS)
WORDS = ["The", "quick", "foxes", "did", "n't", "THEY", "?", "Über", "123", "xyzzy", "ok", ","]


@every_tokenizer
def test_words_have_the_pieces_that_they_have_in_a_text(name: str) -> None:
    tokenizer = TOKENIZERS[name]
    (pieces,) = encode_words(tokenizer, [WORDS])
    assert pieces.bounds.tolist()[0] == 0
    assert pieces.bounds[-1] == len(pieces.ids)
    assert (np.diff(pieces.bounds) >= 1).all()
    (window,), coverage = word_windows(tokenizer, [WORDS], 200)
    text = " " + " ".join(WORDS) if name == "byte_level" else " ".join(WORDS)
    assert window.ids.tolist() == tokenizer.encode_batch([text])[0].tolist()
    for i, (first, after) in enumerate(window.spans.tolist()):
        inside = window.ids[first:after].tolist()
        assert inside == pieces.ids[pieces.bounds[i] : pieces.bounds[i + 1]].tolist()
        alone = encode_words(tokenizer, [[WORDS[i]]])[0].ids.tolist()
        assert inside == alone
    assert window.positions("first").tolist() == window.spans[:, 0].tolist()
    assert window.positions("last").tolist() == (window.spans[:, 1] - 1).tolist()
    assert (coverage.sentences, coverage.words, coverage.windowed, coverage.cut_words) == (1, len(WORDS), 0, 0)


@every_tokenizer
def test_a_word_without_pieces_reads_as_unknown(name: str) -> None:
    tokenizer = TOKENIZERS[name]
    (pieces,) = encode_words(tokenizer, [["the", "\u200b", "\u200b", "the"]])
    assert (np.diff(pieces.bounds) >= 1).all()
    assert pieces.ids[pieces.bounds[0]] == pieces.ids[pieces.bounds[3]]


THAI = "สวัสดี ครับ ผม ชื่อ สม ชาย"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["the", "cat", "."], "the cat ."),
        (["ผม", "ชื่อ", "Tom", "ครับ"], "ผมชื่อ Tom ครับ"),
        (["ผม", "ชื่อ", " ", "Tom", " ", "ครับ"], "ผมชื่อ Tom ครับ"),
        (["我", "是", "，", "学生"], "我是，学生"),
        (["나는", "학생"], "나는 학생"),
        ([" ", "ก"], " ก"),
        ([], ""),
    ],
)
def test_words_stand_in_a_text_as_their_script_has_it(words: list[str], text: str) -> None:
    sentence = Sentence.of(words)
    assert sentence.text == text
    assert [sentence.text[start:end] for start, end in sentence.spans] == words


def test_words_that_run_together_are_read_without_spaces() -> None:
    letters = Tokenizer.train([THAI], kind="character", min_frequency=1)
    run_on = [THAI.split()]
    for direction, text in (("left", THAI.replace(" ", "") + " "), ("right", " " + THAI.replace(" ", ""))):
        assert encode_words(letters, run_on, direction)[0].ids.tolist() == letters.bodies([text])[0].tolist()
        said = encode_words(letters, [[*THAI.split(), " ", "ผม"]], direction)[0].ids
        assert letters.decode(said).strip() == THAI.replace(" ", "") + " ผม"
    for model in ("unigram", "bpe"):
        pieces = Tokenizer.train([THAI.replace(" ", ""), "ผม ชื่อ"] * 9, model=model, vocab_size=60)  # type: ignore[arg-type]
        ids = encode_words(pieces, run_on)[0]
        shown = [pieces.tokens[i] for i in ids.ids]
        assert "".join(shown) == "▁" + THAI.replace(" ", "")
        assert [i for i, token in enumerate(shown) if token.startswith("▁")] == [0]
        assert pieces.tokens[encode_words(pieces, [["ผม", " ", "ชื่อ"]])[0].ids[-1]] != "▁"
        assert [pieces.tokens[i] for i in pieces.words([" "], space="none")[0]] == ["▁"]


words = st.lists(st.sampled_from([*WORDS, "jumpedjumpedjumped"]), min_size=1, max_size=30)


@settings(max_examples=120)
@given(st.lists(words, min_size=1, max_size=3), st.integers(3, 30), st.sampled_from(["left", "right", "both"]))
def test_every_word_is_tagged_once_in_a_window_that_holds_it(
    sentences: list[list[str]], most: int, direction: Direction
) -> None:
    tokenizer = TOKENIZERS["wordpiece"]
    windows, coverage = word_windows(tokenizer, sentences, most, direction=direction)
    whole = encode_words(tokenizer, sentences)
    seen: list[list[int]] = [[] for _ in sentences]
    lost = 0
    for window in windows:
        assert len(window.ids) <= most
        assert (window.ids[0], window.ids[-1]) == (tokenizer.bos_id, tokenizer.eos_id)
        pieces = whole[window.sentence]
        for i, (first, after) in enumerate(window.spans.tolist()):
            word = window.start + i
            seen[window.sentence].append(word)
            own = pieces.ids[pieces.bounds[word] : pieces.bounds[word + 1]].tolist()
            kept = window.ids[first:after].tolist()
            assert kept
            assert kept == own[: len(kept)]
            lost += len(own) - len(kept)
    assert seen == [list(range(len(s))) for s in sentences]
    assert (coverage.lost_pieces, coverage.words) == (lost, sum(map(len, sentences)))
    assert bool(coverage.told()) == (lost > 0)


def test_words_are_tagged_where_most_is_seen() -> None:
    tokenizer = TOKENIZERS["word"]
    sentence = ["the"] * 12
    size = len(encode_words(tokenizer, [["the"]])[0].ids)
    room = 1 + 8 * size  # xxbos and eight words
    starts = {}
    for direction in ("left", "right", "both"):
        windows, coverage = word_windows(tokenizer, [sentence], room, direction=direction)
        starts[direction] = [(w.start, len(w.spans)) for w in windows]
        assert coverage.windowed == 1
    assert starts == {"left": [(0, 8), (8, 4)], "right": [(0, 4), (4, 8)], "both": [(0, 6), (6, 6)]}


def test_batches_say_where_words_are_and_what_they_should_be() -> None:
    tokenizer = TOKENIZERS["word"]
    windows, _ = word_windows(tokenizer, [["the", "quick"], ["foxes"]], 20)
    tags = [np.array([3, 1]), np.array([2])]
    (batch,) = word_batches(windows, [[1, 0]], tokenizer.pad_id, subword_pooling="last", tags=tags)
    assert batch.words is not None
    assert batch.targets is not None
    assert batch.words[0].tolist() == [windows[1].spans[0, 1] - 1, -1]
    assert batch.targets.tolist() == [[2, IGNORE], [3, 1]]
    for row, window in enumerate((windows[1], windows[0])):
        positions = batch.words[row, : len(window.spans)]
        assert torch.equal(batch.ids[row, positions], torch.tensor(window.ids[window.spans[:, 1] - 1]).long())
    (unasked,) = word_batches(windows, [[0, 1]], tokenizer.pad_id, subword_pooling="first")
    assert unasked.targets is None


def test_a_stream_goes_on_where_it_was() -> None:
    tokenizer = TOKENIZERS["word"]
    sentences = [["the"] * n for n in range(1, 30)]
    windows, _ = word_windows(tokenizer, sentences, 64)
    stream = WordStream(windows, [np.zeros(len(s)) for s in sentences], pad_id=1, subword_pooling="first", rows=4)
    whole = list(stream.batches(0))
    assert len(whole) == stream.length(0)
    assert sum(int((b.words >= 0).sum()) for b in whole if b.words is not None) == sum(range(1, 30))
    assert torch.equal(next(stream.batches(0, 3)).ids, whole[3].ids)
    assert any(a.ids.shape != b.ids.shape or not torch.equal(a.ids, b.ids) for a, b in zip(whole, stream.batches(1)))


def test_pieces_speak_where_the_word_has_been_read() -> None:
    assert [default_subword_pooling(d) for d in ("left", "right", "both")] == ["last", "first", "first"]


def test_mistakes() -> None:
    with pytest.raises(UserError, match="2 tokens leave no room"):
        word_windows(TOKENIZERS["wordpiece"], [["a"]], 2)
    with pytest.raises(UserError, match="a sentence without a word"):
        word_windows(TOKENIZERS["wordpiece"], [["a"], []], 20)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I don't, it's $3.50!", ["I", "do", "n't", ",", "it", "'s", "$", "3.50", "!"]),
        ("see https://a.bc/d?e=1. @me #you", ["see", "https://a.bc/d?e=1", ".", "@me", "#you"]),
        ("naïve e\u0301te\u0301 Ünïcode", ["naïve", "e\u0301te\u0301", "Ünïcode"]),
        ("👩‍👩‍👧👍🏽 ok", ["👩‍👩‍👧", "👍🏽", "ok"]),
        ("", []),
        (" \n\t", []),
    ],
)
def test_plain_text_is_split(text: str, expected: list[str]) -> None:
    assert [text[a:b] for a, b in split_words(text)] == expected


@pytest.mark.slow
@settings(max_examples=200)
@given(st.text(max_size=40))
def test_all_but_spaces_is_in_one_word(text: str) -> None:
    spans = split_words(text)
    assert all(a < b for a, b in spans)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    covered = {i for a, b in spans for i in range(a, b)}
    assert all(i in covered for i, character in enumerate(text) if not character.isspace())
    assert not any(text[a].isspace() or text[b - 1].isspace() for a, b in spans)


def test_thai_is_cut_by_the_dictionary() -> None:
    pytest.importorskip("pythainlp")
    text = "ผมรักประเทศไทย ok"
    found = [text[a:b] for a, b in split_words(text)]
    assert len(found) >= 4
    assert "".join(found) == text.replace(" ", "")
    assert found[-1] == "ok"
