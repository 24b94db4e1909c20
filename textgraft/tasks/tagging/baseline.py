"""What one would try first: each word has the tag that it had most often."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from textgraft.data.tags import OUTSIDE, Scheme, converted

NAME = "frequent tag"
ABOUT = "The most frequent tag of each word in training; of words not seen there O, or the most frequent tag of all."


def frequent_tags(
    words: Sequence[Sequence[str]], tags: Sequence[Sequence[str]], asked: Sequence[Sequence[str]], scheme: Scheme
) -> list[list[str]]:
    """The tags of the sentences `asked`, by those of `words`; of equally frequent ones the first in the alphabet.

    Entities so tagged may be illegal (I- behind O), and then begin where they could.
    """
    seen: defaultdict[str, Counter[str]] = defaultdict(Counter)
    total: Counter[str] = Counter()
    for sentence, given in zip(words, tags, strict=True):
        for word, tag in zip(sentence, given, strict=True):
            seen[word][tag] += 1
            total[tag] += 1
    best = {word: _first(counts) for word, counts in seen.items()}
    unknown = _first(total) if scheme == "plain" else OUTSIDE
    return [converted([best.get(word, unknown) for word in sentence], scheme) for sentence in asked]


def _first(counts: Counter[str]) -> str:
    return min(counts, key=lambda tag: (-counts[tag], tag))
