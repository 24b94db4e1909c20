"""Detection of encodings older than UTF-8, with evidence; without it there is none."""

from __future__ import annotations

import re
from itertools import pairwise

_WESTERN = frozenset("àáâãäåæçèéêëìíîïñòóôõöøœùúûüßÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÑÒÓÔÕÖØŒÙÚÛÜ‘’‚“”„…–—•·€£§©®™°´«»¡¿½¼¾²×\u00a0")
_NO_WORD = re.compile(r"\b[ÂÃÇËÎÏÑÕÜâãçëîïñõüß]\b")  # alone these are broken UTF-8, not a word of any language
_SIGN_INSIDE = re.compile(r"[^\W\d_][§©®™°´¡¿«»½¼¾²×€£•√∫≈◊†‡¤¦¨¬¯±¶¸¹³‰][^\W\d_]")
_LETTER_IN_WORD = re.compile(r"(?<=[a-z])[^\W\d_a-zA-Z]|[^\W\d_a-zA-Z](?=[a-z])")
_MIN_LETTERS = (4, 2)
"""Non-ASCII letters inside words, and how many different ones, below which no encoding of an old system is tried."""
_OLD_SYSTEMS = ("mac_roman", "cp850")  # of the Macintosh and of DOS; charset-normalizer takes both for cp1250
_LEGACY = (  # common legacy encodings, for every larger script
    *("cp1252", "cp1250", "cp1251", "koi8_r", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258"),
    *("cp874", "cp932", "euc_jp", "gb18030", "big5", "cp949"),
)
KNOWN = ("utf-8", "utf-16", "latin-1", *_LEGACY, *_OLD_SYSTEMS)
"""Encodings for messages to name."""
_MIN_NON_ASCII = (0.03, 8)
"""Share and number of non-ASCII bytes below which a detected language is no evidence."""


def guess_encoding(sample: bytes) -> str | None:
    """The encoding of lines that are not UTF-8; None without evidence for one.

    Windows-1252 needs nothing but Western European characters; Mac Roman and DOS's code page 850 also several of them
    inside words, no capital behind a small letter and no sign between letters; any other a language that
    charset-normalizer detects, in words that could be ones.
    """
    if _is_western(sample, "cp1252"):
        return "cp1252"
    old = [encoding for encoding in _OLD_SYSTEMS if _is_western(sample, encoding) and _has_words(sample, encoding)]
    if old:
        return old[0] if len(old) == 1 else None
    encoding = _detected(sample)
    return encoding if encoding is not None and _is_plausible(sample.decode(encoding, errors="ignore")) else None


def _is_western(sample: bytes, encoding: str) -> bool:
    try:
        text = sample.decode(encoding)
    except UnicodeDecodeError:
        return False
    return all(c.isascii() or c in _WESTERN for c in text) and not _NO_WORD.search(text)


def _has_words(sample: bytes, encoding: str) -> bool:
    """True if non-ASCII characters are letters of words, and not bytes that something damaged."""
    text = sample.decode(encoding)
    letters = _LETTER_IN_WORD.findall(text)
    count, different = _MIN_LETTERS
    return len(letters) >= count and len(set(letters)) >= different and _is_plausible(text)


def _is_plausible(text: str) -> bool:
    """False for a non-ASCII capital behind a small letter (cafŽ) or a sign between letters (gro§artig)."""
    capital = any(b.isupper() and not b.isascii() and a.islower() for a, b in pairwise(text))
    return not capital and not _SIGN_INSIDE.search(text)


def _detected(sample: bytes) -> str | None:
    from charset_normalizer import from_bytes

    share, count = _MIN_NON_ASCII
    if sum(byte > 127 for byte in sample) < max(count, share * len(sample)):
        return None  # the detected language would be that of the ASCII around a few broken bytes
    best = from_bytes(sample, cp_isolation=list(_LEGACY)).best()
    return best.encoding if best is not None and best.coherence > 0 else None
