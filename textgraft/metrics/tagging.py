"""Tagging scores: accuracy over words, and precision, recall and F1 over entities.

An entity is correct if its type, first and last word are (Tjong Kim Sang & De Meulder 2003). For legal tags `conlleval`
and seqeval's strict mode agree, and so do these scores; illegal tags are interpreted as `score_tags` is told.
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
    """Contributions (N,) of N sentences to numerator and denominator of a ratio of sums."""

    part: np.ndarray
    whole: np.ndarray

    @property
    def value(self) -> float | None:
        """The ratio; None for a denominator of 0."""
        return float(self.part.sum() / self.whole.sum()) if self.whole.sum() else None

    def interval(self, level: float = 0.95, *, seed: int = 0, resamples: int = 2000) -> Interval | None:
        """The ratio with a percentile bootstrap interval over sentences; None if undefined.

        Where the ratio is 0 or 1, it is the exact binomial interval over the sentences that count (as in
        metrics.classification.bootstrap_interval): ten correct of ten are not certainty.
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
            sample = generator.integers(0, len(self.part), len(self.part))
            whole = self.whole[sample].sum()
            values[i] = self.part[sample].sum() / whole if whole else np.nan
        low, high = np.nanquantile(values, [tail, 1 - tail])
        return Interval(mean, float(low), float(high))


def paired_ratio_test(a: Ratio, b: Ratio, *, seed: int = 0, draws: int = 5000) -> PairedTest:
    """Test the difference of two taggers on the same sentences by randomly swapping their predictions (Yeh 2000).

    p = (b + 1) / (m + 1) as in Phipson & Smyth 2010. Raises ValueError if a ratio is undefined.
    """
    if a.value is None or b.value is None:
        raise ValueError("a ratio without a whole cannot be compared.")
    difference = a.value - b.value
    terms = np.stack([a.part, a.whole, b.part, b.whole], axis=1).astype(np.float64)
    generator = np.random.default_rng(seed)
    swapped = terms[:, [2, 3, 0, 1]] - terms
    extreme = 0
    for _ in range(draws):
        sums = terms.sum(axis=0) + (generator.random(len(terms)) < 0.5) @ swapped
        if sums[1] and sums[3]:
            extreme += abs(sums[0] / sums[1] - sums[2] / sums[3]) >= abs(difference) - 1e-12
        else:  # one ratio is undefined: the largest possible difference
            extreme += 1
    return PairedTest(difference, (extreme + 1) / (draws + 1))


@dataclass(frozen=True)
class TagScores:
    """Counts per sentence: `words` and correct ones `right` (N,); per type `gold`, `predicted` and correct entities
    `hits` (N, K).
    """

    scheme: Scheme
    types: list[str]
    words: np.ndarray
    right: np.ndarray
    gold: np.ndarray
    predicted: np.ndarray
    hits: np.ndarray

    @property
    def metric(self) -> str:
        """The headline metric: F1 for entities, accuracy for other tags."""
        return "accuracy" if self.scheme == "plain" else "f1"

    def ratio(self, metric: str) -> Ratio:
        """accuracy, or precision, recall or f1 over all entities (micro)."""
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
        """Precision, recall, F1 and number of gold entities of each type; None for a denominator of 0."""
        scores: dict[str, dict[str, float | int | None]] = {}
        for k, name in enumerate(self.types):
            gold, predicted, hits = (int(c[:, k].sum()) for c in (self.gold, self.predicted, self.hits))
            scores[name] = {
                "precision": hits / predicted if predicted else None,
                "recall": hits / gold if gold else None,
                "f1": 2 * hits / (gold + predicted) if gold + predicted else None,
                "support": gold,
            }
        return scores

    def summary(self, *, seed: int = 0) -> dict[str, Any]:
        """`sentences`, `words`, mean, low and high of each metric by a 95 % bootstrap over sentences, and `types`.

        The interval is for other sentences of the same texts: sentences of one text are not independent, so for other
        texts it is somewhat too narrow.
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
    """Compare predicted with gold tags.

    Args:
        gold, predicted: Tags of each sentence.
        scheme: Scheme of the tags.
        reading: Interpretation of illegal tags on both sides: "conlleval" begins an entity wherever one could; "strict"
            (seqeval's) counts only entities written as the scheme demands.

    Raises:
        ValueError: The numbers of words differ.
        UserError: There are no sentences, or no gold entities.
    """
    if not gold:
        raise UserError("there are no sentences to evaluate on.", remedy="Pass at least one.")
    parse: Callable[[Sequence[str]], list[Entity]]
    parse = entities if reading == "conlleval" else lambda tags: strict_entities(tags, scheme)
    entity_pairs: list[tuple[list[Entity], list[Entity]]] = []
    words, correct = np.zeros(len(gold), dtype=np.int64), np.zeros(len(gold), dtype=np.int64)
    for i, (gold_tags, predicted_tags) in enumerate(zip(gold, predicted, strict=True)):
        words[i] = len(gold_tags)
        correct[i] = sum(a == b for a, b in zip(gold_tags, predicted_tags, strict=True))
        entity_pairs.append(([], []) if scheme == "plain" else (parse(gold_tags), parse(predicted_tags)))
    types = sorted({entity.type for entity_pair in entity_pairs for row in entity_pair for entity in row})
    number = {name: k for k, name in enumerate(types)}
    counts = np.zeros((3, len(gold), len(types)), dtype=np.int64)
    for i, (gold_entities, predicted_entities) in enumerate(entity_pairs):
        for row, group in enumerate((gold_entities, predicted_entities, set(gold_entities) & set(predicted_entities))):
            for entity in group:
                counts[row, i, number[entity.type]] += 1
    if scheme != "plain" and not counts[0].any():
        raise UserError("the sentences contain no entity.", remedy="Evaluate on sentences with entities.")
    return TagScores(scheme, types, words, correct, *counts)
