"""Kinds of target, a class each: one label a text, any number of labels, a quantity, a choice between options.

A `Target` has no state: what a model learned about its labels (names, mean, standard deviation) is in `Labels`. What
one module alone does for each kind, such as the losses of a head, is in a dictionary by kind in that module.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, cast

import numpy as np

from textgraft.core.errors import UserError
from textgraft.data.examples import Choice, Examples, InputKind, Label, TargetKind

if TYPE_CHECKING:
    from textgraft.data.labels import Labels

_NUMERIC_STRATA = 10


class Target:
    """A kind of target.

    Attributes:
        kind: Its name.
        metric: The headline metric: a mean over texts, so that it has a bootstrap interval and a paired test.
        lower_is_better: True where the headline metric is an error.
        other_metrics: Metrics that tables show beside the headline one.
        has_classes: Outputs are probabilities, which a temperature calibrates; False for a quantity.
        is_exclusive: Exactly one of the classes or options is correct.
        shares_classes: All texts have the same classes, which can be weighted, counted and confused.
        reads: The kind of input that it needs; None if it goes with texts and pairs.
        noun: The target in messages.
        labels_name: The labels of a data set in messages.
        labels_each: What each text has, in messages.
    """

    kind: ClassVar[TargetKind]
    metric: ClassVar[str] = "accuracy"
    lower_is_better: ClassVar[bool] = False
    other_metrics: ClassVar[tuple[str, ...]] = ()
    has_classes: ClassVar[bool] = True
    is_exclusive: ClassVar[bool] = False
    shares_classes: ClassVar[bool] = True
    reads: ClassVar[InputKind | None] = None
    noun: ClassVar[str]
    labels_name: ClassVar[str] = "labels"
    labels_each: ClassVar[str]

    @property
    def has_one_label(self) -> bool:
        """True where each text has one label out of the same classes."""
        return self.is_exclusive and self.shares_classes

    @property
    def has_sets(self) -> bool:
        """True where each text has any number of labels out of the same classes."""
        return self.shares_classes and not self.is_exclusive

    def learned(self, examples: Examples) -> dict[str, Any]:
        """The fields of `Labels` that training examples determine. Raises UserError if all labels are equal."""
        raise NotImplementedError

    def saved(self, labels: Labels) -> dict[str, Any]:
        """The same fields as JSON values."""
        return {"names": list(labels.names)}

    def encode(self, labels: Labels, examples: Examples) -> np.ndarray:
        """As `Labels.encode`, for examples that all have a label."""
        raise NotImplementedError

    def decode(self, labels: Labels, targets: np.ndarray) -> list[Label]:
        """As `Labels.decode`."""
        raise NotImplementedError

    def class_names(self, examples: Examples) -> list[tuple[str, ...]]:
        """The names of each labelled example's classes; none where examples do not share their classes."""
        return [_names(examples, i) if self.shares_classes else () for i in range(len(examples))]

    def balanced_weights(self, targets: np.ndarray, classes: int) -> np.ndarray:
        """Weights (C,), float32, that give all classes the same influence. Only where texts share their classes."""
        raise NotImplementedError

    def strata(self, labels: Sequence[Label]) -> Sequence[str] | Sequence[int]:
        """The stratum of each label, for samples and folds."""
        return cast(Sequence[str], labels)

    def output_shape(self, count: int, outputs: int) -> tuple[int, ...]:
        """Shape of the outputs for `count` texts."""
        return count, outputs

    def output_count(self, targets: np.ndarray) -> int:
        """Number of outputs per text that targets need."""
        raise NotImplementedError

    def from_columns(self, columns: np.ndarray) -> np.ndarray:
        """Outputs from a network's columns (N, C), which they are but for a quantity: (N,)."""
        return columns

    def decisions(self, outputs: np.ndarray) -> np.ndarray:
        """As `Labels.decisions`."""
        raise NotImplementedError

    def agreement(self, before: np.ndarray, after: np.ndarray) -> float:
        """Share of texts with the same decision in both outputs; for a quantity their correlation."""
        raise NotImplementedError

    def unscaled(self, labels: Labels, values: np.ndarray) -> np.ndarray:
        """As `Labels.unscaled`."""
        return values

    def unscaled_errors(self, labels: Labels, errors: np.ndarray) -> np.ndarray:
        """As `Labels.unscaled_errors`."""
        return errors

    def guessed_separator(self, name: str, names: Sequence[str]) -> str | None:
        """The character that would split an unknown name into known ones; None but for sets of labels."""
        return None


class SingleTarget(Target):
    """One label a text: a softmax over classes."""

    kind: ClassVar[TargetKind] = "single"
    is_exclusive = True
    noun = "one label"
    labels_each = "one"

    def learned(self, examples: Examples) -> dict[str, Any]:
        names = sorted(set(cast(Sequence[str], examples.labels)))
        if len(names) == 1:
            _raise_constant(examples, f"every label is '{names[0]}'")
        return {"names": tuple(names)}

    def encode(self, labels: Labels, examples: Examples) -> np.ndarray:
        rows = [_names(examples, i) for i in range(len(examples))]
        for index, row in enumerate(rows):
            if len(row) != 1:
                raise UserError(f"{len(row)} labels where the model gives one.", where=examples.where(index))
        number = _numbers(labels, examples, rows)
        return np.array([number[row[0]] for row in rows], dtype=np.int64)

    def decode(self, labels: Labels, targets: np.ndarray) -> list[Label]:
        return [labels.names[int(number)] for number in targets]

    def balanced_weights(self, targets: np.ndarray, classes: int) -> np.ndarray:
        counts = np.maximum(np.bincount(targets, minlength=classes), 1)
        return (len(targets) / (classes * counts)).astype(np.float32)

    def output_count(self, targets: np.ndarray) -> int:
        return int(np.max(targets)) + 1

    def decisions(self, outputs: np.ndarray) -> np.ndarray:
        return np.asarray(outputs.argmax(axis=1))

    def agreement(self, before: np.ndarray, after: np.ndarray) -> float:
        return float((before.argmax(1) == after.argmax(1)).mean())


class ChoiceTarget(SingleTarget):
    """One of a question's own options: a softmax over them."""

    kind = "choice"
    shares_classes = False
    reads = "choices"
    noun = "a choice between options"
    labels_name = "right answers"
    labels_each = "options"

    def learned(self, examples: Examples) -> dict[str, Any]:
        return {"names": tuple(str(i + 1) for i in range(most_options(examples.texts)))}

    def encode(self, labels: Labels, examples: Examples) -> np.ndarray:
        return np.array([self._option(examples, i) for i in range(len(examples))], dtype=np.int64)

    def decode(self, labels: Labels, targets: np.ndarray) -> list[Label]:
        return [str(int(number) + 1) for number in targets]

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


class MultiTarget(Target):
    """Any number of labels a text: a sigmoid for each."""

    kind = "multi"
    metric = "subset_accuracy"
    noun = "any number of labels"
    labels_name = "labels (several a text)"
    labels_each = "any number"

    def learned(self, examples: Examples) -> dict[str, Any]:
        sets = cast(Sequence[tuple[str, ...]], examples.labels)
        names = sorted({name for row in sets for name in row})
        if all(len(row) == len(names) for row in sets):
            _raise_constant(examples, f"every text has the labels {', '.join(map(repr, names))}")
        return {"names": tuple(names)}

    def encode(self, labels: Labels, examples: Examples) -> np.ndarray:
        rows = [_names(examples, i) for i in range(len(examples))]
        number = _numbers(labels, examples, rows)
        targets = np.zeros((len(rows), len(labels.names)), dtype=np.float32)
        for index, row in enumerate(rows):
            targets[index, [number[name] for name in row]] = 1
        return targets

    def decode(self, labels: Labels, targets: np.ndarray) -> list[Label]:
        return [tuple(name for name, value in zip(labels.names, row) if value >= 0.5) for row in targets]

    def balanced_weights(self, targets: np.ndarray, classes: int) -> np.ndarray:
        counts = np.maximum(targets.sum(axis=0), 1)
        return ((len(targets) - counts).clip(min=1) / counts).astype(np.float32)

    def strata(self, labels: Sequence[Label]) -> Sequence[str] | Sequence[int]:
        """Each text's rarest label."""
        sets = cast(Sequence[tuple[str, ...]], labels)
        counts = Counter(name for names in sets for name in names)
        return [min(names, key=lambda name: (counts[name], name), default="") for names in sets]

    def output_count(self, targets: np.ndarray) -> int:
        return int(np.asarray(targets).shape[1])

    def decisions(self, outputs: np.ndarray) -> np.ndarray:
        return outputs >= 0.5

    def agreement(self, before: np.ndarray, after: np.ndarray) -> float:
        return float(((before >= 0.5) == (after >= 0.5)).all(axis=1).mean())

    def guessed_separator(self, name: str, names: Sequence[str]) -> str | None:
        for character in sorted({c for c in name if not (c.isalnum() or c == "_")}):
            parts = [part.strip() for part in name.split(character)]
            if set(filter(None, parts)) <= set(names) and any(parts):
                return character
        return None


class NumericTarget(Target):
    """A quantity: the squared error of its standardised value."""

    kind = "numeric"
    metric = "mae"
    lower_is_better = True
    other_metrics = ("pearson", "spearman")
    has_classes = False
    shares_classes = False
    noun = "a numeric target"
    labels_each = "a number"

    def learned(self, examples: Examples) -> dict[str, Any]:
        values = np.asarray(examples.labels, dtype=np.float64)
        if not values.std() > 0:
            _raise_constant(examples, f"every label is {values[0]:g}")
        return {"mean": float(values.mean()), "std": float(values.std())}

    def saved(self, labels: Labels) -> dict[str, Any]:
        return {"mean": labels.mean, "std": labels.std}

    def encode(self, labels: Labels, examples: Examples) -> np.ndarray:
        values = [self._number(examples, i) for i in range(len(examples))]
        return ((np.array(values, dtype=np.float64) - labels.mean) / labels.std).astype(np.float32)

    def decode(self, labels: Labels, targets: np.ndarray) -> list[Label]:
        return [float(value) * labels.std + labels.mean for value in targets]

    def strata(self, labels: Sequence[Label]) -> Sequence[str] | Sequence[int]:
        """Each value's decile."""
        values = np.asarray(labels, dtype=np.float64)
        borders = np.nanquantile(values, np.linspace(0, 1, _NUMERIC_STRATA + 1)[1:-1])
        return cast(list[int], np.searchsorted(borders, values, side="right").tolist())

    def output_shape(self, count: int, outputs: int) -> tuple[int, ...]:
        return (count,)

    def output_count(self, targets: np.ndarray) -> int:
        return 1

    def from_columns(self, columns: np.ndarray) -> np.ndarray:
        return columns[:, 0]

    def decisions(self, outputs: np.ndarray) -> np.ndarray:
        return outputs

    def agreement(self, before: np.ndarray, after: np.ndarray) -> float:
        return float(np.corrcoef(before, after)[0, 1])

    def unscaled(self, labels: Labels, values: np.ndarray) -> np.ndarray:
        return values * labels.std + labels.mean

    def unscaled_errors(self, labels: Labels, errors: np.ndarray) -> np.ndarray:
        return errors * labels.std

    def _number(self, examples: Examples, index: int) -> float:
        label = cast(Sequence[Label], examples.labels)[index]
        try:
            value = float(cast(Any, label))
        except (TypeError, ValueError):
            value = math.nan
        if not math.isfinite(value):
            raise UserError(f"label {label!r} is not a number.", where=examples.where(index))
        return value


TARGETS: Mapping[TargetKind, Target] = {
    "single": SingleTarget(),
    "multi": MultiTarget(),
    "numeric": NumericTarget(),
    "choice": ChoiceTarget(),
}


def target_of(examples: Examples) -> Target:
    """The target of labelled examples."""
    return TARGETS[examples.kind or "single"]


def most_options(texts: Sequence[str]) -> int:
    """Most options of any example."""
    return max((len(text.options) for text in texts if isinstance(text, Choice)), default=0)


def _names(examples: Examples, index: int) -> tuple[str, ...]:
    """Class names of example `index`, whatever kind its own file was read as."""
    return label_names(cast(Sequence[Label], examples.labels)[index])


def label_names(label: Label) -> tuple[str, ...]:
    """The class names that a label of any kind stands for; none for a missing one.

    >>> label_names(("a", "b")), label_names("a"), label_names(3.0), label_names("")
    (('a', 'b'), ('a',), ('3',), ())
    """
    if isinstance(label, float):
        return () if math.isnan(label) else (f"{label:.15g}",)
    return tuple(filter(None, [label])) if isinstance(label, str) else label


def _numbers(labels: Labels, examples: Examples, rows: Sequence[tuple[str, ...]]) -> dict[str, int]:
    """The number of each class. Raises UserError for a name in `rows`, one of each example, that is no class."""
    number = {name: i for i, name in enumerate(labels.names)}
    for index, row in enumerate(rows):
        for name in row:
            if name not in number:
                labels.raise_unseen(name, examples.where(index))
    return number


def _raise_constant(examples: Examples, fact: str) -> NoReturn:
    remedy = "A classifier needs at least two different labels: add examples of another."
    raise UserError(f"{fact}.", where=examples.source, remedy=remedy)
