"""Words in their contexts: the sentences of plain texts, and where in them words stand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from textgraft.core.errors import UserError
from textgraft.text.sentences import has_ends, sentence_spans
from textgraft.text.words import split_words

SHORTEST, LONGEST = 3, 80
"""Words of the sentences that are taken out of texts; headings and lists are not what a word's context should be."""


class Place(NamedTuple):
    """Where a word stands: the number of the sentence, and of the word in it."""

    sentence: int
    word: int


@dataclass(frozen=True)
class Context:
    """A sentence as it was written, and the [start, end) of each of its words."""

    text: str
    spans: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, text: str) -> Context:
        """A sentence that somebody gave, cut into words. Raises UserError where there are none."""
        spans = tuple(split_words(text))
        if not spans:
            raise UserError("a sentence without a word.", where="--sentence", remedy="Leave it out.")
        return cls(text, spans)

    @property
    def words(self) -> list[str]:
        return [self.text[a:b] for a, b in self.spans]

    def only(self, keep: Callable[[str], bool]) -> Context:
        """The same without the words that are not to be kept."""
        return Context(self.text, tuple(span for span in self.spans if keep(self.text[span[0] : span[1]])))


def read_contexts(texts: Iterable[str], most: int) -> list[Context]:
    """The first `most` different sentences of SHORTEST to LONGEST words, in order.

    Those that are the same word by word are one: a word's contexts are to differ (Ethayarajh 2019, §3.2).
    """
    found: dict[tuple[str, ...], Context] = {}
    for text in texts:
        for line in text.splitlines():
            for context in _sentences(line):
                if SHORTEST <= len(context.spans) <= LONGEST:
                    found.setdefault(tuple(context.words), context)
                if len(found) == most:
                    return list(found.values())
    return list(found.values())


def _sentences(line: str) -> Iterator[Context]:
    """A short line without a full stop is a sentence by itself."""
    words = split_words(line)
    if len(words) <= LONGEST and not has_ends(line):
        yield Context(line, tuple(words))
        return
    for a, b in sentence_spans(line):
        sentence = line[a:b]
        yield Context(sentence, tuple(split_words(sentence)))


def sentence_counts(contexts: Sequence[Context]) -> Counter[str]:
    """In how many of the sentences each word stands, as it is written."""
    return Counter(word for context in contexts for word in set(context.words))


def positions_of(
    contexts: Sequence[Context], words: Collection[str], *, key: Callable[[str], str] = str
) -> dict[str, list[Place]]:
    """Where each of `words` stands, its first place in each sentence; `key` makes two ways of writing one word."""
    found: dict[str, list[Place]] = {word: [] for word in words}
    for number, context in enumerate(contexts):
        seen = set()
        for index, word in enumerate(map(key, context.words)):
            if word in found and word not in seen:
                seen.add(word)
                found[word].append(Place(number, index))
    return found


def sample_positions(contexts: Sequence[Context], n: int, generator: np.random.Generator) -> list[Place]:
    """`n` places drawn from all, one a sentence at most; fewer where there are fewer sentences.

    Drawn uniformly, in an order of which a sentence's first counts: those of a long sentence are a little rarer than
    by themselves, while `n` is small beside the number of sentences.
    """
    ends = np.cumsum([len(context.spans) for context in contexts])
    found: dict[int, Place] = {}
    for drawn in generator.permutation(int(ends[-1]) if len(ends) else 0).tolist():
        if len(found) == n:
            break
        sentence = int(np.searchsorted(ends, drawn, side="right"))
        found.setdefault(sentence, Place(sentence, drawn - int(ends[sentence]) + len(contexts[sentence].spans)))
    return list(found.values())
