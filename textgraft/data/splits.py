"""Samples, held-out splits and folds that keep every class in training; pure functions of a seed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from textgraft.core.errors import UserError
from textgraft.data.examples import Examples
from textgraft.data.targets import target_of

Split = tuple[list[int], list[int]]
"""Indices of training and of held-out examples, each ascending; `examples.take` selects them."""


def sample_per_class(examples: Examples, n: int, seed: int) -> list[int]:
    """`n` random examples of each class, or all of a smaller class.

    Args:
        examples: Examples with labels of kind "single".
        n: Examples per class.
        seed: Seed of the choice.

    Returns:
        Ascending indices.

    Raises:
        UserError: Labels are missing or of another kind, or n < 1.
    """
    if examples.labels is None or not target_of(examples).has_one_label:
        raise UserError("a sample per class needs one class label per text.", where=examples.source)
    if n < 1:
        raise UserError(f"cannot sample {n} examples per class.", remedy="Use at least 1.")
    groups = _groups(_strata(examples), np.random.default_rng(seed))
    return sorted(int(i) for members in groups for i in members[:n])


def stratified_split(examples: Examples, held_out: float | int, seed: int) -> Split:
    """Hold out a share or a number of the distinct texts, each class in proportion.

    All copies of a text are on the side of the first, to keep the evaluation free of memorised texts. Shares are
    rounded by largest remainder, and the last example of a class is never held out. Label sets are stratified by each
    text's rarest label, numbers by decile; unlabelled texts are split at random.

    Args:
        examples: The examples.
        held_out: A share (float below 1) or a number (int).
        seed: Seed of the choice.

    Raises:
        UserError: Either side would be empty.
    """
    copies = _copies(examples)
    if len(copies) < len(examples):
        _, held_out_indices = stratified_split(examples.take([indices[0] for indices in copies]), held_out, seed)
        return _keep_classes(examples, [i for index in held_out_indices for i in copies[index]])
    count = round(held_out * len(examples)) if isinstance(held_out, float) else held_out
    groups = _groups(_strata(examples), np.random.default_rng(seed))
    spare = np.array([len(members) - (examples.labels is not None) for members in groups])
    if not 0 < count < len(examples) or count > spare.sum():
        raise UserError(
            f"cannot hold out {count} of {len(examples)} examples and keep one of each class for training.",
            where=examples.source,
            remedy="Hold out fewer, or add examples.",
        )
    quota = count * np.array([len(members) for members in groups]) / len(examples)
    chosen = np.minimum(np.floor(quota).astype(int), spare)
    for group in np.argsort(chosen - quota, kind="stable").tolist() * count:
        if chosen.sum() == count:
            break
        chosen[group] += chosen[group] < spare[group]
    held_out_indices = [int(i) for members, count in zip(groups, chosen) for i in members[:count]]
    return _keep_classes(examples, held_out_indices)


def stratified_folds(examples: Examples, k: int, seed: int) -> list[Split]:
    """`k` splits with disjoint held-out parts of similar class frequencies.

    Examples, shuffled within strata, are assigned to folds in turn, as in scikit-learn's StratifiedKFold. Unlike there,
    the only example of a class is in training in every fold, so that each model knows all classes, and all copies of a
    text are in one fold.

    Raises:
        UserError: k < 2, or there are fewer distinct texts that may be held out than folds.
    """
    copies = _copies(examples)
    if len(copies) < len(examples):
        folds = stratified_folds(examples.take([indices[0] for indices in copies]), k, seed)
        return [_keep_classes(examples, [i for index in held_out for i in copies[index]]) for _, held_out in folds]
    groups = _groups(_strata(examples), np.random.default_rng(seed))
    eligible = [int(i) for members in groups if len(members) > 1 for i in members]
    if not eligible:
        raise UserError(
            "there are too few different texts to hold any out.",
            where=examples.source,
            remedy="Add labelled texts; a class needs at least two different ones.",
        )
    if not 2 <= k <= len(eligible):
        raise UserError(
            f"cannot make {k} folds of {len(eligible)} different texts.",
            where=examples.source,
            remedy="Use at least 2 folds, and no more than there are different texts in classes of two or more.",
        )
    return [_keep_classes(examples, eligible[fold::k]) for fold in range(k)]


def nested_order(examples: Examples, seed: int) -> list[int]:
    """All indices in an order whose every prefix is a stratified sample, so that a larger sample contains a smaller
    one.

    One example of each class comes first, in random order; then the j-th of a class's n examples is at (j + 1/2) / n of
    the order, which gives each class its share of any prefix to within one text. Strata are those of
    `stratified_split`. Raises UserError without examples.
    """
    generator = np.random.default_rng(seed)
    groups = _groups(_strata(examples), generator)
    positions = [(np.arange(len(members)) + 0.5) / len(members) * (np.arange(len(members)) > 0) for members in groups]
    order = np.lexsort((generator.random(len(examples)), np.concatenate(positions)))
    return [int(i) for i in np.concatenate(groups)[order]]


def _groups(strata: Sequence[str] | Sequence[int], generator: np.random.Generator) -> list[np.ndarray]:
    """Indices of each stratum in random order, strata sorted."""
    rank = {stratum: i for i, stratum in enumerate(sorted(set(strata)))}  # type: ignore[type-var]
    numbers = np.array([rank[stratum] for stratum in strata])
    shuffled = generator.permutation(len(numbers))
    order = shuffled[np.argsort(numbers[shuffled], kind="stable")]
    return np.split(order, np.cumsum(np.bincount(numbers))[:-1])


def _copies(examples: Examples) -> list[list[int]]:
    """Indices of each distinct text, in order of the first."""
    indices: dict[str, list[int]] = {}
    for index, text in enumerate(examples.texts):
        indices.setdefault(text, []).append(index)
    return list(indices.values())


def _strata(examples: Examples) -> Sequence[str] | Sequence[int]:
    if not len(examples):
        raise UserError("there are no examples to split.", where=examples.source)
    if examples.labels is None:
        return [0] * len(examples)
    return target_of(examples).strata(examples.labels)


def _keep_classes(examples: Examples, held_out: list[int]) -> Split:
    """The split, with texts returned to training whose label occurs nowhere else there.

    This happens with label sets, and with copies of a text whose labels contradict each other.
    """
    remaining = set(held_out)
    if examples.labels is not None and target_of(examples).has_classes:
        names = [label if isinstance(label, tuple) else (label,) for label in examples.labels]
        training_names = {name for i, example_names in enumerate(names) if i not in remaining for name in example_names}
        for index in sorted(held_out):
            if not training_names.issuperset(names[index]):
                remaining.discard(index)
                training_names.update(names[index])
    return [i for i in range(len(examples)) if i not in remaining], sorted(remaining)
