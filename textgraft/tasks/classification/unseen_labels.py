"""Labels of texts that are measured on and that training lacked: what they do to the scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from textgraft.core import formatting
from textgraft.core.errors import warn_of_data
from textgraft.data.examples import Examples
from textgraft.data.labels import Labels


@dataclass(frozen=True)
class UnseenLabels:
    """Labels that a model cannot predict, because no text that it was trained on has them; false where there are none.

    Attributes:
        counts: Number of texts that have each.
        texts: Number of texts that have any.
        log_loss_of: What the log loss is of, as there are no probabilities of these labels.
    """

    counts: Mapping[str, int]
    texts: int
    log_loss_of: str = ""

    @classmethod
    def of(cls, labels: Labels, classes: int, targets: np.ndarray) -> Self:
        """The labels after the first `classes` of `labels` (Labels.covering), in the targets of N texts."""
        numbers = range(classes, len(labels.names)) if labels.target.shares_classes else range(0)
        if not numbers:
            return cls({}, 0)
        having = np.stack([targets == n if labels.target.is_exclusive else targets[:, n] > 0 for n in numbers])
        texts = int(having.any(axis=0).sum())
        others = f"the other {len(targets) - texts:,}" if labels.target.is_exclusive else "the labels that training had"
        return cls({labels.names[n]: int(row.sum()) for n, row in zip(numbers, having)}, texts, others)

    def __bool__(self) -> bool:
        return self.texts > 0

    def __str__(self) -> str:
        """`3 texts have a label that training lacked ('ship') and count as mistakes; log loss is of the other 97.`"""
        if not self:
            return ""
        have, count = ("has", "counts as a mistake") if self.texts == 1 else ("have", "count as mistakes")
        start = f"{formatting.texts(self.texts)} {have} a label that training lacked ({formatting.quoted(self.counts)})"
        return f"{start} and {count}; log loss is of {self.log_loss_of}."


def warn_of_unseen_labels(labels: Labels, examples: Examples) -> None:
    """Issue a DataWarning if labelled texts have labels that are none of `labels`."""
    covering = labels.covering(examples)
    if unseen := UnseenLabels.of(covering, labels.num_outputs, covering.encode(examples)):
        warn_of_data(f"{examples.source}: {unseen}")
