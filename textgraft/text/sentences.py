"""Where the sentences of a plain text are: a simple splitter for text that nobody has split."""

from __future__ import annotations

import re
from collections.abc import Iterator

# A mark, and the brackets or quotes that close behind it, before a space; Chinese and Japanese marks need none.
_END = re.compile(r"(?<=[.!?…])[\"'”’)\]]*\s+|(?<=[。！？])|\n+")
_SPACES = re.compile(r"\s+")


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """The [start, end) of a text's sentences, without spaces at their ends.

    A text without any full stop or its like (Thai) is cut at its spaces, which end clauses there.
    """
    return list(_pieces(text, _END if has_ends(text) else _SPACES))


def has_ends(text: str) -> bool:
    """Whether there is any full stop or its like, or a line end, to cut the text at."""
    return bool(_END.search(text) or re.search(r"[.!?…。！？]\s*$", text))


def _pieces(text: str, ends: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    begin = 0
    for match in (*ends.finditer(text), None):
        stop = len(text) if match is None else match.end()
        piece = text[begin:stop]
        if piece.strip():
            yield begin + len(piece) - len(piece.lstrip()), begin + len(piece.rstrip())
        begin = stop
