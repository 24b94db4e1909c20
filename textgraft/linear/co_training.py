"""Few labels, many texts: classifiers that see a text in different ways teach each other on the unlabelled pool."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, diags, vstack
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize

from textgraft.core.errors import UserError
from textgraft.data.examples import TargetKind
from textgraft.linear.fitted import feature_map_from_state
from textgraft.linear.linear_layer import Linear, fit_variant
from textgraft.linear.lsa import FeatureMap
from textgraft.linear.ngram_counts import NgramCounts
from textgraft.linear.ngrams import Ngrams
from textgraft.linear.state import State

LABEL_WEIGHT = 10.0
"""How many texts with a guessed label one with a true label weighs as much as."""
STRENGTH = 10.0
NGRAM_STRENGTH = 1.0
SHARPNESS = 10.0
POOL_TEXTS = 50_000


@dataclass(frozen=True)
class Pool:
    """Unlabelled texts as each view sees them: made once, for any number of labelled samples.

    A view has as many spaces as the others, a side each, of which the labels choose one. Self-training never asks for
    the texts again, so a pool holds only vectors (N, D), a space each, and n-grams (N, V).
    """

    spaces: Mapping[str, Sequence[FeatureMap]]
    vectors: Mapping[str, Sequence[NDArray[np.float64]]]
    ngrams: Ngrams
    rows: csr_matrix

    @classmethod
    def of(cls, texts: NgramCounts, spaces: Mapping[str, Sequence[FeatureMap]], *, seed: int = 0) -> Self:
        """At most POOL_TEXTS of the texts, drawn at random; the n-grams are all that were counted."""
        chosen = texts.sample(POOL_TEXTS, seed=seed)
        ngrams = Ngrams(characters=False, max_features=len(texts.whole.words))
        return cls(spaces, _coordinates(spaces, lambda s: s.place(chosen)), ngrams, ngrams.weigh([chosen.whole]))


@dataclass(frozen=True)
class _View:
    """A space, and the unlabelled and the labelled texts in it."""

    space: FeatureMap
    pool: NDArray[np.float64]
    own: NDArray[np.float64]


@dataclass(frozen=True)
class Views:
    """What a CoTrainedClassifier has learned: a classifier on each space, and one on n-grams whose columns are scaled
    first.

    `spreads` are the standard deviations of what each says of the pool, that of the n-grams first.
    """

    form: ClassVar[str] = "views"
    spaces: Mapping[str, FeatureMap]
    layers: Mapping[str, Linear]
    ngrams: Ngrams
    scale: NDArray[np.float32]
    ngram_layer: Linear
    spreads: NDArray[np.float64]
    width: int
    about: str

    def outputs(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """(N, C), the geometric mean of what the views say, each of them as sure of itself as the others."""
        if not len(texts):
            return np.zeros((0, self.width))
        said = [self.ngrams_say(self.ngrams.transform(texts))]
        for name, layer in self.layers.items():
            said.append(layer.probabilities(normalize(self.spaces[name].transform(texts)), self.width))
        logits = np.mean([_log(p) / spread for p, spread in zip(said, self.spreads, strict=True)], axis=0)
        return np.asarray(softmax(logits * self.spreads.mean(), axis=1))

    def ngrams_say(self, rows: csr_matrix) -> NDArray[np.float64]:
        """(N, C) of the classifier on n-grams (N, V)."""
        return self.ngram_layer.probabilities(rows @ diags(self.scale), self.width)

    def vectors(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """The texts' coordinates in all spaces, side by side."""
        return np.concatenate([space.transform(texts) for space in self.spaces.values()], axis=1)

    def size_in_bytes(self) -> int:
        """Of the views and the spaces they look at."""
        layers = sum(layer.nbytes for layer in (*self.layers.values(), self.ngram_layer))
        spaces = sum(space.size_in_bytes() for space in self.spaces.values())
        return layers + spaces + self.ngrams.size_in_bytes() + self.scale.nbytes

    def state(self) -> State:
        names = list(self.spaces)
        forms = [self.spaces[name].form for name in names]
        parts = {"ngrams": self.ngrams.state(), "ngram_layer": self.ngram_layer.state()}
        parts |= {f"space{i}": self.spaces[name].state() for i, name in enumerate(names)}
        parts |= {f"layer{i}": self.layers[name].state() for i, name in enumerate(names)}
        settings = {"spaces": names, "forms": forms, "width": self.width, "about": self.about}
        return State(settings, {"scale": self.scale, "spreads": self.spreads}).having(parts)

    @classmethod
    def from_state(cls, state: State) -> Self:
        """The inverse of `state`. Raises ValueError for what that cannot have given."""
        names, forms, width = state.setting("spaces", list), state.setting("forms", list), state.setting("width", int)
        if not names or len(forms) != len(names) or not all(isinstance(n, str) for n in (*names, *forms)):
            raise ValueError(f"{len(forms)} forms are named for {len(names)} spaces")
        spaces = {name: feature_map_from_state(forms[i], state.part(f"space{i}")) for i, name in enumerate(names)}
        ngrams = Ngrams.from_state(state.part("ngrams"))
        layers = {
            name: Linear.from_state(state.part(f"layer{i}"), features=space.width, width=width)
            for i, (name, space) in enumerate(spaces.items())
        }
        ngram_layer = Linear.from_state(state.part("ngram_layer"), features=ngrams.width, width=width)
        scale = state.array("scale", ngrams.width)
        # Before there were spreads every view spoke as loudly as it was sure.
        views = 1 + len(names)
        spreads = state.array("spreads", views) if "spreads" in state.arrays else np.ones(views)
        if not (np.isfinite(spreads) & (spreads > 0)).all():
            raise ValueError(f"these are no spreads: {spreads}")
        return cls(spaces, layers, ngrams, scale, ngram_layer, spreads, width, state.setting("about", str))


class CoTrainedClassifier:
    """Classifiers on several spaces and one on n-grams, which learn from each other's answers for the pool.

    Three steps, in the manner of co-training (Blum & Mitchell 1998): a classifier on each space learns from the labels;
    one on n-grams learns what their mean says of the pool; each space's classifier learns anew, from what the others'
    mean says. Where guesses teach, the true labels are there too and weigh LABEL_WEIGHT times as much. Where views have
    several spaces, the side is taken whose classifiers on all views together have the best cross-validated loss.

    A guessed label is the likeliest class once every class is as frequent in the pool as among the labels, which keeps
    one class from swallowing the other. The n-grams are weighted by the largest of their naive Bayes log-count ratios
    (Wang & Manning 2012, who have two classes and one ratio). The answer is the geometric mean of all, whose logarithms
    are first brought to one spread over the pool: a view that is surer of itself than the others is not better.

    For one label a text. `fit` raises UserError for other kinds of target. What was learned is `fitted`, which the pool
    is no part of.
    """

    name = "self-trained"
    about = ""
    fitted: Views

    def __init__(self, pool: Pool, *, seed: int = 0) -> None:
        self.pool = pool
        self.seed = seed

    def fit(
        self,
        texts: Sequence[str],
        targets: NDArray,
        *,
        kind: TargetKind = "single",
        num_classes: int | None = None,
        unlabelled: Sequence[str] | None = None,
    ) -> Self:
        if kind != "single":
            raise UserError("self-training is for one label a text.", remedy="Leave this method out.")
        pool, targets = self.pool, np.asarray(targets)
        width = num_classes or int(targets.max()) + 1
        shares = np.bincount(targets, minlength=width) / len(targets)
        views: dict[str, _View] = {}
        said: dict[str, NDArray[np.float64]] = {}
        own = _coordinates(pool.spaces, lambda space: space.transform(texts))
        side, outputs = fit_variant(list(own.values()), targets, kind, width, self.seed)
        for (name, spaces), output in zip(pool.spaces.items(), outputs, strict=True):
            views[name] = _View(spaces[side], pool.vectors[name][side], own[name][side])
            said[name] = _residual_idf_weighted(output.predict(views[name].pool), shares)
        scale, ngram_layer = _fit_ngrams(pool, _guesses(said.values()), pool.ngrams.transform(texts), targets)
        say = ngram_layer.probabilities(pool.rows @ diags(scale), width)
        ngrams_say, spreads = _residual_idf_weighted(say, shares), [_spread(say, shares)]
        layers: dict[str, Linear] = {}
        for name, view in views.items():
            others = [said[other] for other in views if other != name]
            features = normalize(np.concatenate([view.pool, view.own]))
            layers[name] = _fit_layer(STRENGTH, features, _guesses([*others, ngrams_say]), targets)
            spreads.append(_spread(layers[name].probabilities(features[: len(view.pool)], width), shares))
        size = f"{pool.rows.shape[0]:,} texts"
        chosen = {name: view.space for name, view in views.items()}
        self.about = f"{', '.join(views)} and {pool.rows.shape[1]:,} n-grams teach each other on {size}"
        self.fitted = Views(chosen, layers, pool.ngrams, scale, ngram_layer, np.array(spreads), width, self.about)
        return self

    def predict_proba(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """(N, C), the geometric mean of what the views say, of one spread."""
        return self.fitted.outputs(texts)

    def size_in_bytes(self) -> int:
        """Of the views and the spaces they look at."""
        return self.fitted.size_in_bytes()


def _coordinates(
    spaces: Mapping[str, Sequence[FeatureMap]], asked: Callable[[FeatureMap], NDArray[np.float64]]
) -> dict[str, list[NDArray[np.float64]]]:
    """What is asked of every space (N, D); one that serves both sides of a view is asked once."""
    different = {id(space): space for sides in spaces.values() for space in sides}
    found = {key: asked(space) for key, space in different.items()}
    return {name: [found[id(space)] for space in sides] for name, sides in spaces.items()}


def _residual_idf_weighted(probabilities: NDArray[np.float64], shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log probabilities (N, C), of deviation 1, whose likeliest classes have the shares (C,) of the labels.

    By Sinkhorn's scaling of the columns, on answers made sharp: then shares of probability are shares of texts.
    """
    logits = _log(probabilities)
    known = shares > 0
    logits = SHARPNESS * logits / max(float(logits[:, known].std()), 1e-9)
    for _ in range(100):
        found = softmax(logits, axis=1).mean(axis=0)
        logits[:, known] += np.log(shares[known] / np.maximum(found[known], 1e-9))
    return logits / SHARPNESS


def _spread(probabilities: NDArray[np.float64], shares: NDArray[np.float64]) -> float:
    """The standard deviation of the log probabilities (N, C) of the classes that have labels, less each text's mean."""
    logits = _log(probabilities)[:, shares > 0]
    return max(float((logits - logits.mean(axis=1, keepdims=True)).std()), 1e-9)


def _guesses(said: Iterable[NDArray[np.float64]]) -> NDArray[np.int64]:
    """The class (N,) that the views' mean finds likeliest."""
    return np.asarray(np.mean(list(said), axis=0).argmax(axis=1))


def _fit_ngrams(pool: Pool, guesses: NDArray, own: csr_matrix, targets: NDArray) -> tuple[NDArray[np.float32], Linear]:
    """The scale (V,) of the n-grams by their naive Bayes ratios, and a layer on rows so scaled."""
    rows = vstack([pool.rows, own]).tocsr()
    scale = _log_count_ratios(rows, np.concatenate([guesses, targets]), _weights(guesses, targets))
    return scale, _fit_layer(NGRAM_STRENGTH, rows @ diags(scale), guesses, targets)


def _fit_layer(strength: float, features: Any, guesses: NDArray, targets: NDArray) -> Linear:
    """Logistic regression on texts with guessed labels, then those with true ones."""
    model = LogisticRegression(C=strength, max_iter=1_000)
    classes, weights = np.concatenate([guesses, targets]), _weights(guesses, targets)
    return Linear.of(model.fit(features, classes, sample_weight=weights))


def _log_count_ratios(features: csr_matrix, classes: NDArray, weights: NDArray) -> NDArray[np.float32]:
    """For each n-gram (V,) the largest |log P(n-gram | class) / P(n-gram | other classes)|, add-one smoothed."""
    present = (features > 0).astype(np.float32)
    ratios = np.zeros(features.shape[1])
    total = present.T @ weights + 1
    for c in np.unique(classes):
        inside = present.T @ (weights * (classes == c)) + 1
        outside = total - inside + 1
        ratio = np.log(inside / inside.sum()) - np.log(outside / outside.sum())
        ratios = np.maximum(ratios, np.abs(ratio))
    return ratios.astype(np.float32)


def _weights(guesses: NDArray, targets: NDArray) -> NDArray[np.float64]:
    return np.concatenate([np.ones(len(guesses)), np.full(len(targets), LABEL_WEIGHT)])


def _log(probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.log(np.maximum(probabilities, 1e-9))
