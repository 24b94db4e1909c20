"""Words of plain text with where they stand: a simple splitter for text that nobody has split.

It cuts as treebanks of English do, more or less (do|n't, it|'s, every mark by itself), keeps web addresses, @names,
#tags and numbers with their points whole, and never cuts inside a grapheme cluster. Thai is cut by the dictionary of
thai.py where that is installed.
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
"""A character of a script that runs words together: Thai, Lao, Tibetan, Burmese, Khmer, Japanese, Chinese."""


def split_words(text: str) -> list[tuple[int, int]]:
    """The [start, end) of the words of a text, in order; all but spaces is in one.

    Warns where a text is Thai and nothing is installed to cut it: its words are then what stands between spaces.
    """
    # Marks are no letters to Python; as letters they stay with the one before, and nothing moves.
    plain = text if text.isascii() else "".join("a" if unicodedata.category(c)[0] == "M" else c for c in text)
    found = [match.span() for match in _WORD.finditer(plain)]
    if text.isascii():
        return found
    segmenter = _segmenter() if _THAI.search(text) else None
    borders = {b for start, end in found for b in (start, end)}
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


def spaced(words: Sequence[str]) -> list[bool]:
    """Whether a space stands before each of the words of a sentence (N,).

    Not between two words of a script that runs them together, nor beside a word that is a space itself, as in ThaiNER.
    """
    if "".join(words).isascii() and " " not in words:
        return [True] * len(words)  # as in most
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
        warnings.warn(f"{error.message} Words of Thai are cut at spaces alone. {error.remedy}", stacklevel=3)
        return None
