"""Texts without a label among labelled ones: unlabelled text beside training texts, and none of a test set."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from textgraft.data.examples import Examples, Pair
from textgraft.data.labels import missing_labels


def split_unlabelled(examples: Examples) -> tuple[Examples, list[str]]:
    """The examples that have a label, and the texts of the others, the two of a pair apart.

    Examples without any label stay together, so that what needs labels can say that there are none.

    >>> labelled, texts = split_unlabelled(Examples(["a", "b", "c"], ["pos", "", "neg"], "single"))
    >>> labelled.texts, labelled.lines, texts
    (['a', 'c'], [1, 3], ['b'])
    """
    missing = missing_labels(examples)
    if not missing or len(missing) == len(examples):
        return examples, []
    gaps, texts = set(missing), [examples.texts[i] for i in missing]
    parts = [part for text in texts for part in ((text.first, text.second) if isinstance(text, Pair) else (str(text),))]
    labelled = examples.take([i for i in range(len(examples)) if i not in gaps])
    return labelled, [part for part in parts if part.strip()]


def with_unlabelled(train: Examples, unlabelled: Sequence[str] | None) -> tuple[Examples, list[str] | None]:
    """Training texts that have a label, and the unlabelled texts with those of the others, of which it warns."""
    labelled, texts = split_unlabelled(train)
    _warn(train, labelled, "used as unlabelled text")
    return labelled, [*(unlabelled or ()), *texts] or None


def labelled_only(examples: Examples) -> Examples:
    """The examples that have a label, with a warning of those that are left out."""
    labelled, _ = split_unlabelled(examples)
    _warn(examples, labelled, "left out")
    return labelled


def _warn(examples: Examples, labelled: Examples, use: str) -> None:
    if count := len(examples) - len(labelled):
        texts = f"{count:,} of {len(examples):,} texts have no label and are"
        warnings.warn(f"{examples.source}: {texts} {use}.", stacklevel=3)
