"""A simple word splitter for plain text, with the position of each word.

It splits roughly like English treebanks (do|n't, it|'s, each punctuation mark), keeps web addresses, @names, #tags and
numbers with their points whole, and never splits a grapheme cluster. Thai is segmented by a dictionary (text.thai) if
that is installed.
"""

from __future__ import annotations

import re
import unicodedata
import warnings
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

from textgraft.core.errors import UserError
from textgraft.text.clusters import cluster_spans
from textgraft.text.thai import Segmenter
from textgraft.text.visible import align_visible

_WORD = re.compile(
    r"https?://[^\s<>\"]*[^\s<>\".,;:!?)\]}']|[@#]\w+"
    r"|[^\W\d_]+?(?=n['’]t(?!\w))|n['’]t(?!\w)|['’](?:s|m|d|re|ve|ll)(?!\w)"
    r"|\d+(?:[.,:]\d+)+|\w+|\S",
    re.IGNORECASE,
)
_THAI = re.compile("[\u0e01-\u0e4e]{2}")
RUN_ON = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3001-\u30ff\u3400-\u9fff\uff01-\uff60\U00020000-\U0003ffff]"
)
"""A character of a script without spaces between words: Thai, Lao, Tibetan, Burmese, Khmer, Japanese, Chinese."""


def split_words(text: str) -> list[tuple[int, int]]:
    """Start and end of each word, in order, covering everything but white space.

    Warns about Thai if no segmenter is installed: its words are then separated by spaces only.

    >>> text = "I don't know."
    >>> [text[start:end] for start, end in split_words(text)]
    ['I', 'do', "n't", 'know', '.']
    """
    # Python does not count marks as letters; replaced by letters they stay with the preceding one.
    plain = text if text.isascii() else "".join("a" if unicodedata.category(c)[0] == "M" else c for c in text)
    spans = [match.span() for match in _WORD.finditer(plain)]
    if text.isascii():
        return spans
    segmenter = _segmenter() if _THAI.search(text) else None
    borders = {b for start, end in spans for b in (start, end)}
    if segmenter is not None:
        borders |= set(segmenter.borders(text))
    starts, _ = cluster_spans(text)
    cuts = sorted(b for b in borders if b == len(text) or starts[b] == b)
    words = []
    for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        piece = text[begin:end]
        if piece.strip():
            words.append((begin + len(piece) - len(piece.lstrip()), end - len(piece) + len(piece.rstrip())))
    return words


def split_visible_words(text: str) -> list[tuple[int, int]]:
    r"""`split_words` of a text as a reader sees it: invisible characters neither split words nor are any.

    >>> split_visible_words("a lo\u200bvely day")
    [(0, 1), (2, 9), (10, 13)]
    """
    if text.isascii():
        return split_words(text)
    aligned = align_visible(text)
    return [(aligned.starts[begin], aligned.ends[end - 1]) for begin, end in split_words(aligned.text)]


def spaced(words: Sequence[str]) -> list[bool]:
    """Flags (N,): True if a space precedes the word in its sentence.

    False between two words of a script without spaces, and beside a word that is itself a space, as in ThaiNER.
    """
    if "".join(words).isascii() and " " not in words:
        return [True] * len(words)  # the common case
    run_on = [(bool(RUN_ON.match(w)), bool(RUN_ON.match(w[-1:])), w.isspace()) for w in words]
    return [not run_on[0][2]] + [
        not ((ends and begins) or is_space or was_space)
        for (_, ends, was_space), (begins, _, is_space) in pairwise(run_on)
    ]


@lru_cache(maxsize=1)
def _segmenter() -> Segmenter | None:
    try:
        return Segmenter.installed()
    except UserError as error:
        warnings.warn(f"{error.message} Thai is split at spaces only. {error.remedy}", stacklevel=3)
        return None
