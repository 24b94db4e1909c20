"""A simple sentence splitter for plain text."""

from __future__ import annotations

import re
from collections.abc import Iterator

# A full stop and closing brackets or quotes after it, before a space; Chinese and Japanese ones need no space.
_END = re.compile(r"(?<=[.!?…])[\"'”’)\]]*\s+|(?<=[。！？])|\n+")
_SPACES = re.compile(r"\s+")


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Start and end of each sentence, white space trimmed.

    A text without full stops or similar (Thai) is split at its spaces, which end clauses there.

    >>> text = "It rained. We left."
    >>> [text[start:end] for start, end in sentence_spans(text)]
    ['It rained.', 'We left.']
    """
    return list(_pieces(text, _END if has_ends(text) else _SPACES))


def has_ends(text: str) -> bool:
    """True if there is a full stop or similar, or a line end, to split at."""
    return bool(_END.search(text) or re.search(r"[.!?…。！？]\s*$", text))


def _pieces(text: str, ends: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    begin = 0
    for match in (*ends.finditer(text), None):
        stop = len(text) if match is None else match.end()
        piece = text[begin:stop]
        if piece.strip():
            yield begin + len(piece) - len(piece.lstrip()), begin + len(piece.rstrip())
        begin = stop
