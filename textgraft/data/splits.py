"""Samples, held-out parts and folds that keep every class in training; each a pure function of its seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import cast

import numpy as np

from textgraft.core.errors import UserError
from textgraft.data.examples import Examples

Split = tuple[list[int], list[int]]
"""Indices to train on and indices held out, each ascending; `examples.take` turns them into examples."""
_NUMERIC_STRATA = 10


def sample_per_class(examples: Examples, n: int, seed: int) -> list[int]:
    """`n` random examples of each class (all of a class that has fewer), as ascending indices.

    "single" labels only, since several labels or a number do not sort texts into classes. Raises UserError there,
    without labels, and for n < 1.
    """
    if examples.labels is None or examples.kind != "single":
        raise UserError("a sample per class needs one class label a text.", where=examples.source)
    if n < 1:
        raise UserError(f"cannot sample {n} examples per class.", remedy="Ask for at least 1.")
    groups = _groups(_strata(examples), np.random.default_rng(seed))
    return sorted(int(i) for members in groups for i in members[:n])


def stratified_split(examples: Examples, held_out: float | int, seed: int) -> Split:
    """Hold out a share (a float below 1) or a number (an int) of the different texts, each class in proportion.

    All copies of a text are on one side, that of the first, else what is measured on the other is memory. Shares are
    rounded by largest remainder, and the last example of a class is never held out. Several labels are stratified by
    each text's rarest one, numbers by decile; unlabelled texts are split at random.
    Raises UserError when that leaves either side empty.
    """
    copies = _copies(examples)
    if len(copies) < len(examples):
        _, held = stratified_split(examples.take([same[0] for same in copies]), held_out, seed)
        return _keep_classes(examples, [i for place in held for i in copies[place]])
    number = round(held_out * len(examples)) if isinstance(held_out, float) else held_out
    groups = _groups(_strata(examples), np.random.default_rng(seed))
    spare = np.array([len(members) - (examples.labels is not None) for members in groups])
    if not 0 < number < len(examples) or number > spare.sum():
        raise UserError(
            f"cannot hold out {number} of {len(examples)} examples and keep one of each class for training.",
            where=examples.source,
            remedy="Hold out fewer, or add examples.",
        )
    quota = number * np.array([len(members) for members in groups]) / len(examples)
    taken = np.minimum(np.floor(quota).astype(int), spare)
    for group in np.argsort(taken - quota, kind="stable").tolist() * number:
        if taken.sum() == number:
            break
        taken[group] += taken[group] < spare[group]
    held = [int(i) for members, count in zip(groups, taken) for i in members[:count]]
    return _keep_classes(examples, held)


def stratified_folds(examples: Examples, k: int, seed: int) -> list[Split]:
    """`k` splits whose held-out parts are disjoint and alike in their classes.

    The examples, shuffled within strata, are dealt to the folds in turn (what scikit-learn's StratifiedKFold does).
    Unlike there, the only example of a class stays in training in every fold and is never held out, so that each
    model knows all classes, and all copies of a text are in one fold. Raises UserError for k < 2 or more folds than
    different texts that may be held out.
    """
    copies = _copies(examples)
    if len(copies) < len(examples):
        folds = stratified_folds(examples.take([same[0] for same in copies]), k, seed)
        return [_keep_classes(examples, [i for place in held for i in copies[place]]) for _, held in folds]
    groups = _groups(_strata(examples), np.random.default_rng(seed))
    dealt = [int(i) for members in groups if len(members) > 1 for i in members]
    if not 2 <= k <= len(dealt):
        raise UserError(
            f"cannot make {k} folds of {len(dealt)} different texts.",
            where=examples.source,
            remedy="Use at least 2 folds, and no more than there are different texts in classes of two or more.",
        )
    return [_keep_classes(examples, dealt[fold::k]) for fold in range(k)]


def nested_order(examples: Examples, seed: int) -> list[int]:
    """All indices in an order of which every beginning is a stratified sample, so that a longer one holds a shorter.

    One of each class comes first, in random order; then the j-th of a class's n stands at (j + 1/2) / n of the way,
    which gives each class the share of any beginning that it has of the whole, to within one text. Strata are those
    of `stratified_split`. Raises UserError where there are no examples.
    """
    generator = np.random.default_rng(seed)
    groups = _groups(_strata(examples), generator)
    places = [(np.arange(len(members)) + 0.5) / len(members) * (np.arange(len(members)) > 0) for members in groups]
    order = np.lexsort((generator.random(len(examples)), np.concatenate(places)))
    return [int(i) for i in np.concatenate(groups)[order]]


def _groups(strata: Sequence[str] | Sequence[int], generator: np.random.Generator) -> list[np.ndarray]:
    """The indices of each stratum in random order, strata in sorted order."""
    rank = {stratum: i for i, stratum in enumerate(sorted(set(strata)))}  # type: ignore[type-var]
    numbers = np.array([rank[stratum] for stratum in strata])
    shuffled = generator.permutation(len(numbers))
    order = shuffled[np.argsort(numbers[shuffled], kind="stable")]
    return np.split(order, np.cumsum(np.bincount(numbers))[:-1])


def _copies(examples: Examples) -> list[list[int]]:
    """For each different text the places where it stands, ascending, by the first."""
    found: dict[str, list[int]] = {}
    for index, text in enumerate(examples.texts):
        found.setdefault(text, []).append(index)
    return list(found.values())


def _strata(examples: Examples) -> Sequence[str] | Sequence[int]:
    if not len(examples):
        raise UserError("there are no examples to split.", where=examples.source)
    if examples.labels is None:
        return [0] * len(examples)
    if examples.kind == "numeric":
        values = np.asarray(examples.labels, dtype=np.float64)
        borders = np.nanquantile(values, np.linspace(0, 1, _NUMERIC_STRATA + 1)[1:-1])
        return cast(list[int], np.searchsorted(borders, values, side="right").tolist())
    if examples.kind == "multi":
        sets = cast(Sequence[tuple[str, ...]], examples.labels)
        counts = Counter(name for names in sets for name in names)
        return [min(names, key=lambda name: (counts[name], name), default="") for names in sets]
    return cast(Sequence[str], examples.labels)


def _keep_classes(examples: Examples, held: list[int]) -> Split:
    """The split, with texts given back to training when they hold a label that is nowhere else.

    That is so of several labels, and of copies of one text whose labels contradict each other.
    """
    left = set(held)
    if examples.labels is not None and examples.kind != "numeric":
        names = [label if isinstance(label, tuple) else (label,) for label in examples.labels]
        known = {name for i, own in enumerate(names) if i not in left for name in own}
        for index in sorted(held):
            if not known.issuperset(names[index]):
                left.discard(index)
                known.update(names[index])
    return [i for i in range(len(examples)) if i not in left], sorted(left)
