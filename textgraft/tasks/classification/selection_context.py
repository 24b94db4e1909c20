"""The data, folds and run that all candidates of a model selection share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from textgraft.core.context import RunContext
from textgraft.data.examples import Examples
from textgraft.data.labels import Labels
from textgraft.data.splits import Split
from textgraft.linear.fitted import FittedModel

Fit = Callable[[Sequence[str], np.ndarray], FittedModel]
"""From texts and their targets to a fitted classifier."""


@dataclass(frozen=True)
class SelectionContext:
    """The data, folds and run that all candidates share.

    Attributes:
        train: Labelled texts to train on.
        evaluation: Texts to measure on; None where the held-out texts of the folds are measured on.
        evaluation_split: The name of the part of the data that is measured on: "test", "valid" or "folds".
        labels: The labels of the task.
        unlabelled: Texts without labels.
        splits: (training, held-out) indices of each fold into `train`.
        run: Folder for unfinished work, seed, precision and progress.
    """

    train: Examples
    evaluation: Examples | None
    evaluation_split: str
    labels: Labels
    unlabelled: Sequence[str]
    splits: Sequence[Split]
    run: RunContext

    @property
    def seed(self) -> int:
        """The seed of all random numbers."""
        return self.run.first_seed

    @cached_property
    def targets(self) -> np.ndarray:
        """Targets of the training texts: (N,) numbers, or (N, C) of several labels."""
        return self.labels.encode(self.train)

    @cached_property
    def evaluation_labels(self) -> Labels:
        """The labels to measure by: those of the task, and those that only the texts that are measured on have."""
        return self.labels if self.evaluation is None else self.labels.covering(self.evaluation)

    @cached_property
    def evaluation_targets(self) -> np.ndarray:
        """Targets of the texts that are measured on; those of the training texts for folds."""
        return self.targets if self.evaluation is None else self.evaluation_labels.encode(self.evaluation)

    def first_folds(self, count: int) -> SelectionContext:
        """The same without the folds after the first `count`."""
        return replace(self, splits=self.splits[:count])

    @property
    def held_out_folds(self) -> list[list[int]]:
        """Indices of the training texts that each fold holds out."""
        return [held_out for _, held_out in self.splits]

    @property
    def evaluation_folds(self) -> list[list[int]] | None:
        """`held_out_folds` where these are what is measured on, else None."""
        return self.held_out_folds if self.evaluation is None else None

    @cached_property
    def held_out(self) -> np.ndarray:
        """Indices of the training texts that any fold holds out, ascending."""
        return np.array(sorted(index for fold in self.held_out_folds for index in fold), dtype=int)

    def out_of_fold(self, fit: Fit) -> np.ndarray:
        """Predictions for the training texts by classifiers fitted on the other folds.

        Args:
            fit: Fits a classifier on texts and their targets.

        Returns:
            (N, C) probabilities, or (N,) values of a numeric target; NaN for a text that no fold holds out.
        """
        outputs = np.full(self.labels.output_shape(len(self.train)), np.nan)
        for kept, held_out in self.splits:
            fitted = fit([self.train.texts[i] for i in kept], self.targets[kept])
            outputs[held_out] = fitted.outputs([self.train.texts[i] for i in held_out])
        return outputs
