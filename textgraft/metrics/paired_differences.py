"""Whether one way of training is better than another: by its test texts, and by whoever trains it another time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from numpy.typing import NDArray

from textgraft.core import formatting
from textgraft.metrics.classification import difference_interval, paired_test

ALPHA = 0.05
Name = TypeVar("Name")


def differences(pairs: Mapping[Name, tuple[NDArray, NDArray]]) -> dict[Name, dict[str, float]]:
    """The first of each pair minus the second, both (seeds, N) scores of the same texts under the same seeds.

    "difference" and its paired test over the texts: "p", and "p_holm", which holds for all pairs together; "low" and
    "high" are the ends of its 95 % interval over seeds and texts.
    """
    tests = {name: paired_test(ours, theirs) for name, (ours, theirs) in pairs.items()}
    adjusted = holm({name: test.p for name, test in tests.items()})
    found = {}
    for name, (ours, theirs) in pairs.items():
        _, low, high = difference_interval(ours - theirs)
        found[name] = {**tests[name]._asdict(), "p_holm": adjusted[name], "low": low, "high": high}
    return found


def holm(p_values: Mapping[Name, float]) -> dict[Name, float]:
    """P values that hold for all tests together (Holm 1979), in the order given."""
    adjusted, highest = {}, 0.0
    for rank, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        highest = max(highest, min(1.0, p_values[name] * (len(p_values) - rank)))
        adjusted[name] = highest
    return {name: adjusted[name] for name in p_values}


def significant(test: Mapping[str, Any]) -> bool:
    """Whether the texts tell a difference of the networks that were trained, whatever others would do."""
    return bool(test.get("p_holm", test["p"]) < ALPHA)


def sure(test: Mapping[str, Any]) -> bool:
    """Whether neither chance in the texts nor in the seeds could give a difference."""
    return significant(test) and not test["low"] <= 0 <= test["high"]


def certainty(test: Mapping[str, Any]) -> str:
    """Whether a difference is more than the luck of the texts (by its test) and of the seeds (by its interval)."""
    if not significant(test):
        return "no more than chance could give"
    return "more than chance explains" if sure(test) else "true of these trainings, but other seeds could undo it"


def difference_text(test: Mapping[str, float], metric: str) -> str:
    """A difference with its interval: `+5.2 points [+1.0, +9.1]`."""
    return formatting.signed(test["difference"], test["low"], test["high"], metric)
