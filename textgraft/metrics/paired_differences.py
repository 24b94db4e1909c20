"""Comparison of two training methods over test texts and over repeated training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from numpy.typing import NDArray

from textgraft.core import formatting
from textgraft.metrics.classification import difference_interval, paired_test

ALPHA = 0.05
"""Significance level."""
Name = TypeVar("Name")


def differences(pairs: Mapping[Name, tuple[NDArray, NDArray]]) -> dict[Name, dict[str, float]]:
    """First minus second scores of each pair, with tests and intervals.

    Args:
        pairs: Scores (seeds, N) of two methods on the same texts under the same seeds.

    Returns:
        "difference"; "p" of its paired test over texts, and "p_holm", corrected for all pairs; "low" and "high" of its
        95 % interval over seeds and texts.
    """
    tests = {name: paired_test(first, second) for name, (first, second) in pairs.items()}
    adjusted = holm({name: test.p for name, test in tests.items()})
    results = {}
    for name, (first, second) in pairs.items():
        _, low, high = difference_interval(first - second)
        results[name] = {**tests[name]._asdict(), "p_holm": adjusted[name], "low": low, "high": high}
    return results


def holm(p_values: Mapping[Name, float]) -> dict[Name, float]:
    """P values corrected for multiple tests (Holm 1979), in the given order.

    >>> holm({"a": 0.01, "b": 0.04})
    {'a': 0.02, 'b': 0.04}
    """
    adjusted, highest = {}, 0.0
    for rank, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        highest = max(highest, min(1.0, p_values[name] * (len(p_values) - rank)))
        adjusted[name] = highest
    return {name: adjusted[name] for name in p_values}


def significant(test: Mapping[str, Any]) -> bool:
    """True if the trained models differ significantly on the texts, regardless of other seeds."""
    return bool(test.get("p_holm", test["p"]) < ALPHA)


def is_robust(test: Mapping[str, Any]) -> bool:
    """True if neither chance in the texts nor in the seeds explains the difference."""
    return significant(test) and not test["low"] <= 0 <= test["high"]


def significance_text(test: Mapping[str, Any]) -> str:
    """Verdict in words about a difference, by its test over texts and its interval over seeds."""
    if not significant(test):
        return "no more than chance could give"
    return "more than chance explains" if is_robust(test) else "true of these trainings, but other seeds could undo it"


def difference_text(test: Mapping[str, float], metric: str) -> str:
    """A difference with its interval: `+5.2 points [+1.0, +9.1]`."""
    return formatting.signed(test["difference"], test["low"], test["high"], metric)
