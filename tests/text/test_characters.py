"""Text as its characters: nothing is lost but what the vocabulary does not have."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Pipeline

from textgraft.core.errors import UserError
from textgraft.text.characters import CharacterTokenizer, of_vocabulary, train
from textgraft.text.clusters import cluster_spans
from textgraft.text.tokenizer import Tokenizer

TEXTS = ["The Cat sat.\nOn the mat, twice.", "สวัสดีครับ สวัสดี", "Ünï\tthe"]
TOKENIZER = train(TEXTS, min_frequency=1)


def test_the_vocabulary_is_the_characters_by_how_often_they_are() -> None:
    found = train(["bbb aa\nc", "cd  bb\u0e01"], min_frequency=2)
    assert found.tokens == ["<unk>", "\n", " ", "b", "a", "c"]
    assert train(["bbb aa cc"], vocab_size=4).tokens == ["<unk>", "\n", " ", "b"]
    assert train(["zy", "zy"], max_characters=1, min_frequency=1).tokens == ["<unk>", "\n", " ", "z"]
    assert train(["\ud800\ud800"]).tokens == ["<unk>", "\n", " "]
    assert (found.unk_id, found.pad_id, found.bos_id, found.eos_id) == (0, 0, 1, 1)
    with pytest.raises(UserError, match="no text to train"):
        train([])


def test_case_spaces_and_line_ends_stay() -> None:
    for text in TEXTS:
        encoding = TOKENIZER.encode(text)
        assert encoding.tokens == ["\n", *text]
        assert TOKENIZER.decode(encoding.ids) == text
    assert TOKENIZER.encode("").ids == [1]
    assert TOKENIZER.decode([]) == ""
    assert TOKENIZER.decode(TOKENIZER.encode("\na").ids) == "\na"
    assert TOKENIZER.decode(TOKENIZER.encode("aé").ids) == "a\ufffd"


pieces = [*"".join(TEXTS), "x", "é", "\u0301", "\ud83d", "\U0001f600", "\r\n", "<unk>"]
texts = st.lists(st.sampled_from(pieces)).map("".join)


@given(texts)
def test_one_by_one_in_batches_and_by_the_library_are_the_same(text: str) -> None:
    encoding = TOKENIZER.encode(text)
    assert len(encoding.ids) == len(text) + 1
    assert TOKENIZER.encode_batch([text, "the"])[0].tolist() == encoding.ids
    assert TOKENIZER.bodies([text])[0].tolist() == encoding.ids[1:]
    if not any("\ud800" <= c <= "\udfff" for c in text):
        assert Pipeline.from_str(TOKENIZER.to_json()).encode(text).ids == encoding.ids[1:]
    starts, ends = cluster_spans(text)
    assert encoding.offsets[1:] == list(zip(starts, ends, strict=True))


def test_saved_loaded_copied(tmp_path: Path) -> None:
    TOKENIZER.save(tmp_path / "tokenizer.json")
    for again in (Tokenizer.load(tmp_path / "tokenizer.json"), copy.deepcopy(TOKENIZER), pickled(TOKENIZER)):
        assert isinstance(again, CharacterTokenizer)
        assert (again.tokens, again.fingerprint) == (TOKENIZER.tokens, TOKENIZER.fingerprint)
        assert again.encode(TEXTS[1]).ids == TOKENIZER.encode(TEXTS[1]).ids
    words = Tokenizer.train(TEXTS, kind="word")
    assert type(Tokenizer.from_json(words.to_json())) is Tokenizer


def pickled(tokenizer: CharacterTokenizer) -> CharacterTokenizer:
    again: CharacterTokenizer = pickle.loads(pickle.dumps(tokenizer))
    return again


def test_a_word_with_the_space_on_either_side() -> None:
    before, after = TOKENIZER.words(["cat", ""]), TOKENIZER.words(["cat", ""], space="after")
    assert ["".join(TOKENIZER.tokens[i] for i in ids) for ids in before] == [" cat", " "]
    assert ["".join(TOKENIZER.tokens[i] for i in ids) for ids in after] == ["cat ", " "]
    assert all(ids.dtype == np.int32 for ids in before)


def test_a_vocabulary_of_anothers_making() -> None:
    """Flair's may lack `<unk>`, a line end or a space, and may hold longer items: then the first item is read."""
    tokenizer = of_vocabulary(["x", "a", "ab", "<unk>"])
    assert tokenizer.bodies(["ab \nx"])[0].tolist() == [1, 0, 0, 0, 0]
    assert tokenizer.decode([1, 0, 3, 2]) == "ax\ufffd\ufffd"
    assert (tokenizer.bos_id, tokenizer.space_id) == (0, 0)
    with pytest.raises(UserError, match="twice"):
        of_vocabulary(["a", "b", "a"])


def test_settings_that_characters_do_not_have() -> None:
    with pytest.raises(UserError, match="not characters"):
        Tokenizer.train(TEXTS, kind="character", segmenter="thai")
    with pytest.raises(UserError, match="no tokenizer kind 'char'"):
        Tokenizer.train(TEXTS, kind="char")  # type: ignore[arg-type]
    assert isinstance(Tokenizer.train(TEXTS, kind="character", vocab_size=10), CharacterTokenizer)
