"""Linear layers on feature rows, fitted by scikit-learn and kept as plain arrays of coefficients and intercepts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import normalize
from sklearn.utils.extmath import softmax
from threadpoolctl import threadpool_limits

from textgraft.data.examples import TargetKind
from textgraft.data.targets import TARGETS
from textgraft.linear.estimators import ESTIMATORS
from textgraft.linear.state import State

STRENGTHS = (1.0, 10.0, 100.0)
LATENT_STRENGTHS = (1.0, 10.0)
"""Values of C for latent features. Log loss favours 100 on 100 texts and loses a point of accuracy there (IMDb 80.9 ->
79.7 %).
"""
DIMENSIONS = (20, 50, 100, 200)
"""Numbers of latent dimensions to choose from. Few labels cannot fit 200 weights: on 100 labels of IMDb
cross-validation takes 20 and gains 3 points (77.7 -> 80.9 %, mean of 6 training samples), on 1,000 labels of TREC it
takes all.
"""
FIXED_STRENGTH = 10.0
"""C where cross-validation is not possible."""
MAX_SELECTION_TEXTS = 5_000
"""Training texts that cross-validation uses, a random sample of more."""


@dataclass(frozen=True)
class Linear:
    """Coefficients (R, D), intercepts (R,) and the K classes of a linear model, as scikit-learn fitted them.

    R is 1 for two classes and for a numeric target (which has no classes), K for more classes, and 0 for a single
    class, which has probability 1.
    """

    coefficients: NDArray
    intercepts: NDArray
    classes: NDArray[np.int64]

    @classmethod
    def of(cls, estimator: LogisticRegression | Ridge | DummyClassifier) -> Self:
        """The parameters of a fitted estimator."""
        classes = np.asarray(getattr(estimator, "classes_", ())).astype(np.int64)
        if isinstance(estimator, DummyClassifier):
            return cls(np.zeros((0, 0)), np.zeros(0), classes)
        # In C order, as a file gives them back: with another layout a product differs in its last bits.
        coefficients = np.ascontiguousarray(np.atleast_2d(estimator.coef_))
        return cls(coefficients, np.atleast_1d(estimator.intercept_), classes)

    def scores(self, features: Any) -> NDArray:
        """Decision values (N, R) of dense or sparse features (N, D)."""
        return np.asarray(features @ self.coefficients.T) + self.intercepts

    def probabilities(self, features: Any, width: int) -> NDArray[np.float64]:
        """Class probabilities.

        Args:
            features: Dense or sparse rows (N, D).
            width: Number of columns of the result.

        Returns:
            Probabilities (N, width); 0 in the columns of classes without training texts.
        """
        probabilities = np.zeros((features.shape[0], width))
        if len(self.classes) == 1:
            probabilities[:, self.classes] = 1.0
        elif len(self.classes) == 2:
            second = expit(self.scores(features)[:, 0])
            probabilities[:, self.classes] = np.stack([1 - second, second], axis=1)
        else:
            probabilities[:, self.classes] = softmax(self.scores(features), copy=False)
        return probabilities

    @property
    def nbytes(self) -> int:
        return self.coefficients.nbytes + self.intercepts.nbytes

    def state(self) -> State:
        arrays = {"coefficients": self.coefficients, "intercepts": self.intercepts, "classes": self.classes}
        return State(arrays=arrays)

    @classmethod
    def from_state(cls, state: State, *, features: int, width: int) -> Self:
        """The inverse of `state` for a number of features and classes. Raises ValueError if the arrays do not
        fit them.
        """
        classes = state.array("classes", None)
        if classes.dtype != np.int64 or len(set(classes.tolist())) < len(classes):
            raise ValueError("classes are not distinct integers")
        if len(classes) and not 0 <= classes.min() <= classes.max() < width:
            raise ValueError(f"classes are not in 0..{width - 1}")
        rows = len(classes) if len(classes) > 2 else 1
        if len(classes) == 1:
            return cls(state.array("coefficients", 0, 0), state.array("intercepts", 0), classes)
        return cls(state.array("coefficients", rows, features), state.array("intercepts", rows), classes)


@dataclass(frozen=True)
class Setting:
    """Hyperparameters chosen by cross-validation: C (ridge: 1 / alpha) and the number of latent dimensions."""

    strength: float
    dimensions: int | None = None

    def apply(self, features: Any) -> Any:
        """Features (N, D) cut to the chosen dimensions and normalised; unchanged where no dimensions are chosen."""
        return features if self.dimensions is None else normalize(features[:, : self.dimensions])


@dataclass(frozen=True)
class _Selection:
    """A setting and how it was selected, with the mean of all settings' cross-validated predictions.

    `predictions` are log probabilities (N, C), or values (N,), of held-out texts; `targets` (N,) class columns or
    values.
    """

    setting: Setting
    how: str
    predictions: NDArray[np.float64] | None = None
    targets: NDArray | None = None


@dataclass(frozen=True)
class Output:
    """The fitted output layer: one linear layer, or one per label.

    Attributes:
        kind: Kind of the target.
        layers: One layer; for label sets ("multi") one per label.
        width: Number of classes C.
        setting: The selected hyperparameters.
        about: Description of the layer.
    """

    kind: TargetKind
    layers: list[Linear]
    width: int
    setting: Setting
    about: str

    def predict(self, features: Any) -> NDArray[np.float64]:
        """Predict from feature rows.

        Args:
            features: Dense or sparse rows (N, D).

        Returns:
            Probabilities (N, C), or values (N,) for "numeric". Classes without training texts have probability 0.
        """
        if features.shape[0] == 0:
            return np.zeros(TARGETS[self.kind].output_shape(0, self.width))
        return ESTIMATORS[self.kind].outputs(self.layers, self.setting.apply(features), self.width)

    def size_in_bytes(self) -> int:
        return sum(layer.nbytes for layer in self.layers)

    def state(self) -> State:
        settings = {
            "kind": self.kind,
            "width": self.width,
            "layers": len(self.layers),
            "strength": self.setting.strength,
            "dimensions": self.setting.dimensions,
            "about": self.about,
        }
        return State(settings).with_parts({str(i): layer.state() for i, layer in enumerate(self.layers)})

    @classmethod
    def from_state(cls, state: State, *, features: int) -> Self:
        """The inverse of `state` for a number of features. Raises ValueError if the arrays do not fit them."""
        kind, width = state.setting("kind", str), state.setting("width", int)
        count, dimensions = state.setting("layers", int), state.settings.get("dimensions")
        estimators = ESTIMATORS.get(cast(TargetKind, kind))
        if estimators is None or width < 1 or count != estimators.layer_count(width):
            raise ValueError(f"{count} layers do not fit {width} classes of kind '{kind}'")
        if dimensions is not None:
            features = min(features, state.setting("dimensions", int))
        classes = estimators.layer_width(width)
        layers = [Linear.from_state(state.part(str(i)), features=features, width=classes) for i in range(count)]
        if any(bool(len(layer.classes)) != bool(classes) for layer in layers):
            raise ValueError(f"the layers' classes do not fit kind '{kind}'")
        setting = Setting(float(state.setting("strength", float)), dimensions)
        return cls(kind, layers, width, setting, state.setting("about", str))


@threadpool_limits.wrap(limits=1, user_api="blas")  # as in co_training
def fit_output(features: Any, targets: NDArray, kind: TargetKind, classes: int, seed: int) -> Output:
    """Fit logistic regression (numeric: ridge), its C chosen by cross-validation where the data allow it.

    Args:
        features: Dense or sparse rows (N, D).
        targets: Targets (N,) or (N, C) of the kind.
        kind: Kind of the targets.
        classes: Number of classes C.
        seed: Shuffles the folds.

    Returns:
        The fitted output layer.

    >>> layer = fit_output(np.eye(4), np.array([0, 1, 0, 1]), "single", 2, seed=0)
    >>> layer.predict(np.eye(4)).argmax(axis=1), layer.about
    (array([0, 1, 0, 1]), 'logistic regression, C=10 (fixed)')
    """
    selection = _select_setting([Setting(strength) for strength in STRENGTHS], features, targets, kind, seed)
    return _fit(selection, features, targets, kind, classes)


def fit_latent_output(
    features: Sequence[NDArray], targets: NDArray, kind: TargetKind, classes: int, seed: int
) -> tuple[int, Output]:
    """Fit an output layer on the best variant of a feature map, its C and number of dimensions chosen as well.

    Args:
        features: Coordinates (N, D) of the same texts under each variant, strongest dimension first.
        targets, kind, classes, seed: As for `fit_output`.

    Returns:
        Index of the chosen variant, the first where the data do not allow a choice, and the fitted output layer.
    """
    variant, (output,) = fit_variant([features], targets, kind, classes, seed)
    return variant, output


@threadpool_limits.wrap(limits=1, user_api="blas")  # as in co_training
def fit_variant(
    views: Sequence[Sequence[NDArray]], targets: NDArray, kind: TargetKind, classes: int, seed: int
) -> tuple[int, list[Output]]:
    """Choose one variant for several views at once and fit an output layer on each view.

    The variant (such as plain or residual-IDF weighted) is the same for all views. It is the one with the best
    cross-validated loss of the mean prediction of all settings in all views: comparing best settings instead would
    favour the luckiest.

    Args:
        views: For each view the coordinates (N, D) under each variant.
        targets, kind, classes, seed: As for `fit_output`.

    Returns:
        Index of the chosen variant and an output layer per view.
    """
    selections = [
        [_select_latent_setting(features, targets, kind, seed) for features in variants] for variants in views
    ]
    best = int(np.argmin([_mean_loss(variant, kind) for variant in zip(*selections, strict=True)]))
    return best, [
        _fit(selection[best], variants[best], targets, kind, classes)
        for selection, variants in zip(selections, views, strict=True)
    ]


def _select_latent_setting(features: NDArray, targets: NDArray, kind: TargetKind, seed: int) -> _Selection:
    width = features.shape[1]
    dimensions = sorted({*(min(d, width) for d in DIMENSIONS), width})
    return _select_setting(
        [Setting(strength, d) for d in dimensions for strength in LATENT_STRENGTHS], features, targets, kind, seed
    )


def _fit(selection: _Selection, features: Any, targets: NDArray, kind: TargetKind, classes: int) -> Output:
    setting = selection.setting
    selected = setting.apply(features)
    estimators = ESTIMATORS[kind]
    layers = [Linear.of(one) for one in estimators.fit(selected, targets, setting.strength, classes)]
    dimensions = f"{setting.dimensions} of them -> " if setting.dimensions else ""
    about = f"{dimensions}{estimators.about(setting.strength)} ({selection.how})"
    return Output(kind, layers, classes, setting, about)


def _select_setting(
    settings: list[Setting], features: Any, targets: NDArray, kind: TargetKind, seed: int
) -> _Selection:
    """The setting with the best cross-validated log loss (numeric: squared error), the first on ties."""
    estimators = ESTIMATORS[kind]
    if not estimators.can_select(targets):
        fixed = [s for s in settings if s.strength == FIXED_STRENGTH]
        return _Selection(fixed[-1], "fixed")
    if len(targets) > MAX_SELECTION_TEXTS:
        sample = np.random.default_rng(seed).permutation(len(targets))[:MAX_SELECTION_TEXTS]
        sample = sample[estimators.usable(targets[sample])]
        features, targets = features[sample], targets[sample]
    folds = estimators.folds(features, targets, seed)
    targets = estimators.codes(targets)
    predictions = [
        estimators.cross_validated(setting.apply(features), targets, setting.strength, folds) for setting in settings
    ]
    losses = [
        np.mean([estimators.loss(predicted[held_out], targets[held_out]) for _, held_out in folds])
        for predicted in predictions
    ]
    return _Selection(settings[int(np.argmin(losses))], "cross-validated", np.mean(predictions, axis=0), targets)


def _mean_loss(selections: Sequence[_Selection], kind: TargetKind) -> float:
    """Loss of the mean cross-validated prediction of several views; 0 where nothing was cross-validated."""
    predictions = [selection.predictions for selection in selections if selection.predictions is not None]
    targets = selections[0].targets
    return 0.0 if targets is None else ESTIMATORS[kind].loss(np.mean(predictions, axis=0), targets)
