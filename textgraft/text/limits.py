"""How much of a stream of texts a tokenizer learns from."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from textgraft.core.errors import UserError

_UNSPACED = re.compile(r"\S{32,}")


def limited(texts: Iterable[str], max_characters: int) -> Iterator[str]:
    """The texts, cut where `max_characters` have passed. Raises UserError where there is nothing to learn from."""
    read = 0
    for text in texts:
        read += len(text)
        yield text[: len(text) - max(0, read - max_characters)]
        if read >= max_characters:
            return
    if not read:
        raise UserError("there is no text to train a tokenizer on.", remedy="Check that the input is not empty.")


def limited_unspaced(texts: Iterable[str], max_unspaced: int) -> Iterator[str]:
    """Leave out stretches longer than words are, once `max_unspaced` of their characters have passed."""
    read = 0
    for text in texts:
        if read < max_unspaced:
            read += sum(map(len, _UNSPACED.findall(text)))
            yield text
        else:
            yield _UNSPACED.sub(" ", text)


def without_rare_characters(texts: Iterable[str], min_frequency: int) -> Iterator[str]:
    """Blank each character until it has been seen `min_frequency` times.

    Every character that the trainer meets takes a place in the vocabulary, and in an encyclopedia thousands occur
    only once or twice.
    """
    seen: Counter[str] = Counter()
    for text in texts:
        here = Counter(text)
        seen.update(here)
        rare = {ord(char): " " for char in here if seen[char] < min_frequency}
        yield text.translate(rare) if rare else text
