"""Label encoding: class names, sets of names or scaled quantities as targets, and back."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NoReturn, get_args

import numpy as np

from textgraft.core.errors import UserError
from textgraft.core.json_text import parse
from textgraft.data.examples import Examples, Label, TargetKind, reads
from textgraft.data.targets import TARGETS, Target, target_of

ClassWeights = str | Mapping[str, float]
"""`"none"`, `"balanced"`, or a weight per class name; missing names have weight 1."""

LARGEST = 1e300
"""Mean and deviation of a quantity are below; NaN is not."""


@dataclass(frozen=True)
class Labels:
    """The label set of a model, fixed by its training examples.

    Attributes:
        kind: Kind of target.
        names: The C class names, sorted; empty for "numeric"; for "choice" the numbers of as many options as a training
            example has (other examples may have more).
        mean, std: Scale a numeric target to zero mean and unit variance, so that loss and learning rate do not depend
            on its unit.

    >>> labels = Labels.fit(Examples(["a", "b"], ["pos", "neg"], "single"))
    >>> labels.names, labels.decode(np.array([1, 0]))
    (('neg', 'pos'), ['pos', 'neg'])
    """

    kind: TargetKind
    names: tuple[str, ...] = ()
    mean: float = 0.0
    std: float = 1.0

    @classmethod
    def fit(cls, examples: Examples) -> Labels:
        """Collect the labels of training examples.

        Raises:
            UserError: There are no labels, some are missing (with their lines), or all are equal.
        """
        if examples.labels is None or not len(examples):
            remedy = "Name the column with label=…, or give labels."
            raise UserError("there are no labels to learn from.", where=examples.source, remedy=remedy)
        validate_labelled(examples)
        target = target_of(examples)
        labels = cls(target.kind, **target.learned(examples))
        if halves := [name for name in labels.names if any("\ud800" <= character <= "\udfff" for character in name)]:
            message = f"label {halves[0]!a} has half of a surrogate pair, which is no character."
            raise UserError(message, where=examples.source, remedy="Correct it.")
        return labels

    @property
    def target(self) -> Target:
        """What follows from the kind."""
        return TARGETS[self.kind]

    @property
    def num_outputs(self) -> int:
        """Number of model outputs per text: C, or 1 for a numeric target."""
        return len(self.names) or 1

    @property
    def num_classes(self) -> int | None:
        """Number of classes C; None for a numeric target."""
        return self.num_outputs if self.target.has_classes else None

    @property
    def lower_is_better(self) -> bool:
        """True where the headline metric is an error."""
        return self.target.lower_is_better

    def output_shape(self, count: int) -> tuple[int, ...]:
        """Shape of the outputs for so many examples: (N, C), or (N,) for a numeric target."""
        return self.target.output_shape(count, self.num_outputs)

    def decisions(self, outputs: np.ndarray) -> np.ndarray:
        """Predictions that outputs stand for: class numbers (N,), bool (N, C) for "multi", or the values (N,)."""
        return self.target.decisions(outputs)

    def unscaled(self, values: np.ndarray) -> np.ndarray:
        """Outputs or targets in the unit of the labels; unchanged but for a numeric target."""
        return self.target.unscaled(self, values)

    def unscaled_errors(self, errors: np.ndarray) -> np.ndarray:
        """Scores of examples in the unit of the labels; unchanged but for a numeric target."""
        return self.target.unscaled_errors(self, errors)

    def encode(self, examples: Examples) -> np.ndarray:
        """Targets of labelled examples.

        Returns:
            int64 (N,) class numbers, float32 (N, C) zeros and ones, or float32 (N,) scaled values.

        Raises:
            UserError: A label is missing or was not seen in training, with its line.
        """
        if examples.labels is None:
            raise UserError("there are no labels.", where=examples.source, remedy="Name the column with label=….")
        validate_labelled(examples)
        return self.target.encode(self, examples)

    def covering(self, examples: Examples) -> Labels:
        """The labels to measure `examples` by: these, followed by the names that only `examples` have.

        No model of these labels can predict the others, so a text with one of them is a mistake of every model.

        Raises:
            UserError: None of the names is a class, which is a wrong column rather than a rare class; or names are
                several of these classes that were not separated.
        """
        missing = set(missing_labels(examples))
        rows = self.target.class_names(examples) if examples.labels is not None else []
        names = {name for index, row in enumerate(rows) if index not in missing for name in row}
        unseen = sorted(names - set(self.names))
        unseparated = (name for name in unseen if self.target.guessed_separator(name, self.names) is not None)
        wrong = next(unseparated, unseen[0] if unseen and not names & set(self.names) else None)
        if wrong is not None:
            self.raise_unseen(wrong, examples.where(next(i for i, row in enumerate(rows) if wrong in row)))
        return replace(self, names=(*self.names, *unseen)) if unseen else self

    def decode(self, targets: np.ndarray) -> list[Label]:
        """The inverse of `encode`; for "multi" every class of at least 0.5, so probabilities decode as well."""
        return self.target.decode(self, targets)

    def class_weights(self, examples: Examples, weights: ClassWeights) -> np.ndarray | None:
        """Weights (C,), float32, of the loss; None if all are equal.

        Args:
            examples: The training examples.
            weights: "none", "balanced" or weights by name. "balanced" is N / (C * count) for "single", as in
                scikit-learn, and (N - count) / count for "multi", the weight of a class's positive examples.

        Raises:
            UserError: A class is unknown, or a weight is not positive and finite.
        """
        if weights == "none":
            return None
        if not self.target.shares_classes:
            raise UserError(f"{self.target.noun} has no classes to weight.", remedy='Use class weights "none".')
        if isinstance(weights, Mapping):
            return self._named_weights(weights)
        if weights != "balanced":
            raise UserError(f"unknown class weights {weights!r}.", remedy="Known: none, balanced, {label: weight}.")
        return self.target.balanced_weights(self.encode(examples), len(self.names))

    def to_json(self) -> str:
        """Contents of an artifact's labels.json."""
        fields = {"kind": self.kind, **self.target.saved(self)}
        return json.dumps(fields, ensure_ascii=False, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, *, where: str = "labels.json") -> Labels:
        """The inverse of `to_json`. Raises UserError for anything else."""
        try:
            fields = parse(text)
        except ValueError:
            fields = None
        if not isinstance(fields, dict):
            fields = {}
        names = fields.get("names", [])
        mean, std = fields.get("mean", 0.0), fields.get("std", 1.0)
        valid = (
            fields.get("kind") in get_args(TargetKind)
            and isinstance(names, list)
            and all(isinstance(name, str) for name in names)
            and len(set(names)) == len(names)
            and bool(names) == TARGETS[fields["kind"]].has_classes
            and all(isinstance(value, (int, float)) and abs(value) < LARGEST for value in (mean, std))
            and std > 0
        )
        if not valid:
            raise UserError("this is not a set of labels.", where=where, remedy="Restore the file, or train again.")
        return cls(fields["kind"], tuple(names), float(mean), float(std))

    def _named_weights(self, weights: Mapping[str, float]) -> np.ndarray:
        for name, weight in weights.items():
            if name not in self.names:
                self.raise_unseen(name, "class weights")
            if not (isinstance(weight, (int, float)) and math.isfinite(weight) and weight > 0):
                raise UserError(f"the weight of '{name}' must be a positive number, not {weight!r}.")
        return np.array([weights.get(name, 1.0) for name in self.names], dtype=np.float32)

    def raise_unseen(self, name: str, where: str) -> NoReturn:
        """Raise UserError for a name that is none of the classes, with the nearest one or the missing separator."""
        shown = ", ".join(self.names[:20])
        more = f", … ({len(self.names)} in all)" if len(self.names) > 20 else ""
        near = difflib.get_close_matches(name, self.names, n=1)
        remedy = f"Did you mean '{near[0]}'?" if near else "Correct it, or train on texts with this label too."
        if (separator := self.target.guessed_separator(name, self.names)) is not None:
            remedy = f"If these are several labels, say what separates them: label_separator={separator!r}."
        raise UserError(f"label '{name}' is not one of: {shown}{more}.", where=where, remedy=remedy)


def missing_labels(examples: Examples) -> list[int]:
    """Indices of examples without a label; an empty set of labels is not missing."""
    labels = examples.labels or ()
    return [i for i, y in enumerate(labels) if y == "" or (isinstance(y, float) and math.isnan(y))]


def validate_labelled(examples: Examples) -> None:
    """Raise UserError, with the first location, for examples without a label."""
    if missing := missing_labels(examples):
        more = f" ({len(missing)} texts have none)" if len(missing) > 1 else ""
        remedy = "Fill it in, or take the row out."
        raise UserError(f"the label is missing{more}.", where=examples.where(missing[0]), remedy=remedy)


def kind_of_texts(examples: Examples, labels: Labels) -> TargetKind | None:
    """Kind of the labels of single texts; None where examples are pairs or multiple-choice questions."""
    return labels.kind if reads(examples.texts) == "texts" else None
