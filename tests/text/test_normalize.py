"""ULMFiT's text rules, and the origin of every character that comes out of them."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from textgraft.text.normalize import CONTROL, align, normalize

FRAGMENTS = [
    "xx",
    "maj",
    "XXBOS",
    "<br />",
    "&amp;",
    "&#xx;",
    "aaaa",
    "no no no ",
    " @-@ ",
    "<unk>",
    "AB",
    "Ab",
    "İ",
    "e\u0301",
]
AWKWARD = [
    chr(c) for c in (0, 0x300, 0x323, 0x344, 0xF71, 0xF73, 0x9C7, 0x9BE, 0x1100, 0x1161, 0x11A8, 0x212A, 0x1D15E)
]
TEXTS = st.lists(st.sampled_from(FRAGMENTS + AWKWARD) | st.text(max_size=6), max_size=8).map("".join)
KINDS = ["subword", "word"]


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The USA's (Big) iPhone", "xxmaj the xxup usa's (xxmaj big) iphone"),
        ("I saw A", "xxmaj i saw xxmaj a"),
        ("one<br /><br/>two\u00a0 \n three ", "one two three"),
        ("sooo good", "sooo good"),
        ("e\u0301te\u0301", "été"),
        ("half \ud800 a pair", "half \ufffd a pair"),
        ("", ""),
    ],
)
def test_subword_rules(text: str, normal: str) -> None:
    assert normalize(text, "subword") == normal


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("cccc", "xxrep 4 c"),
        ("AAAA", "xxrep 4 xxmaj a"),
        ("so good!!!", "so good xxrep 3 !"),
        ("cc 2000", "cc 2000"),
        ("word word word", "xxwrep 3 word"),
        ("no no nobody", "no no nobody"),
        ("oh no no no, please", "oh xxwrep 3 no , please"),
        ("aaa aaa aaa", "xxwrep 3 xxrep 3 a"),
        ("&quot;Fish &amp; chips&quot; &#39;t", '"xxmaj fish & chips" \'t'),
        ("a &notanentity; b", "a &notanentity; b"),
        ("3 @.@ 5 co @-@ op <unk>", "3.5 co-op xxunk"),
    ],
)
def test_word_rules(text: str, normal: str) -> None:
    assert normalize(text, "word") == normal


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("control", CONTROL)
@pytest.mark.parametrize("form", ["{}", "a{}b", "<b>{}</b>", "_{}_", "3{}"])
def test_a_control_word_in_the_users_text_is_broken_in_two(kind, control: str, form: str) -> None:
    for written in (control, control.upper(), control.title()):
        without_ours = re.sub(r"xx(?:up|maj) ", "", normalize(form.format(written), kind))
        assert not any(word in without_ours for word in CONTROL)


def test_an_entity_cannot_smuggle_a_control_word_in() -> None:
    assert normalize("xx&#98;os", "word") == "xx bos"


@pytest.mark.parametrize("kind", KINDS)
@given(text=TEXTS)
@example(text="\ud800k<unk>aaa\u0f71\u0f73=xx;F\u0327")
@example(text="Ắ\u0323 ΑΣ")
def test_alignment_gives_the_same_text_and_origins_in_order(kind, text: str) -> None:
    aligned = align(text, kind)
    assert aligned.text == normalize(text, kind)
    assert len(aligned.text) == len(aligned.starts) == len(aligned.ends)
    assert list(aligned.starts) == sorted(aligned.starts)
    assert list(aligned.ends) == sorted(aligned.ends)
    assert all(0 <= a <= b <= len(text) for a, b in zip(aligned.starts, aligned.ends))


@given(text=st.text(max_size=30))
def test_each_character_comes_from_the_span_that_it_names(text: str) -> None:
    aligned = align(text, "subword")
    for char, start, end in zip(aligned.text, aligned.starts, aligned.ends):
        origin = text[start:end]
        if origin and not origin.isspace() and origin != "\ufffd":
            composed = unicodedata.normalize("NFC", origin)
            assert char in composed + composed.lower()


def test_origins_of_what_the_rules_put_in() -> None:
    text = "Oh NOOOO"
    aligned = align(text, "word")
    assert aligned.text == "xxmaj oh xxmaj n xxrep 4 xxmaj o"
    at = aligned.text.index("xxrep")
    assert aligned.starts[at] == aligned.ends[at]
    assert text[aligned.starts[-1] : aligned.ends[-1]] == "OOOO"


@pytest.mark.parametrize("part", ["a", "ab ", "<br", "xx", " ", "\u0301\u0323", "no "])
def test_rules_take_linear_time(part: str) -> None:
    for kind in KINDS:
        normalize(part * 150_000, kind)
        align(part * 15_000, kind)


def test_a_heap_of_marks_is_cut_to_thirty() -> None:
    text = "e" + "\u0323" * 100 + "x"
    aligned = align(text, "subword")
    assert aligned.text == normalize(text) == "ẹ" + "\u0323" * 29 + "x"
    assert (aligned.starts[-1], aligned.ends[-1]) == (101, 102)
