"""How good tags are: accuracy over words, and precision, recall and F1 over entities.

An entity is right if its type, its first and its last word are (Tjong Kim Sang & De Meulder 2003). Of legal tags
`conlleval` and seqeval's strict mode count alike, and so do we; illegal tags are read as asked (see `score_tags`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from textgraft.core.errors import UserError
from textgraft.data.tags import Entity, Scheme, entities, strict_entities
from textgraft.metrics.classification import Interval, PairedTest

Reading = Literal["strict", "conlleval"]


@dataclass(frozen=True)
class Ratio:
    """What each of N sentences adds to the two sides of a ratio; its value is that of the sums."""

    part: np.ndarray
    whole: np.ndarray

    @property
    def value(self) -> float | None:
        """None where there is nothing to divide by."""
        return float(self.part.sum() / self.whole.sum()) if self.whole.sum() else None

    def interval(self, level: float = 0.95, *, seed: int = 0, resamples: int = 2000) -> Interval | None:
        """The value with its percentile bootstrap interval, sentences resampled; None where it has no value.

        Where all is wrong, or all right, it is the exact binomial one over the sentences that count (as in
        metrics.bootstrap_interval): ten right of ten are no certainty.
        """
        mean, tail = self.value, (1 - level) / 2
        if mean is None:
            return None
        if mean in (0.0, 1.0):
            bound = tail ** (1.0 / int((self.whole > 0).sum()))
            return Interval(mean, bound, 1.0) if mean == 1.0 else Interval(mean, 0.0, 1.0 - bound)
        generator = np.random.default_rng(seed)
        values = np.empty(resamples)
        for i in range(resamples):
            drawn = generator.integers(0, len(self.part), len(self.part))
            whole = self.whole[drawn].sum()
            values[i] = self.part[drawn].sum() / whole if whole else np.nan
        low, high = np.nanquantile(values, [tail, 1 - tail])
        return Interval(mean, float(low), float(high))


def paired_ratio_test(a: Ratio, b: Ratio, *, seed: int = 0, draws: int = 5000) -> PairedTest:
    """Whether two taggers differ on the same sentences, by swapping their answers at random (Yeh 2000).

    p = (b + 1) / (m + 1) as in Phipson & Smyth 2010. Raises ValueError where a ratio has no value.
    """
    if a.value is None or b.value is None:
        raise ValueError("a ratio without a whole cannot be compared.")
    difference = a.value - b.value
    sides = np.stack([a.part, a.whole, b.part, b.whole], axis=1).astype(np.float64)
    generator = np.random.default_rng(seed)
    swapped = sides[:, [2, 3, 0, 1]] - sides
    extreme = 0
    for _ in range(draws):
        sums = sides.sum(axis=0) + (generator.random(len(sides)) < 0.5) @ swapped
        if sums[1] and sums[3]:
            extreme += abs(sums[0] / sums[1] - sums[2] / sums[3]) >= abs(difference) - 1e-12
        else:  # all that counts is on one side: as far apart as can be
            extreme += 1
    return PairedTest(difference, (extreme + 1) / (draws + 1))


@dataclass(frozen=True)
class TagScores:
    """N sentences: `words` and `right` (N,), and of each of K types its entities `gold`, `predicted`, `hits` (N, K)."""

    scheme: Scheme
    types: list[str]
    words: np.ndarray
    right: np.ndarray
    gold: np.ndarray
    predicted: np.ndarray
    hits: np.ndarray

    @property
    def metric(self) -> str:
        """What decides: F1 of entities, accuracy of other tags."""
        return "accuracy" if self.scheme == "plain" else "f1"

    def ratio(self, metric: str) -> Ratio:
        """accuracy, precision, recall or f1 of all entities together (micro)."""
        gold, predicted, hits = (counts.sum(axis=1) for counts in (self.gold, self.predicted, self.hits))
        return {
            "accuracy": Ratio(self.right, self.words),
            "precision": Ratio(hits, predicted),
            "recall": Ratio(hits, gold),
            "f1": Ratio(2 * hits, predicted + gold),
        }[metric]

    @property
    def headline(self) -> Ratio:
        return self.ratio(self.metric)

    def of_types(self) -> dict[str, dict[str, float | int | None]]:
        """Precision, recall, F1 and the number of gold entities of each type; None where nothing is divided by."""
        found: dict[str, dict[str, float | int | None]] = {}
        for k, name in enumerate(self.types):
            gold, predicted, hits = (int(c[:, k].sum()) for c in (self.gold, self.predicted, self.hits))
            found[name] = {
                "precision": hits / predicted if predicted else None,
                "recall": hits / gold if gold else None,
                "f1": 2 * hits / (gold + predicted) if gold + predicted else None,
                "support": gold,
            }
        return found

    def summary(self, *, seed: int = 0) -> dict[str, Any]:
        """`sentences`, `words`, and metrics as mean, low and high of a 95 % bootstrap over sentences; then `types`.

        The interval is that of other sentences of the same texts: sentences of one text are not drawn independently,
        so for other texts it is somewhat too narrow.
        """
        result: dict[str, Any] = {"sentences": len(self.words), "words": int(self.words.sum())}
        names = ("accuracy",) if self.scheme == "plain" else ("f1", "precision", "recall", "accuracy")
        for name in names:
            interval = self.ratio(name).interval(seed=seed)
            result[name] = None if interval is None else interval._asdict()
        return result | ({} if self.scheme == "plain" else {"types": self.of_types()})


def score_tags(
    gold: Sequence[Sequence[str]],
    predicted: Sequence[Sequence[str]],
    scheme: Scheme,
    *,
    reading: Reading = "conlleval",
) -> TagScores:
    """Predicted tags beside gold ones. Illegal tags are read as `reading` says, on both sides.

    "conlleval" lets an entity begin wherever one could; "strict" (seqeval's) wants it as the scheme writes it. Raises
    ValueError for another number of words, and UserError where there is nothing to measure.
    """
    if not gold:
        raise UserError("there is not one sentence to measure on.", remedy="Give some.")
    read: Callable[[Sequence[str]], list[Entity]]
    read = entities if reading == "conlleval" else lambda tags: strict_entities(tags, scheme)
    found: list[tuple[list[Entity], list[Entity]]] = []
    words, right = np.zeros(len(gold), dtype=np.int64), np.zeros(len(gold), dtype=np.int64)
    for i, (true, guessed) in enumerate(zip(gold, predicted, strict=True)):
        words[i] = len(true)
        right[i] = sum(a == b for a, b in zip(true, guessed, strict=True))
        found.append(([], []) if scheme == "plain" else (read(true), read(guessed)))
    types = sorted({entity.type for pair in found for side in pair for entity in side})
    number = {name: k for k, name in enumerate(types)}
    counts = np.zeros((3, len(gold), len(types)), dtype=np.int64)
    for i, (true_ones, guessed_ones) in enumerate(found):
        for side, some in enumerate((true_ones, guessed_ones, set(true_ones) & set(guessed_ones))):
            for entity in some:
                counts[side, i, number[entity.type]] += 1
    if scheme != "plain" and not counts[0].any():
        raise UserError("there is not one entity to find.", remedy="Measure on sentences that have some.")
    return TagScores(scheme, types, words, right, *counts)
