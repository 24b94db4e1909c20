"""Grapheme clusters, the characters that readers perceive, so that no offset falls inside one."""

from __future__ import annotations

import unicodedata
from array import array
from functools import lru_cache
from itertools import pairwise

import numpy as np

_ZWNJ, _ZWJ = 0x200C, 0x200D
_FLAGS = ("\U0001f1e6", "\U0001f1ff")
_SARA_AM = (0x0E33, 0x0EB3)  # Thai and Lao: letters in Unicode, but written onto the preceding consonant


def cluster_spans(text: str) -> tuple[array[int], array[int]]:
    r"""Start and end of the grapheme cluster of every character.

    Follows Unicode Standard Annex 29, extended clusters, as far as Python's character categories allow: marks, Thai and
    Lao vowels, Hangul syllables, flags, emoji with skin tones and joiners. Prepended marks (GB9b) and Indic conjuncts
    (GB9c) are not covered, so that a conjunct counts as two clusters.

    >>> starts, ends = cluster_spans("e\u0301a")
    >>> starts.tolist(), ends.tolist()
    ([0, 0, 2], [2, 2, 3])
    """
    if text.isascii() and "\r\n" not in text:
        return array("q", range(len(text))), array("q", range(1, len(text) + 1))
    cluster_starts, flags = [0], 0
    for i, (previous, char) in enumerate(pairwise(text), 1):
        flags = flags + 1 if previous >= _FLAGS[0] and _is_flag(previous) else 0
        if not joins(previous, char, flags):
            cluster_starts.append(i)
    borders = np.array([*cluster_starts, len(text)], dtype=np.int64)
    sizes = np.diff(borders)
    starts, ends = np.repeat(borders[:-1], sizes), np.repeat(borders[1:], sizes)
    return array("q", starts.tobytes()), array("q", ends.tobytes())


@lru_cache(maxsize=1 << 16)
def joins(previous: str, char: str, flags: int = 0) -> bool:
    """True if `char` continues the cluster of `previous`, which ends a run of `flags` regional indicators."""
    if char < "\u0300":
        return previous == "\r" and char == "\n"
    code = ord(char)
    category = unicodedata.category(char)
    if _extends(code, category):
        return unicodedata.category(previous) not in ("Cc", "Zl", "Zp")
    if _is_flag(char):
        return flags % 2 == 1
    if ord(previous) == _ZWJ:
        return category in ("So", "Sm")
    return _joins_hangul(ord(previous), code)


def _extends(code: int, category: str) -> bool:
    return (
        category in ("Mn", "Mc", "Me")
        or code in (_ZWNJ, _ZWJ, *_SARA_AM)
        or 0xFF9E <= code <= 0xFF9F  # halfwidth katakana voicing
        or 0x1F3FB <= code <= 0x1F3FF  # skin tones
        or 0xE0020 <= code <= 0xE007F  # tags, as in the flag of Scotland
    )


def _is_flag(char: str) -> bool:
    return _FLAGS[0] <= char <= _FLAGS[1]


def _joins_hangul(previous: int, code: int) -> bool:
    leading = 0x1100 <= previous <= 0x115F or 0xA960 <= previous <= 0xA97C
    syllable = 0xAC00 <= previous <= 0xD7A3
    open_syllable = syllable and (previous - 0xAC00) % 28 == 0
    vowel = 0x1160 <= previous <= 0x11A7 or 0xD7B0 <= previous <= 0xD7C6
    trailing = 0x11A8 <= previous <= 0x11FF or 0xD7CB <= previous <= 0xD7FB
    if 0x1100 <= code <= 0x115F or 0xA960 <= code <= 0xA97C or 0xAC00 <= code <= 0xD7A3:
        return leading
    if 0x1160 <= code <= 0x11A7 or 0xD7B0 <= code <= 0xD7C6:
        return leading or open_syllable or vowel
    if 0x11A8 <= code <= 0x11FF or 0xD7CB <= code <= 0xD7FB:
        return syllable or vowel or trailing
    return False
