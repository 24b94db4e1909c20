"""Label encoding: class names, sets of names or scaled quantities as targets, and back."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, cast, get_args

import numpy as np

from textgraft.core.errors import UserError
from textgraft.data.examples import ONE_OF, Choice, Examples, Label, TargetKind, reads

ClassWeights = str | Mapping[str, float]
"""`"none"`, `"balanced"`, or a weight per class name; missing names have weight 1."""


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
        _validate_present(examples)
        kind = examples.kind or "single"
        if kind == "numeric":
            values = np.asarray(examples.labels, dtype=np.float64)
            if not values.std() > 0:
                _raise_constant(examples, f"every label is {values[0]:g}")
            return cls("numeric", mean=float(values.mean()), std=float(values.std()))
        if kind == "choice":
            return cls(kind, tuple(str(i + 1) for i in range(most_options(examples.texts))))
        if kind == "multi":
            sets = cast(Sequence[tuple[str, ...]], examples.labels)
            names = sorted({name for row in sets for name in row})
            if all(len(row) == len(names) for row in sets):
                _raise_constant(examples, f"every text has the labels {', '.join(map(repr, names))}")
        else:
            names = sorted(set(cast(Sequence[str], examples.labels)))
            if len(names) == 1:
                _raise_constant(examples, f"every label is '{names[0]}'")
        return cls(kind, tuple(names))

    @property
    def num_outputs(self) -> int:
        """Number of model outputs per text: C, or 1 for a numeric target."""
        return len(self.names) or 1

    @property
    def num_classes(self) -> int | None:
        """Number of classes C; None for a numeric target."""
        return None if self.kind == "numeric" else self.num_outputs

    @property
    def is_exclusive(self) -> bool:
        """True where an example has exactly one of the classes or options."""
        return self.kind in ONE_OF

    @property
    def lower_is_better(self) -> bool:
        """True where the headline metric is an error."""
        return self.kind == "numeric"

    def output_shape(self, count: int) -> tuple[int, ...]:
        """Shape of the outputs for so many examples: (N, C), or (N,) for a numeric target."""
        return (count,) if self.kind == "numeric" else (count, self.num_outputs)

    def decisions(self, outputs: np.ndarray) -> np.ndarray:
        """Predictions that outputs stand for: class numbers (N,), bool (N, C) for "multi", or the values (N,)."""
        if self.is_exclusive:
            return np.asarray(outputs.argmax(axis=1))
        return outputs if self.kind == "numeric" else outputs >= 0.5

    def unscaled(self, values: np.ndarray) -> np.ndarray:
        """Outputs or targets in the unit of the labels; unchanged but for a numeric target."""
        return values * self.std + self.mean if self.kind == "numeric" else values

    def unscaled_errors(self, errors: np.ndarray) -> np.ndarray:
        """Scores of examples in the unit of the labels; unchanged but for a numeric target."""
        return errors * self.std if self.kind == "numeric" else errors

    def encode(self, examples: Examples) -> np.ndarray:
        """Targets of labelled examples.

        Returns:
            int64 (N,) class numbers, float32 (N, C) zeros and ones, or float32 (N,) scaled values.

        Raises:
            UserError: A label is missing or was not seen in training, with its line.
        """
        if examples.labels is None:
            raise UserError("there are no labels.", where=examples.source, remedy="Name the column with label=….")
        _validate_present(examples)
        if self.kind == "numeric":
            values = [self._number(examples, i) for i in range(len(examples))]
            return ((np.array(values, dtype=np.float64) - self.mean) / self.std).astype(np.float32)
        if self.kind == "choice":
            return np.array([self._option(examples, i) for i in range(len(examples))], dtype=np.int64)
        number = {name: i for i, name in enumerate(self.names)}
        rows = [self._names_of(examples, i) for i in range(len(examples))]
        for index, row in enumerate(rows):
            for name in row:
                if name not in number:
                    self._raise_unseen(name, examples.where(index))
        if self.kind == "single":
            return np.array([number[row[0]] for row in rows], dtype=np.int64)
        targets = np.zeros((len(rows), len(self.names)), dtype=np.float32)
        for index, row in enumerate(rows):
            targets[index, [number[name] for name in row]] = 1
        return targets

    def decode(self, targets: np.ndarray) -> list[Label]:
        """The inverse of `encode`; for "multi" every class of at least 0.5, so probabilities decode as well."""
        if self.kind == "single":
            return [self.names[int(number)] for number in targets]
        if self.kind == "choice":
            return [str(int(number) + 1) for number in targets]
        if self.kind == "multi":
            return [tuple(name for name, value in zip(self.names, row) if value >= 0.5) for row in targets]
        return [float(value) * self.std + self.mean for value in targets]

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
        if self.kind in ("numeric", "choice"):
            target = "a numeric target" if self.kind == "numeric" else "a choice between options"
            raise UserError(f"{target} has no classes to weight.", remedy='Use class weights "none".')
        if isinstance(weights, Mapping):
            return self._named_weights(weights)
        if weights != "balanced":
            raise UserError(f"unknown class weights {weights!r}.", remedy="Known: none, balanced, {label: weight}.")
        targets = self.encode(examples)
        if self.kind == "multi":
            counts = np.maximum(targets.sum(axis=0), 1)
            return ((len(examples) - counts).clip(min=1) / counts).astype(np.float32)
        counts = np.maximum(np.bincount(targets, minlength=len(self.names)), 1)
        return (len(examples) / (len(self.names) * counts)).astype(np.float32)

    def to_json(self) -> str:
        """Contents of an artifact's labels.json."""
        fields: dict[str, Any] = {"kind": self.kind, "names": list(self.names)}
        if self.kind == "numeric":
            fields = {"kind": self.kind, "mean": self.mean, "std": self.std}
        return json.dumps(fields, ensure_ascii=False, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str, *, where: str = "labels.json") -> Labels:
        """The inverse of `to_json`. Raises UserError for anything else."""
        try:
            fields = json.loads(text)
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
            and bool(names) == (fields["kind"] != "numeric")
            and all(isinstance(value, (int, float)) and math.isfinite(value) for value in (mean, std))
            and std > 0
        )
        if not valid:
            raise UserError("this is not a set of labels.", where=where, remedy="Restore the file, or train again.")
        return cls(fields["kind"], tuple(names), float(mean), float(std))

    def _names_of(self, examples: Examples, index: int) -> tuple[str, ...]:
        """Class names of example `index`, whatever kind its own file was read as."""
        label = cast(Sequence[Label], examples.labels)[index]
        if isinstance(label, float):
            label = f"{label:g}"
        names = (label,) if isinstance(label, str) else label
        if self.kind == "single" and len(names) != 1:
            raise UserError(f"{len(names)} labels where the model gives one.", where=examples.where(index))
        return names

    def _option(self, examples: Examples, index: int) -> int:
        """Index of the correct option."""
        text, label = examples.texts[index], cast(Sequence[Label], examples.labels)[index]
        if not isinstance(text, Choice):
            remedy = "Give a context and columns choice1, choice2, … for the options."
            raise UserError("there are no options to choose from.", where=examples.where(index), remedy=remedy)
        numbers = [str(number + 1) for number in range(len(text.options))]
        if label not in numbers:
            message = f"label {label!r} is not the number of one of {len(numbers)} options."
            raise UserError(message, where=examples.where(index), remedy=f"Use one of {', '.join(numbers)}.")
        return numbers.index(cast(str, label))

    def _number(self, examples: Examples, index: int) -> float:
        label = cast(Sequence[Label], examples.labels)[index]
        try:
            value = float(cast(Any, label))
        except (TypeError, ValueError):
            value = math.nan
        if not math.isfinite(value):
            raise UserError(f"label {label!r} is not a number.", where=examples.where(index))
        return value

    def _named_weights(self, weights: Mapping[str, float]) -> np.ndarray:
        for name, weight in weights.items():
            if name not in self.names:
                self._raise_unseen(name, "class weights")
            if not (isinstance(weight, (int, float)) and math.isfinite(weight) and weight > 0):
                raise UserError(f"the weight of '{name}' must be a positive number, not {weight!r}.")
        return np.array([weights.get(name, 1.0) for name in self.names], dtype=np.float32)

    def _raise_unseen(self, name: str, where: str) -> NoReturn:
        shown = ", ".join(self.names[:20])
        more = f", … ({len(self.names)} in all)" if len(self.names) > 20 else ""
        near = difflib.get_close_matches(name, self.names, n=1)
        remedy = f"Did you mean '{near[0]}'?" if near else "Correct it, or train on texts with this label too."
        if (separator := self._guessed_separator(name)) is not None:
            remedy = f"If these are several labels, say what separates them: label_separator={separator!r}."
        raise UserError(f"label '{name}' is not one of: {shown}{more}.", where=where, remedy=remedy)

    def _guessed_separator(self, name: str) -> str | None:
        """A character that would split the name into known labels, for label sets."""
        for character in sorted({c for c in name if not (c.isalnum() or c == "_")}) if self.kind == "multi" else ():
            parts = [part.strip() for part in name.split(character)]
            if set(filter(None, parts)) <= set(self.names) and any(parts):
                return character
        return None


def most_options(texts: Sequence[str]) -> int:
    """Most options of any example."""
    return max((len(text.options) for text in texts if isinstance(text, Choice)), default=0)


def missing_labels(examples: Examples) -> list[int]:
    """Indices of examples without a label; an empty set of labels is not missing."""
    labels = examples.labels or ()
    return [i for i, y in enumerate(labels) if y == "" or (isinstance(y, float) and math.isnan(y))]


def _validate_present(examples: Examples) -> None:
    if missing := missing_labels(examples):
        more = f" ({len(missing)} texts have none)" if len(missing) > 1 else ""
        remedy = "Fill it in, or take the row out."
        raise UserError(f"the label is missing{more}.", where=examples.where(missing[0]), remedy=remedy)


def _raise_constant(examples: Examples, fact: str) -> NoReturn:
    remedy = "A classifier needs at least two different labels: add examples of another."
    raise UserError(f"{fact}.", where=examples.source, remedy=remedy)


def kind_of_texts(examples: Examples, labels: Labels) -> TargetKind | None:
    """Kind of the labels of single texts; None where examples are pairs or multiple-choice questions."""
    return labels.kind if reads(examples.texts) == "texts" else None
