"""ULMFiT's text normalisation: case and repetition become control words.

"The USA" becomes `xxmaj the xxup usa`, so that a small vocabulary needs each word once. The rules are those of fastai
(Howard & Gugger 2020, `fastai.text.core`), with these differences: Unicode is composed first (NFC); `<br />` is a
space; a control word in the user's own text is split (`xxbos` -> `xx bos`) and so never acts as one. They run in Python
because the `tokenizers` library cannot track offsets through such rewriting.
"""

from __future__ import annotations

import html
import html.entities
import re
import unicodedata
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

Kind = Literal["subword", "word", "character"]
RULES_VERSION = 1
"""Increased whenever the normalisation of any text changes; part of a tokenizer's fingerprint."""

CONTROL = ("xxunk", "xxpad", "xxbos", "xxeos", "xxfld", "xxrep", "xxwrep", "xxup", "xxmaj")
"""Control words in the order of their ids, 0 to 8."""

_CONTROL_ENDINGS = "|".join(word[2:] for word in CONTROL)

Span = tuple[int, int]


def _case(match: re.Match[str]) -> str:
    word = match.group()
    if word[0].isupper():
        return ("xxup " if len(word) > 1 and word.isupper() else "xxmaj ") + word.lower()
    return word.lower()


def _case_spans(word: str, new: str) -> list[Span]:
    # The lower case of one character may have two (İ).
    spans = [(i, i + 1) for i, char in enumerate(word) for _ in char.lower()]
    return [(0, 0)] * (len(new) - len(spans)) + spans


def _repeated_character(match: re.Match[str]) -> str:
    return f" xxrep {len(match.group())} {match.group(1)} "


def _repeated_word(match: re.Match[str]) -> str:
    return f" xxwrep {len(match.group().split())} {match.group(1)} "


def _repeated_spans(old: str, new: str) -> list[Span]:
    """The repeated unit has the span of the whole repetition; control word and number have empty ones."""
    unit = len(new.split()[-1])
    return [(0, 0)] * (len(new) - unit - 1) + [(0, len(old))] * unit + [(len(old), len(old))]


def _entity(match: re.Match[str]) -> str:
    # html.unescape alone would read "&notthis;" as "¬this;".
    name = match.group(1)
    return html.unescape(match.group()) if name[0] == "#" else html.entities.html5.get(f"{name};", match.group())


def _whole(old: str, new: str) -> list[Span]:
    return [(0, len(old))] * len(new)


@dataclass(frozen=True)
class Rule:
    """A substitution, with the origin of each replacement character within the match."""

    pattern: re.Pattern[str]
    replacement: str | Callable[[re.Match[str]], str]
    spans: Callable[[str, str], list[Span]] = _whole


# Unicode's Stream-Safe Text allows 30 marks in a row; sorting a run of a million, as NFC does, would take forever.
_MARKS = Rule(
    re.compile(r"[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]{31,}"),
    lambda match: match.group()[:30],
    lambda old, new: [(i, i + 1) for i in range(30)],
)
# JSON may contain lone surrogates, which no Unicode encoder accepts.
_SURROGATE = Rule(re.compile(r"[\ud800-\udfff]"), "\ufffd")
_ENTITY = Rule(re.compile(r"&(#\d{1,7}|#[xX][\da-fA-F]{1,6}|\w{2,31});"), _entity)
_LINE_BREAK = Rule(re.compile(r"<br\s*+/?>"), " ")
_WIKITEXT_JOINT = Rule(re.compile(r" @([-.,])@ "), lambda match: match.group(1))
_GUARD = Rule(
    re.compile(rf"xx(?={_CONTROL_ENDINGS})", re.IGNORECASE),
    lambda match: match.group() + " ",
    lambda old, new: [(0, 1), (1, 2), (2, 2)],
)
_UNKNOWN = Rule(re.compile(r"<unk>"), " xxunk ")
_REPEATED_WORD = Rule(re.compile(r"(?<!\S)(\w++)(?:\s+\1){2,}(?!\w)"), _repeated_word, _repeated_spans)
_REPEATED_CHARACTER = Rule(re.compile(r"([^\s\d])\1{2,}"), _repeated_character, _repeated_spans)
_WHITESPACE = Rule(re.compile(r"\s+"), " ")
_CASE = Rule(re.compile(r"[^\W\d_]+"), _case, _case_spans)

RULES: dict[Kind, tuple[Rule, ...]] = {
    "subword": (_SURROGATE, _LINE_BREAK, _GUARD, _WHITESPACE, _CASE),
    "word": (
        _SURROGATE,
        _ENTITY,
        _LINE_BREAK,
        _WIKITEXT_JOINT,
        _GUARD,
        _UNKNOWN,
        _REPEATED_WORD,
        _REPEATED_CHARACTER,
        _WHITESPACE,
        _CASE,
    ),
}


def normalize(text: str, kind: Kind = "subword") -> str:
    """Normalise text for a tokenizer of this kind.

    Word-level rules add `xxrep 4 c` for `cccc`, `xxwrep 3 word` for `word word word`, HTML entities, and WikiText's `
    @-@ ` and `<unk>`. Two differences from fastai: repeated words are replaced before repeated characters, so that "aaa
    aaa aaa" is found, and digits may repeat ("2000" would become "2 xxrep 3 0").

    >>> normalize("The USA")
    'xxmaj the xxup usa'
    """
    if not text.isascii():
        text = unicodedata.normalize("NFC", _MARKS.pattern.sub(_MARKS.replacement, text))
    for rule in RULES[kind]:
        text = rule.pattern.sub(rule.replacement, text)
    return text.strip()


@dataclass(frozen=True)
class Aligned:
    """A normalised text whose character i comes from `original[starts[i]:ends[i]]`.

    Both arrays are non-decreasing. Characters inserted by a rule (control words) have empty spans.
    """

    text: str
    starts: array[int]
    ends: array[int]


def align(text: str, kind: Kind = "subword") -> Aligned:
    """`normalize` with the origin of every character; several times slower."""
    aligned = identity(text)
    if not text.isascii():
        aligned = _compose(_apply(_MARKS, aligned))
    return stripped(apply_rules(RULES[kind], aligned))


def identity(text: str) -> Aligned:
    """A text whose characters are their own origin."""
    return Aligned(text, array("q", range(len(text))), array("q", range(1, len(text) + 1)))


def apply_rules(rules: Iterable[Rule], aligned: Aligned) -> Aligned:
    """Apply substitutions one after another."""
    for rule in rules:
        aligned = _apply(rule, aligned)
    return aligned


def stripped(aligned: Aligned) -> Aligned:
    """The text without white space at its ends, its origins in order."""
    first = len(aligned.text) - len(aligned.text.lstrip())
    last = max(first, len(aligned.text.rstrip()))
    # A rule that splits characters with a shared origin (composed ones) leaves its span out of order.
    starts = np.minimum.accumulate(np.array(aligned.starts[first:last])[::-1])[::-1]
    ends = np.maximum.accumulate(np.array(aligned.ends[first:last]))
    return Aligned(aligned.text[first:last], array("q", starts.tolist()), array("q", ends.tolist()))


def _apply(rule: Rule, old: Aligned) -> Aligned:
    pieces: list[str] = []
    starts, ends = array("q"), array("q")
    done = 0
    for match in rule.pattern.finditer(old.text):
        begin, end = match.span()
        new = rule.replacement if isinstance(rule.replacement, str) else rule.replacement(match)
        pieces += (old.text[done:begin], new)
        starts.extend(old.starts[done:begin])
        ends.extend(old.ends[done:begin])
        for first, last in rule.spans(match.group(), new):
            # An empty span is before its character, or after the last one of the match.
            begins = old.starts[begin + first] if begin + first < end else old.ends[end - 1]
            starts.append(begins)
            ends.append(old.ends[begin + last - 1] if last > first else begins)
        done = end
    starts.extend(old.starts[done:])
    ends.extend(old.ends[done:])
    return Aligned("".join((*pieces, old.text[done:])), starts, ends)


def _compose(old: Aligned) -> Aligned:
    """NFC with origins. A run that composition changes is mapped as a whole, since its parts have merged."""
    text = old.text
    if unicodedata.is_normalized("NFC", text):
        return old
    pieces: list[str] = []
    starts, ends = array("q"), array("q")
    begin = 0
    for end in range(1, len(text) + 1):
        if end < len(text) and not _composes_apart(text[begin:end], text[end]):
            continue
        piece = unicodedata.normalize("NFC", text[begin:end])
        same = piece == text[begin:end]
        pieces.append(piece)
        starts.extend(old.starts[begin:end] if same else [old.starts[begin]] * len(piece))
        ends.extend(old.ends[begin:end] if same else [old.ends[end - 1]] * len(piece))
        begin = end
    return Aligned("".join(pieces), starts, ends)


def _composes_apart(stretch: str, char: str) -> bool:
    """True if `char` neither merges with `stretch` nor is reordered into it, whatever follows."""
    if char < "\u0300":
        return True
    if unicodedata.combining(unicodedata.normalize("NFD", char)[0]):
        return False
    together = unicodedata.normalize("NFC", stretch + char)
    return together == unicodedata.normalize("NFC", stretch) + unicodedata.normalize("NFC", char)
