"""Words by their spelling: ELMo's published character ids, offsets, vocabularies, files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from textgraft.core.errors import UserError
from textgraft.data.batch import pad
from textgraft.data.sequences import PairIds
from textgraft.data.windows import tokenize
from textgraft.data.words import word_windows
from textgraft.text.character_encoding import (
    CHARACTERS,
    MARKS,
    CharacterEncodingTokenizer,
    _EncodingCache,
    encode_word,
    train,
)
from textgraft.text.tokenizer import Tokenizer

TEXTS = [
    "The film wasn't bad, the film was good.",
    "Zürich's café: 東京 ประเทศไทย 😀👍🏽",
    "A film! A film! A cat?",
] * 2


@pytest.fixture(scope="module")
def tokenizer() -> CharacterEncodingTokenizer:
    return train(TEXTS, min_frequency=1)


def as_published(word: str) -> list[int]:
    """`UnicodeCharsVocabulary._convert_word_to_char_ids` of bilm-tf, and the 1 that its batcher adds, step by step."""
    code = [260] * 50
    encoded = word.encode("utf-8", "ignore")[:48]
    code[0] = 258
    for k, number in enumerate(encoded, start=1):
        code[k] = number
    code[len(encoded) + 1] = 259
    return [number + 1 for number in code]


def test_numbers_that_were_published() -> None:
    """Of AllenNLP's own tests: "Second", a full stop, a text's beginning and end."""
    assert encode_word("Second").tolist() == [259, 84, 102, 100, 112, 111, 101, 260] + [261] * 42
    assert encode_word(".").tolist() == [259, 47, 260] + [261] * 47
    made = CharacterEncodingTokenizer.from_vocabulary()
    assert list(made.bos_id) == [259, 257, 260] + [261] * 47
    assert list(made.eos_id) == [259, 258, 260] + [261] * 47


@given(st.text(alphabet=st.characters(), max_size=70))
def test_every_word_is_spelled_as_published(word: str) -> None:
    assert encode_word(word).tolist() == as_published(word)


def test_words_that_were_looked_up_before_are_spelled_the_same() -> None:
    words = [f"word{i % 37}" for i in range(300)]
    for most in (3, 40, 10_000):
        spelled = _EncodingCache(most=most)
        for at in range(0, 300, 7):
            found = spelled(words[at : at + 7])
            assert found.tolist() == [encode_word(word).tolist() for word in words[at : at + 7]]
            found[:] = 0  # the caller's own
    assert _EncodingCache()([]).shape == (0, CHARACTERS)


@given(st.text(max_size=80))
@example(" \u0e31")
def test_offsets_are_those_of_the_words_and_a_batch_has_the_same_ids(text: str) -> None:
    made = CharacterEncodingTokenizer.from_vocabulary()
    encoding = made.encode(text)
    assert len(encoding.ids) == len(encoding.tokens) == len(encoding.offsets)
    assert np.array_equal(encoding.ids, made.encode_batch([text])[0])
    assert np.array_equal(encoding.ids[1:-1], made.bodies([text])[0])
    between = 0
    for row, token, (start, end) in list(zip(encoding.ids, encoding.tokens, encoding.offsets, strict=True))[1:-1]:
        assert between <= start < end
        assert not text[between:start].strip()
        assert text[start:end] == token
        assert row.tolist() == as_published(token)
        between = end
    assert not text[between:].strip()


def test_a_text_comes_back_word_by_word(tokenizer: CharacterEncodingTokenizer) -> None:
    ids = tokenizer.encode("It's naïve, 東京!").ids
    assert tokenizer.decode(ids) == "It 's naïve , 東京 !"
    assert tokenizer.settled(ids) == tokenizer.decode(ids)


def test_the_vocabulary_goes_by_falling_frequency(tokenizer: CharacterEncodingTokenizer) -> None:
    assert tokenizer.tokens[:5] == [*MARKS, "film", "A"]
    assert tokenizer.vocab_size == len(tokenizer.tokens) == len(tokenizer.character_ids)
    assert train(TEXTS, vocab_size=5, min_frequency=1).tokens == [*MARKS, "film", "A"]
    assert "cat" not in train(TEXTS, min_frequency=3).tokens
    for i, word in list(enumerate(tokenizer.tokens))[3:]:
        assert tokenizer.character_ids[i].tolist() == as_published(word)
    assert tokenizer.corpus_ids(["film nobody knows A <UNK>"])[0].tolist()[:5] == [0, 3, 2, 2, 4]
    assert 2 not in [tokenizer.word_ids[word] for word in tokenizer.tokens[3:]]


def test_saved_and_loaded(tokenizer: CharacterEncodingTokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert isinstance(loaded, CharacterEncodingTokenizer)
    assert loaded.fingerprint == tokenizer.fingerprint
    assert loaded.tokens == tokenizer.tokens
    assert loaded.fingerprint != train(TEXTS, min_frequency=3).fingerprint
    content = json.loads((tmp_path / "tokenizer.json").read_text("utf-8"))
    content["model"]["vocab"] = {"a": 0, "<UNK>": 1}
    with pytest.raises(UserError, match="does not begin with <S>"):
        Tokenizer.from_json(json.dumps(content))


def test_batches_spell_each_distinct_word_once(tokenizer: CharacterEncodingTokenizer) -> None:
    a, b = tokenizer.encode_batch(["the cat the", ""])
    batch = pad([a, b], tokenizer.pad_id)
    assert batch.ids.tolist() == [[1, 2, 3, 2, 4], [1, 4, 0, 0, 0]]
    assert batch.mask.sum(dim=1).tolist() == [5, 2]
    assert batch.character_ids is not None
    assert not batch.character_ids[0].any()
    assert np.array_equal(batch.character_ids[batch.ids[0]].numpy(), a)


def test_pairs_are_two_texts_in_a_row(tokenizer: CharacterEncodingTokenizer) -> None:
    first, second, nothing = tokenizer.bodies(["A cat", "bad", ""])
    pair = PairIds(first, second, tokenizer.pair_marks)
    assert np.array_equal(pair.ids, np.concatenate(tokenizer.encode_batch(["A cat", "bad"])))
    assert len(pair) == len(pair.ids)
    assert np.array_equal(pair.ids[pair.start], second[0])
    empty = PairIds(nothing, nothing, tokenizer.pair_marks)
    assert len(empty) == len(empty.ids) == 4
    batch = pad([pair, empty], 0)
    assert batch.segments is not None
    assert batch.segments.sum(dim=1).tolist() == [2, 1]


def test_a_word_of_a_sentence_is_a_position_whatever_is_in_it(tokenizer: CharacterEncodingTokenizer) -> None:
    windows, coverage = word_windows(tokenizer, [["U.S.", "didn't", " ", "<UNK>", "x" * 90]], 64)
    (window,) = windows
    assert window.spans.tolist() == [[1, 2], [2, 3], [3, 4], [4, 5], [5, 6]]
    assert window.ids.shape == (7, CHARACTERS)
    assert window.ids[1].tolist() == as_published("U.S.")
    assert coverage.words == 5
    assert coverage.unknown == 1  # the one that a language model over this vocabulary reads for all that it lacks
    windows, _ = word_windows(tokenizer, [["a"] * 10], 6)
    assert all(len(window.ids) <= 6 for window in windows)


def test_questions_read_words(tokenizer: CharacterEncodingTokenizer) -> None:
    read = tokenize(tokenizer, "It wasn't ")
    assert read.ids.shape == (3, CHARACTERS)
    assert read.spans.tolist() == [[0, 2], [3, 6], [6, 9]]
    assert tokenize(tokenizer, "").ids.shape == (0, CHARACTERS)


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [({"vocab_size": 3}, "3 is out of range"), ({"min_frequency": 0}, "0 is out of range")],
)
def test_settings_out_of_range(asked: dict[str, int], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        train(TEXTS, **asked)


def test_asked_for_by_name() -> None:
    made = Tokenizer.train(TEXTS, kind="word", model="spelling", min_frequency=1)
    assert isinstance(made, CharacterEncodingTokenizer)
    with pytest.raises(UserError, match="what is spelled are words"):
        Tokenizer.train(TEXTS, model="spelling")
    with pytest.raises(UserError, match="no text"):
        Tokenizer.train([], kind="word", model="spelling")
