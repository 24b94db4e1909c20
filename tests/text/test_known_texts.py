"""What a vocabulary knows: words of its language, and neither random letters nor another script."""

from __future__ import annotations

import pytest
from made_up_reviews import reviews

from textgraft.models.loading import load_network
from textgraft.text import characters, known_texts
from textgraft.text.tokenizer import Tokenizer

ENGLISH = [
    "The plot is thin, but the music is lovely.",
    "I LOVE IT!!!",
    "10/10",
    ":)",
    "two  words\u200b",
    "asdf qwer, but the film is good",
    "zxcv " * 100 + "the film",  # after what is looked at first
    "good 😀",
]
NOTHING = [
    "",
    " \u00a0\u200b",
    "asdf qwer",
    "qzxv",
    "บริการดีมากครับ",
    "Очень хороший фильм",
    "فيلم رائع جدا",
    "정말 재미있는 영화",
]


@pytest.mark.parametrize("name", ["en-gpt-small", "en-ulmfit", "en-bert-small"])
def test_english_models(name: str) -> None:
    tokenizer = load_network(name).tokenizer
    assert known_texts.knows(tokenizer, ENGLISH).all()
    assert not known_texts.knows(tokenizer, NOTHING).any()


def test_a_thai_model() -> None:
    known = known_texts.knows(load_network("th-ulmfit").tokenizer, ["บริการดีมากครับ", "ดี", "asdf qwer", "Очень хороший"])
    assert known.tolist() == [True, True, False, False]


def test_words_and_characters() -> None:
    texts, _ = reviews(40)
    words = Tokenizer.train(texts, kind="word", min_frequency=1)
    assert known_texts.knows(words, [texts[0], "asdf qwer", "qwer", ""]).tolist() == [True, False, False, False]
    of_characters = characters.train(texts)
    assert known_texts.knows(of_characters, [texts[0], "บริการ", ""]).tolist() == [True, False, False]


def test_no_text_at_all() -> None:
    assert known_texts.knows(load_network("en-ulmfit").tokenizer, []).tolist() == []
