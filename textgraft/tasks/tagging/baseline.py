"""Baseline for tagging: each word's most frequent tag in training."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from textgraft.data.tags import OUTSIDE, Scheme, converted

NAME = "frequent tag"
ABOUT = "The most frequent tag of each word in training; of words not seen there O, or the most frequent tag of all."


def frequent_tags(
    words: Sequence[Sequence[str]], tags: Sequence[Sequence[str]], sentences: Sequence[Sequence[str]], scheme: Scheme
) -> list[list[str]]:
    """Predict each word's most frequent training tag; of equally frequent ones the first in the alphabet.

    Entities tagged like this may be illegal (I- behind O); these begin at their first word.

    Args:
        words: Training sentences.
        tags: Their tags.
        sentences: Sentences to tag.
        scheme: Scheme of the tags. A word without training tags has O, or for "plain" the most frequent tag of all.

    Returns:
        The tags of `sentences`, legal in `scheme`.
    """
    counts_of: defaultdict[str, Counter[str]] = defaultdict(Counter)
    total: Counter[str] = Counter()
    for sentence, sentence_tags in zip(words, tags, strict=True):
        for word, tag in zip(sentence, sentence_tags, strict=True):
            counts_of[word][tag] += 1
            total[tag] += 1
    best = {word: _most_frequent(counts) for word, counts in counts_of.items()}
    unknown = _most_frequent(total) if scheme == "plain" else OUTSIDE
    return [converted([best.get(word, unknown) for word in sentence], scheme) for sentence in sentences]


def _most_frequent(counts: Counter[str]) -> str:
    return min(counts, key=lambda tag: (-counts[tag], tag))
