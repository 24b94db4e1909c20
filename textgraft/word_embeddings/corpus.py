"""Texts as words, cut once into a file that is read as often as training needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from textgraft.core.errors import UserError
from textgraft.core.files import writing_atomically
from textgraft.core.progress import Meter
from textgraft.text.words import split_words

LONGEST = 10_000
"""Words of a line; gensim's loops read no longer ones. A longer text goes on in the next line."""


@lru_cache(maxsize=1 << 17)
def _words_of(piece: str) -> tuple[str, ...]:
    return tuple(piece[start:end] for start, end in split_words(piece))


def words_of(text: str, *, lowercase: bool) -> list[str]:
    """The words of a text as text.words cuts them, marks among them.

    It is cut at white space first, so that what stands between two spaces needs to be looked at once in a corpus.
    """
    return [word for piece in (text.lower() if lowercase else text).split() for word in _words_of(piece)]


class WordFile:
    """All texts' words, a line a text, in order; and how often each word stands there."""

    def __init__(self, path: Path, counts: Counter[str], lines: int) -> None:
        self.path, self.counts, self.lines = path, counts, lines

    @classmethod
    def write(cls, texts: Iterable[str], path: Path, *, lowercase: bool, show: bool = False) -> WordFile:
        """Cut the texts into a file. Raises UserError where there is no word in them."""
        counts: Counter[str] = Counter()
        lines = 0
        total = len(texts) if isinstance(texts, (list, tuple)) else None
        with writing_atomically(path) as file, Meter("Cutting words", total, shown=show) as meter:
            for text in texts:
                words = words_of(text, lowercase=lowercase)
                counts.update(words)
                for start in range(0, len(words), LONGEST):
                    line = " ".join(words[start : start + LONGEST]).encode("utf-8", "replace")
                    file.write(line + b"\n")
                    lines += 1
                meter.add(len(text.encode("utf-8", "replace")), len(words))
        if not counts:
            raise UserError("there is not one word in the texts.", remedy="Check that they are the right ones.")
        return cls(path, counts, lines)

    def sentences(self) -> Iterator[list[str]]:
        """The words of each line."""
        with self.path.open(encoding="utf-8", newline="\n") as file:
            for line in file:
                yield line.split()

    def vocabulary(self, *, min_count: int, most: int | None) -> dict[str, int]:
        """Words seen at least so often, the most frequent first and no more than `most`, with their counts.

        Raises UserError where fewer than two are left.
        """
        kept = sorted((w for w, n in self.counts.items() if n >= min_count), key=lambda w: (-self.counts[w], w))[:most]
        if len(kept) < 2:
            message = f"fewer than two words are seen {min_count} times."
            raise UserError(message, remedy="Give more text, or a lower min_count.")
        return {word: self.counts[word] for word in kept}
