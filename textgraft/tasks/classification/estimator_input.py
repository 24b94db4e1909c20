"""X and y of the estimators of texts: containers of many kinds as lists of texts and of labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from textgraft.core.errors import UserError
from textgraft.data.examples import Label, Pair, each_text, is_missing

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
    """The targets of y: labels as strings or tuples of strings, and the classes of y, sorted."""

    labels: list[Label]
    classes: np.ndarray
    answers: TargetForm

    @classmethod
    def read(cls, y: Any) -> Targets:
        """The targets of y. Raises UserError for missing labels and labels that cannot be sorted, ValueError for a
        quantity.
        """
        values = y.toarray() if hasattr(y, "toarray") else y
        values = values.to_numpy() if hasattr(values, "to_numpy") else values
        rows = values.tolist() if isinstance(values, np.ndarray) else list(values)
        if rows and all(isinstance(row, list | tuple | set | frozenset) for row in rows):
            if not (isinstance(values, np.ndarray) and values.ndim == 2 and values.shape[1] == 1):
                return cls._of_several(rows)
            rows = column_or_1d(values, warn=True).tolist()
        for index, label in enumerate(rows):
            if is_missing(label):
                remedy = "Fill it in, or take the text out."
                raise UserError("the label is missing.", where=f"y[{index}]", remedy=remedy)
        classes = _sorted_classes(rows)
        check_classification_targets(np.array(rows))
        return cls([str(label) for label in rows], classes, "single")

    @classmethod
    def _of_several(cls, rows: Sequence[Any]) -> Targets:
        classes = _sorted_classes([label for row in rows for label in row])
        if _is_indicator(rows):
            named = [tuple(str(i) for i, value in enumerate(row) if value) for row in rows]
            return cls(list(named), np.arange(len(rows[0])), "indicator")
        return cls([tuple(str(label) for label in row) for row in rows], classes, "sets")


def _is_indicator(rows: Sequence[Any]) -> bool:
    """True for rows of zeros and ones, all equally long, which scikit-learn takes for an indicator matrix."""
    ordered = not any(isinstance(row, set | frozenset) for row in rows)
    one_width = len({len(row) for row in rows}) == 1 and len(rows[0]) > 0
    return ordered and one_width and {value for row in rows for value in row} <= {0, 1}


def _sorted_classes(labels: Sequence[Any]) -> np.ndarray:
    try:
        return np.array(sorted(set(labels)))
    except TypeError as error:
        kinds = ", ".join(sorted({type(label).__name__ for label in labels}))
        remedy = "Make all labels strings, or all integers."
        raise UserError(f"the labels are of different kinds ({kinds}).", where="y", remedy=remedy) from error
