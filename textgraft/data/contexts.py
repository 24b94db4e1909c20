"""Words in context: sentences of plain texts and the positions of words in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from textgraft.core.errors import UserError
from textgraft.text.sentences import has_ends, sentence_spans
from textgraft.text.words import split_words

MIN_WORDS, MAX_WORDS = 3, 80
"""Words of the sentences that are taken from texts; headings and lists are not useful contexts."""


class WordPosition(NamedTuple):
    """Index of a sentence, and of a word in it."""

    sentence: int
    word: int


@dataclass(frozen=True)
class Context:
    """A sentence as written, with start and end of each word."""

    text: str
    spans: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, text: str) -> Context:
        """A sentence given by the user, split into words. Raises UserError if there are none."""
        spans = tuple(split_words(text))
        if not spans:
            raise UserError("a sentence without a word.", where="sentences", remedy="Leave it out.")
        return cls(text, spans)

    @property
    def words(self) -> list[str]:
        return [self.text[a:b] for a, b in self.spans]

    def filter_words(self, keep: Callable[[str], bool]) -> Context:
        """A copy without the words for which `keep` is False."""
        return Context(self.text, tuple(span for span in self.spans if keep(self.text[span[0] : span[1]])))


def read_contexts(texts: Iterable[str], limit: int) -> list[Context]:
    """The first `limit` distinct sentences of MIN_WORDS to MAX_WORDS words, in order.

    Sentences with the same words count once: the contexts of a word should differ (Ethayarajh 2019, §3.2).
    """
    contexts: dict[tuple[str, ...], Context] = {}
    for text in texts:
        for line in text.splitlines():
            for context in _sentences(line):
                if MIN_WORDS <= len(context.spans) <= MAX_WORDS:
                    contexts.setdefault(tuple(context.words), context)
                if len(contexts) == limit:
                    return list(contexts.values())
    return list(contexts.values())


def _sentences(line: str) -> Iterator[Context]:
    """The sentences of a line; a short line without a full stop is one."""
    words = split_words(line)
    if len(words) <= MAX_WORDS and not has_ends(line):
        yield Context(line, tuple(words))
        return
    for a, b in sentence_spans(line):
        sentence = line[a:b]
        yield Context(sentence, tuple(split_words(sentence)))


def sentence_counts(contexts: Sequence[Context]) -> Counter[str]:
    """Number of sentences that contain each word, as written."""
    return Counter(word for context in contexts for word in set(context.words))


def positions_of(
    contexts: Sequence[Context], words: Collection[str], *, key: Callable[[str], str] = str
) -> dict[str, list[WordPosition]]:
    """First position of each word in each sentence.

    Args:
        contexts: The sentences.
        words: The words to locate.
        key: Normalises the words of the sentences before comparison.

    Returns:
        The positions of each word.
    """
    positions: dict[str, list[WordPosition]] = {word: [] for word in words}
    for number, context in enumerate(contexts):
        seen = set()
        for index, word in enumerate(map(key, context.words)):
            if word in positions and word not in seen:
                seen.add(word)
                positions[word].append(WordPosition(number, index))
    return positions


def sample_positions(contexts: Sequence[Context], n: int, generator: np.random.Generator) -> list[WordPosition]:
    """A random sample of `n` word positions, at most one per sentence; fewer if there are fewer sentences.

    All positions are permuted and the first of each sentence counts. Words of long sentences are slightly rarer than
    under uniform sampling, as long as `n` is small compared with the number of sentences.
    """
    ends = np.cumsum([len(context.spans) for context in contexts])
    positions: dict[int, WordPosition] = {}
    for index in generator.permutation(int(ends[-1]) if len(ends) else 0).tolist():
        if len(positions) == n:
            break
        sentence = int(np.searchsorted(ends, index, side="right"))
        positions.setdefault(
            sentence, WordPosition(sentence, index - int(ends[sentence]) + len(contexts[sentence].spans))
        )
    return list(positions.values())
