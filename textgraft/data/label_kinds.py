"""The kind of target of whole numbers, which may be codes of classes or a quantity."""

from __future__ import annotations

import re
from collections.abc import Sequence

from textgraft.data.examples import TargetKind

MOST_NUMBER_CLASSES = 20
"""Distinct whole numbers up to which they are classes whatever their name: 0 and 1, one to five stars."""
SAY_QUANTITY = 'If they are a quantity, say kind="numeric".'
_CLASS_WORDS = frozenset(
    (
        *("label", "labels", "class", "classes", "category", "categories", "intent", "intents"),
        *("topic", "topics", "tag", "tags", "code", "codes"),
    )
)
_QUANTITY_WORDS = frozenset(
    (
        *("rating", "ratings", "score", "scores", "stars", "polarity", "grade", "points", "rank", "percent"),
        *("price", "prices", "cost", "amount", "value", "age", "year", "years", "count", "counts", "number", "length"),
        *("percentage", "votes", "likes", "views", "days", "hours", "minutes", "seconds", "duration"),
    )
)


def kind_of_whole_numbers(values: Sequence[float], name: str = "") -> TargetKind:
    """The kind of target that whole numbers suggest by their spread and by the name of their column.

    Classes are up to 20 distinct numbers. More are classes where each occurs twice or more on average, and the name is
    that of a class (`intent`, `class_id`), or the numbers are those from 0 or 1 upwards without a gap and the name is
    not that of a quantity (`score`, `age`). All others are a quantity.

    Args:
        values: The number of each text that has one.
        name: Name of the column.

    >>> kind_of_whole_numbers([*range(30)] * 4), kind_of_whole_numbers([*range(30)] * 4, "age")
    ('single', 'numeric')
    >>> kind_of_whole_numbers([100, *range(30)] * 4), kind_of_whole_numbers([100, *range(30)] * 4, "Intent")
    ('numeric', 'single')
    """
    distinct = set(values)
    if len(distinct) <= MOST_NUMBER_CLASSES:
        return "single"
    words = set(re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).casefold()))
    if len(values) < 2 * len(distinct) or words & _QUANTITY_WORDS:
        return "numeric"
    without_gap = min(distinct) in (0, 1) and max(distinct) - min(distinct) == len(distinct) - 1
    return "single" if words & _CLASS_WORDS or without_gap else "numeric"


def reading_of_whole_numbers(count: int, name: str, kind: TargetKind) -> str:
    """How `count` different whole numbers were understood, and how to have them understood otherwise."""
    readings: dict[TargetKind, str] = {
        "single": f"classes. {SAY_QUANTITY}",
        "numeric": 'a quantity (regression). If they are codes of classes, say kind="single".',
    }
    return f"the {count:,} different whole numbers of {name} are read as {readings[kind]}"
