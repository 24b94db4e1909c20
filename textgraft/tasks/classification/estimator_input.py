"""X and y of the estimators of texts: containers of many kinds as lists of texts and of labels."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from textgraft.core.errors import UserError
from textgraft.data.columns import guess_kind, whole_numbers
from textgraft.data.examples import Label, Pair, each_text
from textgraft.data.label_cells import is_list, is_no_label, unpack

TargetForm = Literal["single", "indicator", "sets"]
"""Form of y: one label a text, a row of zeros and ones a text, or a list, tuple or set of labels a text."""


def validate_texts(X: Iterable[str], *, name: str = "X") -> list[str]:
    """X as a list of strings, or of Pairs, where X has two strings in each row.

    Raises UserError for anything that is not one string a text, or two.
    """
    shape: tuple[int, ...] = getattr(X, "shape", (0,))
    if len(shape) != 1 and (len(shape) != 2 or shape[1] != 2):
        what = f"{shape[1]} column{'s' * (shape[1] != 1)}" if len(shape) == 2 else f"{len(shape)} dimensions"
        remedy = "Pass texts in one dimension, such as frame['text'] or X.ravel(), or pairs in two columns."
        raise UserError(f"this has {what}.", where=name, remedy=remedy)
    if len(shape) == 2:
        X = X.to_numpy().tolist() if hasattr(X, "to_numpy") else np.asarray(X).tolist()
    texts = list(each_text(X, name=name))
    for index, text in enumerate(texts):
        if isinstance(text, Pair) != isinstance(texts[0], Pair):
            raise UserError("single texts and pairs are mixed.", where=f"{name}[{index}]")
    return [text if isinstance(text, Pair) else str(text) for text in texts]


def single_texts(unlabelled: Iterable[str] | None) -> list[str] | None:
    """Unlabelled texts as a list, the two texts of a pair apart; None where there are none."""
    if unlabelled is None:
        return None
    texts = validate_texts(unlabelled, name="unlabelled")
    return [part for text in texts for part in ((text.first, text.second) if isinstance(text, Pair) else (text,))]


@dataclass(frozen=True)
class Targets:
    """The targets of y: labels as strings or tuples of strings, "" if missing, and the classes of y, sorted."""

    labels: list[Label]
    classes: np.ndarray
    answers: TargetForm

    @classmethod
    def read(cls, y: Any) -> Targets:
        """The targets of y, with a warning of whole numbers that look like a quantity.

        Raises UserError for labels that cannot be sorted, ValueError for a quantity.
        """
        name, columns = getattr(y, "name", None), list(y.columns) if hasattr(y, "columns") else []
        rows = _rows(y)
        present = [i for i, row in enumerate(rows) if not is_no_label(row)]
        cells = unpack([rows[i] for i in present])
        answers: TargetForm
        if not cells.has_lists:
            _warn_of_quantity(cells.values, str(name or "y"))
            check_classification_targets(np.array(cells.values))
            classes, answers = _sorted_classes(cells.values), "single"
            labels: list[Label] = [class_name(label) for label in cells.values]
        elif cells.numbered:
            classes, answers = np.array(columns or range(cells.numbered)), "indicator"
            names = list(map(class_name, classes.tolist()))
            labels = [tuple(names[int(number)] for number in row) for row in cells.values]
        else:
            sets = [[label for label in row if not is_no_label(label)] for row in cells.values]
            classes, answers = _sorted_classes([label for row in sets for label in row]), "sets"
            labels = [tuple(map(class_name, row)) for row in sets]
        every: list[Label] = [""] * len(rows)
        for index, label in zip(present, labels, strict=True):
            every[index] = label
        return cls(every, classes, answers)


def class_name(label: Any) -> str:
    """The name of a class of y, as labels.json has it; 1.0, which 1 is beside a gap, as 1."""
    return str(int(label)) if isinstance(label, float) and label.is_integer() else str(label)


def label_sets(y: Any) -> list[set[Any]]:
    """The labels of each text, for a y of several labels a text. Raises UserError for a missing one."""
    rows = unpack(_rows(y)).values
    for index, row in enumerate(rows):
        if is_no_label(row):
            raise UserError("the label is missing.", where=f"y[{index}]", remedy="Take the text out.")
    return [set(row) if is_list(row) else {row} for row in rows]


def _rows(y: Any) -> list[Any]:
    """The labels of each text: y without the container; None for a row of a matrix in which all are missing."""
    values = y.toarray() if hasattr(y, "toarray") else y
    values = values.to_numpy() if hasattr(values, "to_numpy") else values
    if not isinstance(values, np.ndarray) or values.ndim == 1:
        return list(values)
    if values.ndim == 2 and values.shape[1] == 1:
        return list(column_or_1d(values, warn=True).tolist())
    return [None if all(map(is_no_label, row)) else row for row in values.tolist()]


def _warn_of_quantity(values: Sequence[Any], name: str) -> None:
    """Warn of whole numbers that the command line would read as a quantity; an estimator of classes cannot."""
    numbers = whole_numbers(values)
    if numbers is not None and guess_kind(values, name) != guess_kind(["class"]):
        reading = f"the {len(set(numbers)):,} different whole numbers are read as classes"
        remedy = 'If they are a quantity, use textgraft.finetune on textgraft.read(..., kind="numeric").'
        warnings.warn(f"{name}: {reading}. {remedy}", stacklevel=4)


def _sorted_classes(labels: Sequence[Any]) -> np.ndarray:
    try:
        return np.array(sorted(set(labels)))
    except TypeError as error:
        kinds = ", ".join(sorted({type(label).__name__ for label in labels}))
        remedy = "Make all labels strings, or all integers."
        raise UserError(f"the labels are of different kinds ({kinds}).", where="y", remedy=remedy) from error
