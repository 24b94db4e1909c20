"""The visible form of a text: the same characters for texts that look the same to a reader.

A no-break space, a tab or a doubled space is a space to a reader, and a soft hyphen or a byte order mark inside a word
is nothing; to a tokenizer each is a token of its own, or splits a word. Tasks give their encoders and linear methods
texts in this form. Language models are trained on text as it is (textgraft tokenize, pretrain, adapt).

Characters that change what is seen stay: joiners between letters of scripts that use them, and in emoji; the selectors
of variants after what has variants; line breaks, alone or doubled.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Literal, get_args

from textgraft.core.errors import UserError, did_you_mean
from textgraft.text.normalize import Aligned, Rule, Span, apply_rules, identity, stripped

TextForm = Literal["raw", "visible"]
"""The form in which a model takes texts; part of its config.json. Models saved before there was a choice have "raw"."""
RAW: TextForm = "raw"
VISIBLE: TextForm = "visible"
TEXT_FORM = "text_form"
"""The key in config.json."""

_ZWNJ, _ZWJ, _BLACK_FLAG = "\u200c", "\u200d", "\U0001f3f4"
_INVISIBLE = (
    # Soft hyphen, grapheme joiner, Arabic letter mark, Khmer inherent vowels, Mongolian separators.
    "\u00ad\u034f\u061c\u17b4\u17b5\u180b-\u180f"
    # Zero-width space, joiners and marks of direction; embeddings; word joiner, operators, isolates; byte order mark.
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff"
    # Variation selectors and tags.
    "\ufe00-\ufe0f\U000e0000-\U000e007f\U000e0100-\U000e01ef"
)
_CONTROLS = "\x00-\x08\x0e-\x1b\x7f"
_BLANK = r"\s\u2800\u3164\uffa0"  # white space, and a Braille pattern and Hangul fillers that look like it
_LINE_BREAK = re.compile("\r\n|[\n\v\f\r\x85\u2028]")
# Arabic and its neighbours, the scripts of India, Tibet, Burma, Cambodia and Mongolia, and those beyond the first plane
# that are written alike. Thai and Lao join nothing.
_JOINING = re.compile(
    "[\u0600-\u0dff\u0f00-\u109f\u1780-\u18af\u1900-\u1cff\ua840-\ua9ff\uaa00-\uabff\ufb50-\ufdff\ufe70-\ufefc"
    "\U00010a00-\U00011fff\U0001e900-\U0001e95f]"
)


def _stays(char: str, before: str, after: str) -> bool:
    """True if an invisible character changes what is seen between the visible characters `before` and `after`."""
    if char in (_ZWNJ, _ZWJ):
        return (_joins(before) and _joins(after)) or (char == _ZWJ and _is_picture(before) and _is_picture(after))
    if "\u180b" <= char <= "\u180f":
        return "\u1800" <= before <= "\u18af"
    if "\ufe00" <= char <= "\ufe0f" or char >= "\U000e0100":
        return before >= "\u0590" or (bool(before) and not before.isalpha() and not before.isspace())
    return "\U000e0020" <= char <= "\U000e007f" and before == _BLACK_FLAG


def _joins(char: str) -> bool:
    return bool(_JOINING.match(char))


def _is_picture(char: str) -> bool:
    return bool(char) and unicodedata.category(char) in ("So", "Sk")


def _staying(match: re.Match[str]) -> str:
    """The characters of a run of invisible ones that stay; a joiner once."""
    text, start, end = match.string, match.start(), match.end()
    before, after = text[max(0, start - 1) : start], text[end : end + 1]
    staying = ""
    for char in match.group():
        if not staying.endswith(char) and _stays(char, before, after):
            staying += char
    return staying


def _staying_spans(old: str, new: str) -> list[Span]:
    spans, begin = [], 0
    for char in new:
        begin = old.index(char, begin) + 1
        spans.append((begin - 1, begin))
    return spans


def _white_space(match: re.Match[str]) -> str:
    breaks = len(_LINE_BREAK.findall(match.group())) + 2 * match.group().count("\u2029")
    return (" ", "\n", "\n\n")[min(2, breaks)]


_HIDDEN = Rule(re.compile(f"[{_INVISIBLE}{_CONTROLS}]+"), _staying, _staying_spans)
# Runs of white space but a single space or line break, which stay as they are.
_SPACES = Rule(re.compile(rf"[{_BLANK}](?:(?<![ \n])|(?=[{_BLANK}]))[{_BLANK}]*"), _white_space)
_RULES = (_HIDDEN, _SPACES)


def visible(text: str) -> str:
    r"""The visible form of a text: without invisible characters, every run of white space one space.

    A run with a line break is a line break, one with several two. White space at the ends is dropped.

    >>> visible("A\u00a0 lo\ufeffvely\tday")
    'A lovely day'
    """
    if not (text.isascii() and text.isprintable() and "  " not in text):
        for rule in _RULES:
            text = rule.pattern.sub(rule.replacement, text)
    return text.strip()


def align_visible(text: str) -> Aligned:
    """`visible` with the origin of every character."""
    return stripped(apply_rules(_RULES, identity(text)))


def visible_word(word: str) -> str:
    """The visible form of a word of a sentence: never empty, and a space where it is white space."""
    return visible(word) or (" " if word.isspace() else word)


def invisible_characters(text: str) -> Counter[str]:
    """Counts of the characters that `visible` removes, white space and control characters aside."""
    if text.isascii():
        return Counter()
    counts: Counter[str] = Counter()
    for match in _HIDDEN.pattern.finditer(text):
        counts.update(match.group())
        counts.subtract(_staying(match))
    return Counter({char: count for char, count in counts.items() if count > 0 and char >= "\x80"})


FORMS: Mapping[TextForm, Callable[[str], str]] = {RAW: str, VISIBLE: visible}
"""Functions from a text to each form."""


def text_form(value: object, *, where: str = "") -> TextForm:
    """A form by its name. Raises UserError for an unknown one."""
    for name in get_args(TextForm):
        if value == name:
            form: TextForm = name
            return form
    remedy = did_you_mean(str(value), get_args(TextForm))
    raise UserError(f"there is no form of texts '{value}'.", where=where, remedy=remedy)
