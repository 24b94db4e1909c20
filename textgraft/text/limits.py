"""Limits on the text that a tokenizer is trained on."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from textgraft.core.errors import UserError

_UNSPACED = re.compile(r"\S{32,}")


def limited(texts: Iterable[str], max_characters: int) -> Iterator[str]:
    """The texts up to `max_characters` characters. Raises UserError if there are none.

    >>> list(limited(["abc", "def"], 4))
    ['abc', 'd']
    """
    characters = 0
    for text in texts:
        characters += len(text)
        yield text[: len(text) - max(0, characters - max_characters)]
        if characters >= max_characters:
            return
    if not characters:
        raise UserError("there is no text to train a tokenizer on.", remedy="Check that the input is not empty.")


def limited_unspaced(texts: Iterable[str], max_unspaced: int) -> Iterator[str]:
    """Remove runs longer than words once `max_unspaced` of their characters have passed."""
    characters = 0
    for text in texts:
        if characters < max_unspaced:
            characters += sum(map(len, _UNSPACED.findall(text)))
            yield text
        else:
            yield _UNSPACED.sub(" ", text)


def without_rare_characters(texts: Iterable[str], min_frequency: int) -> Iterator[str]:
    """Replace each character by a space until it has occurred `min_frequency` times.

    Every character that the trainer sees takes a place in the vocabulary; in an encyclopedia thousands occur only once
    or twice.
    """
    seen: Counter[str] = Counter()
    for text in texts:
        counts = Counter(text)
        seen.update(counts)
        rare = {ord(char): " " for char in counts if seen[char] < min_frequency}
        yield text.translate(rare) if rare else text
