"""Reviews made up of a few words, which no licence binds and a tiny model can tell apart."""

from __future__ import annotations

import random

GOOD = ["great", "wonderful", "superb", "lovely", "brilliant"]
BAD = ["awful", "terrible", "boring", "dreadful", "poor"]
PLAIN = ["the", "and", "movie", "it", "I", "film", "plot", "actor"]


def review(positive: bool, rng: random.Random, words: int = 16) -> str:
    """A made-up review whose class a few words give away."""
    return "The film was " + " ".join(rng.choice((GOOD if positive else BAD) + PLAIN) for _ in range(words)) + "."


def reviews(count: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """Texts and their labels, "neg" and "pos" in turn."""
    rng = random.Random(seed)
    return [review(i % 2 == 1, rng) for i in range(count)], [("neg", "pos")[i % 2] for i in range(count)]
