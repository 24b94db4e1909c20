"""The visible form: texts that look the same are the same, what changes the look stays, and offsets fit the text."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from textgraft.core.errors import UserError
from textgraft.text.visible import align_visible, invisible_characters, text_form, visible, visible_word
from textgraft.text.words import split_visible_words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("two  spaces", "two spaces"),
        (
            "no-break\u00a0space, thin\u2009space, ideographic\u3000space",
            "no-break space, thin space, ideographic space",
        ),
        ("a\tb\u200b \u00a0c", "a b c"),
        ("  ends \n", "ends"),
        ("won\u00adder\u200bful \ufefflo\ufeffve\u2060ly", "wonderful lovely"),
        ("left\u200e to \u202bright\u202c\x00", "left to right"),
        ("blank\u2800like\u3164space", "blank like space"),
        ("he\u200cllo wor\u200dld", "hello world"),
        ("letter\ufe0f", "letter"),
        ("ภาษา\u200bไทย", "ภาษาไทย"),  # ZWSP in Thai shows where a line may break, and nothing to a reader
        ("ไทย\u200cไทย", "ไทยไทย"),  # Thai letters do not join
        ("\U000e0041hidden tags\U000e0042", "hidden tags"),
        ("\u200b\u00a0", ""),
    ],
)
def test_what_a_reader_does_not_see_is_gone(text: str, expected: str) -> None:
    assert visible(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "می\u200cخواهم کتاب\u200cها",  # Persian: a non-joiner between the parts of a word
        "क्\u200dष र्\u200cय",  # Devanagari: half forms
        "ශ්\u200dරී",  # Sinhala
        "👩\u200d👩\u200d👧 ❤\ufe0f\u200d🔥 👍🏽 🏳\ufe0f\u200d🌈",
        "1\ufe0f\u20e3 ☎\ufe0e 葛\U000e0100",  # a keycap, a sign as text, a variant of an ideograph
        "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",  # the flag of England
        "ᠮᠣᠩᠭᠣᠯ\u180e\u1820",  # Mongolian: a vowel is written apart
        "one line\nanother\n\na paragraph",
    ],
)
def test_what_changes_the_look_stays(text: str) -> None:
    assert visible(text) == text
    assert not invisible_characters(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a\r\nb", "a\nb"), ("a \t\n b", "a\nb"), ("a\n\n \n\nb", "a\n\nb"), ("a\u2029b\u2028c", "a\n\nb\nc")],
)
def test_a_line_break_stays_and_a_blank_line_is_one(text: str, expected: str) -> None:
    assert visible(text) == expected


CHARACTERS = " \t\n\r\u00a0\u00ad\u200b\u200c\u200d\ufeff\ufe0f\x00abé\u0301یخक्ไท👩❤🔥1"


@given(st.text(st.sampled_from(CHARACTERS), max_size=30))
@example("ی\u200c\u200b\u200cخ")
@example("\U0001f3f4\U000e0067\U000e0067\U000e007f")
def test_every_character_leads_back_to_the_text(text: str) -> None:
    aligned = align_visible(text)
    assert aligned.text == visible(text)
    assert visible(aligned.text) == aligned.text
    assert len(aligned.starts) == len(aligned.ends) == len(aligned.text)
    assert sorted(aligned.starts) == list(aligned.starts)
    assert sorted(aligned.ends) == list(aligned.ends)
    for char, start, end in zip(aligned.text, aligned.starts, aligned.ends, strict=True):
        assert 0 <= start < end <= len(text)
        assert char in " \n" or text[start:end] == char


def test_a_million_invisible_characters_take_no_time() -> None:
    assert visible("a" + "\u200b" * 1_000_000 + "b") == "ab"
    assert visible("a\u200b" * 200_000) == "a" * 200_000


def test_a_word_stays_a_word() -> None:
    assert [visible_word(word) for word in ("lo\u200bvely", "\u00a0", "\u200b")] == ["lovely", " ", "\u200b"]


def test_words_of_a_text_are_split_as_a_reader_sees_them() -> None:
    text = "In\u00a0Ber\u00adlin\u200b,  to\ufeffday"
    assert [text[a:b] for a, b in split_visible_words(text)] == ["In", "Ber\u00adlin", ",", "to\ufeffday"]


def test_an_unknown_form_is_named() -> None:
    with pytest.raises(UserError, match="no form of texts 'visibel'"):
        text_form("visibel")
