"""Texts split into words, once, in a file for all epochs of training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from textgraft.core.errors import UserError
from textgraft.core.files import writing_atomically
from textgraft.core.progress import Meter
from textgraft.text.words import split_words

MAX_LINE_WORDS = 10_000
"""Maximum number of words of a line, as in gensim's loops. A longer text continues in the next line."""


@lru_cache(maxsize=1 << 17)
def _words_of(piece: str) -> tuple[str, ...]:
    return tuple(piece[start:end] for start, end in split_words(piece))


def words_of(text: str, *, lowercase: bool) -> list[str]:
    """Split a text into words by text.words, punctuation included.

    It is split at white space first, so that each chunk of a corpus is analysed once.
    """
    return [word for piece in (text.lower() if lowercase else text).split() for word in _words_of(piece)]


class WordFile:
    """The words of all texts, a line a text, in order, with the count of each word."""

    def __init__(self, path: Path, counts: Counter[str], lines: int) -> None:
        self.path, self.counts, self.lines = path, counts, lines

    @classmethod
    def write(cls, texts: Iterable[str], path: Path, *, lowercase: bool, show: bool = False) -> WordFile:
        """Split the texts into a file. Raises UserError where they contain no words."""
        counts: Counter[str] = Counter()
        lines = 0
        total = len(texts) if isinstance(texts, (list, tuple)) else None
        with writing_atomically(path) as file, Meter("Cutting words", total, shown=show) as meter:
            for text in texts:
                words = words_of(text, lowercase=lowercase)
                counts.update(words)
                for start in range(0, len(words), MAX_LINE_WORDS):
                    line = " ".join(words[start : start + MAX_LINE_WORDS]).encode("utf-8", "replace")
                    file.write(line + b"\n")
                    lines += 1
                meter.add(len(text.encode("utf-8", "replace")), len(words))
        if not counts:
            raise UserError("the texts contain no words.", remedy="Check that they are the right texts.")
        return cls(path, counts, lines)

    def sentences(self) -> Iterator[list[str]]:
        """The words of each line."""
        with self.path.open(encoding="utf-8", newline="\n") as file:
            for line in file:
                yield line.split()

    def vocabulary(self, *, min_count: int, most: int | None) -> dict[str, int]:
        """Words with at least `min_count` occurrences, the most frequent first and at most `most`, with their counts.

        Raises:
            UserError: Fewer than two words are left.
        """
        kept = sorted((w for w, n in self.counts.items() if n >= min_count), key=lambda w: (-self.counts[w], w))[:most]
        if len(kept) < 2:
            message = f"fewer than two words occur {min_count} times."
            raise UserError(message, remedy="Give more text, or a lower min_count.")
        return {word: self.counts[word] for word in kept}
