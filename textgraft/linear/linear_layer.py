"""A linear layer on rows of features, fitted by scikit-learn and kept as plain arrays: coefficients and intercepts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.preprocessing import normalize
from sklearn.utils.extmath import softmax

from textgraft.data.examples import TargetKind
from textgraft.linear.state import State

STRENGTHS = (1.0, 10.0, 100.0)
LATENT_STRENGTHS = (1.0, 10.0)
"""Without 100, which log loss likes on 100 texts and which loses a point of accuracy there (IMDb 80.9 -> 79.7 %)."""
DIMENSIONS = (20, 50, 100, 200)
"""How many of a latent space's dimensions the classifier may read. Few labels cannot weigh 200: on 100 labels of IMDb
cross-validation takes 20 and gains 3 points (77.7 -> 80.9 %, mean of 6 draws), on 1,000 labels of TREC it takes all."""
FIXED_STRENGTH = 10.0
CROSS_VALIDATE_FROM = 5
"""Texts of every class."""
CROSS_VALIDATE_AT_MOST = 5_000
CROSS_VALIDATE_CLASSES = 100
"""With more texts a random sample of them chooses; with more classes the choice takes too long and is not made."""


@dataclass(frozen=True)
class Linear:
    """Coefficients (R, D), intercepts (R,) and the K classes that they tell apart, as scikit-learn fitted them.

    R is 1 for two classes and for a quantity (which has no classes), K for more, 0 for one class, which is certain.
    """

    coefficients: NDArray
    intercepts: NDArray
    classes: NDArray[np.int64]

    @classmethod
    def of(cls, estimator: LogisticRegression | Ridge | DummyClassifier) -> Self:
        """What a fitted estimator knows."""
        classes = np.asarray(getattr(estimator, "classes_", ())).astype(np.int64)
        if isinstance(estimator, DummyClassifier):
            return cls(np.zeros((0, 0)), np.zeros(0), classes)
        # In C order, as a file gives them back: with another layout a product differs in its last bits.
        coefficients = np.ascontiguousarray(np.atleast_2d(estimator.coef_))
        return cls(coefficients, np.atleast_1d(estimator.intercept_), classes)

    def scores(self, features: Any) -> NDArray:
        """(N, R) of features (N, D), which may be sparse."""
        return np.asarray(features @ self.coefficients.T) + self.intercepts

    def probabilities(self, features: Any, width: int) -> NDArray[np.float64]:
        """(N, width), zero in the columns of classes that are not among the K."""
        placed = np.zeros((features.shape[0], width))
        if len(self.classes) == 1:
            placed[:, self.classes] = 1.0
        elif len(self.classes) == 2:
            second = expit(self.scores(features)[:, 0])
            placed[:, self.classes] = np.stack([1 - second, second], axis=1)
        else:
            placed[:, self.classes] = softmax(self.scores(features), copy=False)
        return placed

    @property
    def nbytes(self) -> int:
        return self.coefficients.nbytes + self.intercepts.nbytes

    def state(self) -> State:
        arrays = {"coefficients": self.coefficients, "intercepts": self.intercepts, "classes": self.classes}
        return State(arrays=arrays)

    @classmethod
    def from_state(cls, state: State, *, features: int, width: int) -> Self:
        """The inverse of `state`, for so many features and classes. Raises ValueError for what does not fit them."""
        classes = state.array("classes", None)
        if classes.dtype != np.int64 or len(set(classes.tolist())) < len(classes):
            raise ValueError("classes are no different whole numbers")
        if len(classes) and not 0 <= classes.min() <= classes.max() < width:
            raise ValueError(f"classes are not among {width}")
        rows = len(classes) if len(classes) > 2 else 1
        if len(classes) == 1:
            return cls(state.array("coefficients", 0, 0), state.array("intercepts", 0), classes)
        return cls(state.array("coefficients", rows, features), state.array("intercepts", rows), classes)


@dataclass(frozen=True)
class Setting:
    """What is chosen by cross-validation: C (ridge: 1 / alpha), and of a latent space how many dimensions."""

    strength: float
    dimensions: int | None = None

    def view(self, features: Any) -> Any:
        return features if self.dimensions is None else normalize(features[:, : self.dimensions])


@dataclass(frozen=True)
class _Chosen:
    """A setting and how it was chosen; by cross-validation, what all settings' mean answers texts that were left out.

    `answers` are log probabilities (N, C), or values (N,), of texts whose `targets` (N,) are class columns, or values.
    """

    setting: Setting
    how: str
    answers: NDArray[np.float64] | None = None
    targets: NDArray | None = None


@dataclass(frozen=True)
class Output:
    """Fitted linear layers: one, or one a label; `width` is the number of classes they answer for."""

    kind: TargetKind
    layers: list[Linear]
    width: int
    setting: Setting
    about: str

    def predict(self, features: Any) -> NDArray[np.float64]:
        """(N, C) probabilities, or (N,) values for "numeric". Classes without a training text keep probability 0."""
        if features.shape[0] == 0:
            return np.zeros(0 if self.kind == "numeric" else (0, self.width))
        features = self.setting.view(features)
        if self.kind == "numeric":
            return self.layers[0].scores(features)[:, 0]
        if self.kind == "single":
            return self.layers[0].probabilities(features, self.width)
        return np.stack([layer.probabilities(features, 2)[:, 1] for layer in self.layers], axis=1)

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
        return State(settings).having({str(i): layer.state() for i, layer in enumerate(self.layers)})

    @classmethod
    def from_state(cls, state: State, *, features: int) -> Self:
        """The inverse of `state`, on so many features. Raises ValueError for what does not fit them."""
        kind, width = state.setting("kind", str), state.setting("width", int)
        count, dimensions = state.setting("layers", int), state.settings.get("dimensions")
        if kind not in get_args(TargetKind) or width < 1 or count != (width if kind == "multi" else 1):
            raise ValueError(f"{count} layers do not answer for {width} classes of kind '{kind}'")
        if dimensions is not None:
            features = min(features, state.setting("dimensions", int))
        classes = 2 if kind == "multi" else width
        layers = [Linear.from_state(state.part(str(i)), features=features, width=classes) for i in range(count)]
        if any(bool(len(layer.classes)) == (kind == "numeric") for layer in layers):
            raise ValueError(f"these classes are not those of kind '{kind}'")
        setting = Setting(float(state.setting("strength", float)), dimensions)
        return cls(kind, layers, width, setting, state.setting("about", str))


def fit_output(features: Any, targets: NDArray, kind: TargetKind, classes: int, seed: int) -> Output:
    """Logistic regression (numeric: ridge) on features (N, D); cross-validation chooses its strength if data allow."""
    chosen = _choose([Setting(strength) for strength in STRENGTHS], features, targets, kind, seed)
    return _fit(chosen, features, targets, kind, classes)


def fit_latent_output(
    spaces: Sequence[NDArray], targets: NDArray, kind: TargetKind, classes: int, seed: int
) -> tuple[int, Output]:
    """The same on coordinates (N, D) in a space, the strongest first: which of `spaces`, and its classifier.

    How many dimensions count is chosen as well. Where data do not allow a choice it is the first space.
    """
    side, (output,) = fit_variant([spaces], targets, kind, classes, seed)
    return side, output


def fit_variant(
    views: Sequence[Sequence[NDArray]], targets: NDArray, kind: TargetKind, classes: int, seed: int
) -> tuple[int, list[Output]]:
    """The same on several views at once, each of which has as many spaces: which side, and a classifier on each view.

    One side serves all views, for it is one question. It is the one whose settings, all of them in all views, have the
    best mean answer for texts that were left out: of settings the best one is the luckiest, too.
    """
    chosen = [[_choose_latent(features, targets, kind, seed) for features in spaces] for spaces in views]
    best = int(np.argmin([_mean_loss(side, kind) for side in zip(*chosen, strict=True)]))
    return best, [_fit(c[best], s[best], targets, kind, classes) for c, s in zip(chosen, views, strict=True)]


def _choose_latent(features: NDArray, targets: NDArray, kind: TargetKind, seed: int) -> _Chosen:
    reads = sorted({min(d, features.shape[1]) for d in DIMENSIONS})
    return _choose(
        [Setting(strength, d) for d in reads for strength in LATENT_STRENGTHS], features, targets, kind, seed
    )


def _fit(chosen: _Chosen, features: Any, targets: NDArray, kind: TargetKind, classes: int) -> Output:
    setting = chosen.setting
    view = setting.view(features)
    if kind == "multi":
        labels = np.asarray(targets) > 0.5
        fitted = [_model("multi", setting, labels[:, c]).fit(view, labels[:, c]) for c in range(classes)]
    else:
        fitted = [_model(kind, setting, targets).fit(view, targets)]
    c = setting.strength
    name = f"ridge, alpha={1 / c:g}" if kind == "numeric" else f"logistic regression, C={c:g}"
    dimensions = f"{setting.dimensions} of them -> " if setting.dimensions else ""
    layers = [Linear.of(estimator) for estimator in fitted]
    return Output(kind, layers, classes, setting, f"{dimensions}{name} ({chosen.how})")


def _model(kind: TargetKind, setting: Setting, targets: NDArray) -> Any:
    """The estimator; where there is one class only, the one that always says so."""
    if kind == "numeric":
        return Ridge(alpha=1 / setting.strength)
    return LogisticRegression(C=setting.strength, max_iter=1_000) if len(np.unique(targets)) > 1 else DummyClassifier()


def _choose(settings: list[Setting], features: Any, targets: NDArray, kind: TargetKind, seed: int) -> _Chosen:
    """The setting with the best cross-validated log loss (numeric: squared error), the first on ties."""
    classes = len(np.unique(targets)) if kind == "single" else 0
    few = len(_frequent(targets)) < classes if classes else len(targets) < 5 * CROSS_VALIDATE_FROM
    if few or kind == "multi" or classes == 1 or classes > CROSS_VALIDATE_CLASSES:
        fixed = [s for s in settings if s.strength == FIXED_STRENGTH]
        return _Chosen(fixed[-1], "fixed")
    if len(targets) > CROSS_VALIDATE_AT_MOST:
        chosen = np.random.default_rng(seed).permutation(len(targets))[:CROSS_VALIDATE_AT_MOST]
        kept = np.isin(targets[chosen], _frequent(targets[chosen])) if kind == "single" else slice(None)
        features, targets = features[chosen[kept]], targets[chosen[kept]]
    splitter = StratifiedKFold if kind == "single" else KFold
    folds = list(splitter(5, shuffle=True, random_state=seed).split(features, targets))
    if kind == "single":
        targets = np.unique(targets, return_inverse=True)[1]
    answers = [_left_out(kind, setting, features, targets, folds) for setting in settings]
    losses = [np.mean([_loss(kind, given[held], targets[held]) for _, held in folds]) for given in answers]
    return _Chosen(settings[int(np.argmin(losses))], "cross-validated", np.mean(answers, axis=0), targets)


def _left_out(kind: TargetKind, setting: Setting, features: Any, targets: NDArray, folds: Any) -> NDArray[np.float64]:
    """What is answered for each text by the fold that did not learn from it."""
    view = setting.view(features)
    answers = np.zeros((len(targets), targets.max() + 1) if kind == "single" else len(targets))
    for rest, held in folds:
        model = _model(kind, setting, targets[rest]).fit(view[rest], targets[rest])
        answers[held] = (
            np.log(model.predict_proba(view[held]) + 1e-15) if kind == "single" else model.predict(view[held])
        )
    return answers


def _loss(kind: TargetKind, answers: NDArray[np.float64], targets: NDArray) -> float:
    """Log loss of log probabilities that may want normalising; squared error of values."""
    if kind != "single":
        return float(np.square(answers - targets).mean())
    return float((logsumexp(answers, axis=1) - answers[np.arange(len(targets)), targets]).mean())


def _mean_loss(chosen: Sequence[_Chosen], kind: TargetKind) -> float:
    """Of the mean of what several views answer for texts that were left out; 0 where nothing could be left out."""
    answers = [c.answers for c in chosen if c.answers is not None]
    return 0.0 if chosen[0].targets is None else _loss(kind, np.mean(answers, axis=0), chosen[0].targets)


def _frequent(targets: NDArray) -> NDArray:
    """The classes with texts enough for one in each fold."""
    names, counts = np.unique(targets, return_counts=True)
    return names[counts >= CROSS_VALIDATE_FROM]
