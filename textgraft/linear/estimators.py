"""The estimators of scikit-learn on feature rows by kind of target: fitting, cross-validation, outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import KFold, StratifiedKFold

if TYPE_CHECKING:
    from textgraft.data.examples import TargetKind
    from textgraft.linear.linear_layer import Linear

FOLDS = 5
MIN_TEXTS_PER_CLASS = 5
"""Texts of every class that cross-validation needs."""
MAX_SELECTION_CLASSES = 100
"""Classes above which cross-validation takes too long and C is fixed."""
_ABSENT_PROBABILITY = 1e-15


class OneClass:
    """Logistic regression over the classes.

    Targets are as `Labels.encode` returns them. What folds need is only asked for where `can_select` is true.
    """

    def about(self, strength: float) -> str:
        """Name of the estimator with its hyperparameter."""
        return f"logistic regression, C={strength:g}"

    def layer_count(self, width: int) -> int:
        """Number of linear layers for `width` outputs."""
        return 1

    def layer_width(self, width: int) -> int:
        """Number of classes of each layer; 0 without classes."""
        return width

    def fit(self, features: Any, targets: NDArray, strength: float, classes: int) -> list[Any]:
        """One fitted estimator for each layer."""
        return [_classifier(features, targets, strength)]

    def outputs(self, layers: Sequence[Linear], features: Any, width: int) -> NDArray[np.float64]:
        """Probabilities (N, C), or values (N,)."""
        return layers[0].probabilities(features, width)

    def can_select(self, targets: NDArray) -> bool:
        """True where cross-validation is possible: enough texts of each class, and not too many classes."""
        classes = len(np.unique(targets))
        return 1 < classes <= MAX_SELECTION_CLASSES and len(_frequent(targets)) == classes

    def usable(self, targets: NDArray) -> NDArray[np.intp]:
        """Indices of the targets that folds can be made of."""
        return np.flatnonzero(np.isin(targets, _frequent(targets)))

    def folds(self, features: Any, targets: NDArray, seed: int) -> list[tuple[NDArray, NDArray]]:
        """Indices of training and held-out texts of each fold."""
        return list(StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(features, targets))

    def codes(self, targets: NDArray) -> NDArray:
        """Targets as `cross_validated` takes them: columns of the classes that occur, or values."""
        return np.asarray(np.unique(targets, return_inverse=True)[1])

    def cross_validated(
        self, features: Any, targets: NDArray, strength: float, folds: Sequence[tuple[NDArray, NDArray]]
    ) -> NDArray[np.float64]:
        """Log probabilities (N, C), or values (N,), of each text by the model of the fold that held it out."""
        predictions = np.zeros((len(targets), targets.max() + 1))
        for training, held_out in folds:
            model = _classifier(features[training], targets[training], strength)
            predictions[held_out] = np.log(model.predict_proba(features[held_out]) + _ABSENT_PROBABILITY)
        return predictions

    def loss(self, predictions: NDArray[np.float64], targets: NDArray) -> float:
        """Log loss of `cross_validated` log probabilities, normalised first; squared error of values."""
        return float((logsumexp(predictions, axis=1) - predictions[np.arange(len(targets)), targets]).mean())


class Quantity:
    """Ridge regression, alpha = 1 / C."""

    def about(self, strength: float) -> str:
        return f"ridge, alpha={1 / strength:g}"

    def layer_count(self, width: int) -> int:
        return 1

    def layer_width(self, width: int) -> int:
        return 0

    def fit(self, features: Any, targets: NDArray, strength: float, classes: int) -> list[Any]:
        return [_ridge(features, targets, strength)]

    def outputs(self, layers: Sequence[Linear], features: Any, width: int) -> NDArray[np.float64]:
        return np.asarray(layers[0].scores(features)[:, 0])

    def can_select(self, targets: NDArray) -> bool:
        return len(targets) >= FOLDS * MIN_TEXTS_PER_CLASS

    def usable(self, targets: NDArray) -> NDArray[np.intp]:
        return np.arange(len(targets))

    def folds(self, features: Any, targets: NDArray, seed: int) -> list[tuple[NDArray, NDArray]]:
        return list(KFold(FOLDS, shuffle=True, random_state=seed).split(features, targets))

    def codes(self, targets: NDArray) -> NDArray:
        return targets

    def cross_validated(
        self, features: Any, targets: NDArray, strength: float, folds: Sequence[tuple[NDArray, NDArray]]
    ) -> NDArray[np.float64]:
        predictions = np.zeros(len(targets))
        for training, held_out in folds:
            predictions[held_out] = _ridge(features[training], targets[training], strength).predict(features[held_out])
        return predictions

    def loss(self, predictions: NDArray[np.float64], targets: NDArray) -> float:
        return float(np.square(predictions - targets).mean())


class ManyLabels(OneClass):
    """A binary logistic regression for each label, without cross-validation."""

    def layer_count(self, width: int) -> int:
        return width

    def layer_width(self, width: int) -> int:
        return 2

    def fit(self, features: Any, targets: NDArray, strength: float, classes: int) -> list[Any]:
        columns = np.asarray(targets) > 0.5
        return [_classifier(features, columns[:, c], strength) for c in range(classes)]

    def outputs(self, layers: Sequence[Linear], features: Any, width: int) -> NDArray[np.float64]:
        return np.stack([layer.probabilities(features, 2)[:, 1] for layer in layers], axis=1)

    def can_select(self, targets: NDArray) -> bool:
        return False


ESTIMATORS: Mapping[TargetKind, OneClass | Quantity] = {
    "single": OneClass(),
    "multi": ManyLabels(),
    "numeric": Quantity(),
}
"""By kind of target; a choice has linear models of its own (linear.multiple_choice)."""


def _classifier(features: Any, targets: NDArray, strength: float) -> Any:
    """A fitted logistic regression; a constant classifier where all targets are of one class."""
    several = len(np.unique(targets)) > 1
    model = LogisticRegression(C=strength, max_iter=1_000) if several else DummyClassifier()
    return model.fit(features, targets)


def _ridge(features: Any, targets: NDArray, strength: float) -> Any:
    return Ridge(alpha=1 / strength).fit(features, targets)


def _frequent(targets: NDArray) -> NDArray:
    """The classes with at least one text for each fold."""
    classes, counts = np.unique(targets, return_counts=True)
    return classes[counts >= MIN_TEXTS_PER_CLASS]
