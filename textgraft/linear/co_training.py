"""Co-training (Blum & Mitchell 1998): classifiers on different views of a text label an unlabelled pool for one
another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, diags, vstack
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize
from threadpoolctl import threadpool_limits

from textgraft.core.errors import UserError
from textgraft.data.examples import TargetKind
from textgraft.data.targets import TARGETS
from textgraft.linear.encoder_features import EncoderVectors
from textgraft.linear.fitted import EncoderChange, feature_map_from_state
from textgraft.linear.linear_layer import Linear, fit_variant
from textgraft.linear.lsa import FeatureMap
from textgraft.linear.ngram_counts import NgramCounts
from textgraft.linear.ngrams import Ngrams
from textgraft.linear.state import State

LABEL_WEIGHT = 10.0
"""Weight of a true label relative to a pseudo-label."""
STRENGTH = 10.0
"""C of the classifiers on feature maps."""
NGRAM_STRENGTH = 1.0
"""C of the classifier on n-grams."""
SHARPNESS = 10.0
"""Factor of the logits before classes are balanced."""
MAX_POOL_TEXTS = 50_000
"""Unlabelled texts of a pool, a random sample of more."""


@dataclass(frozen=True)
class Pool:
    """Unlabelled texts under each view, computed once for any number of labelled samples.

    Co-training does not need the texts themselves, so a pool holds vectors and n-grams only.

    Attributes:
        feature_maps: For each view its variants of a feature map, of which the labels select one; all views have the
            same number.
        vectors: For each view the pool's coordinates (N, D) under each variant.
        ngrams: The n-gram features.
        rows: The pool's n-gram rows (N, V).
    """

    feature_maps: Mapping[str, Sequence[FeatureMap]]
    vectors: Mapping[str, Sequence[NDArray[np.float64]]]
    ngrams: Ngrams
    rows: csr_matrix

    @classmethod
    def of(cls, texts: NgramCounts, feature_maps: Mapping[str, Sequence[FeatureMap]], *, seed: int = 0) -> Self:
        """Transform counted texts.

        Args:
            texts: The unlabelled texts; a random sample of at most MAX_POOL_TEXTS is used, with all their n-grams.
            feature_maps: For each view its variants of a feature map.
            seed: Seed of the sample.
        """
        sample = texts.sample(MAX_POOL_TEXTS, seed=seed)
        ngrams = Ngrams(characters=False, max_features=len(texts.whole.words))
        return cls(
            feature_maps,
            _transformed(feature_maps, lambda feature_map: feature_map.transform_counts(sample)),
            ngrams,
            ngrams.fit_transform_counts([sample.whole]),
        )


@dataclass(frozen=True)
class _View:
    """A feature map with the unlabelled and the labelled texts' coordinates."""

    feature_map: FeatureMap
    pool: NDArray[np.float64]
    labelled: NDArray[np.float64]


@dataclass(frozen=True)
class Views:
    """The fitted model of a CoTrainedClassifier: a classifier per feature map and one on scaled n-grams.

    Attributes:
        feature_maps: Feature map of each view.
        layers: Classifier of each view.
        ngrams: The n-gram features.
        scale: Factors (V,) of the n-gram columns.
        ngram_layer: Classifier on scaled n-grams.
        spreads: Standard deviation of the log probabilities over the pool: of the n-gram classifier, then of each view.
        width: Number of classes C.
        about: Description of the model.
    """

    form: ClassVar[str] = "views"
    feature_maps: Mapping[str, FeatureMap]
    layers: Mapping[str, Linear]
    ngrams: Ngrams
    scale: NDArray[np.float32]
    ngram_layer: Linear
    spreads: NDArray[np.float64]
    width: int
    about: str

    def with_encoders(self, change: EncoderChange) -> Self:
        """The same with `change` of each feature map that is an encoder's vectors."""
        feature_maps = {
            name: change(features) if isinstance(features, EncoderVectors) else features
            for name, features in self.feature_maps.items()
        }
        return replace(self, feature_maps=feature_maps)

    def outputs(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Geometric mean (N, C) of the classifiers' probabilities, all rescaled to the same spread."""
        if not len(texts):
            return np.zeros((0, self.width))
        probabilities = [self.ngram_probabilities(self.ngrams.transform(texts))]
        for name, layer in self.layers.items():
            vectors = self.feature_maps[name].transform(texts)
            if not np.isfinite(vectors).all():
                raise UserError(f"the vectors of '{name}' are no finite numbers.", remedy="Restore the model's folder.")
            probabilities.append(layer.probabilities(normalize(vectors), self.width))
        logits = np.mean([_log(p) / spread for p, spread in zip(probabilities, self.spreads, strict=True)], axis=0)
        return np.asarray(softmax(logits * self.spreads.mean(), axis=1))

    def ngram_probabilities(self, rows: csr_matrix) -> NDArray[np.float64]:
        """Probabilities (N, C) of the classifier on n-gram rows (N, V)."""
        return self.ngram_layer.probabilities(rows @ diags(self.scale), self.width)

    def knows(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Mask (N,) of the texts in which one view knows something."""
        known = [self.ngrams.knows(texts), *(view.knows(texts) for view in self.feature_maps.values())]
        return np.logical_or.reduce(known)

    def vectors(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Coordinates (N, D) of the texts under all feature maps, concatenated."""
        return np.concatenate([feature_map.transform(texts) for feature_map in self.feature_maps.values()], axis=1)

    def size_in_bytes(self) -> int:
        """Size of the classifiers, the feature maps and the n-grams."""
        layers = sum(layer.nbytes for layer in (*self.layers.values(), self.ngram_layer))
        feature_maps = sum(feature_map.size_in_bytes() for feature_map in self.feature_maps.values())
        return layers + feature_maps + self.ngrams.size_in_bytes() + self.scale.nbytes

    def state(self) -> State:
        names = list(self.feature_maps)
        forms = [self.feature_maps[name].form for name in names]
        parts = {"ngrams": self.ngrams.state(), "ngram_layer": self.ngram_layer.state()}
        parts |= {f"space{i}": self.feature_maps[name].state() for i, name in enumerate(names)}
        parts |= {f"layer{i}": self.layers[name].state() for i, name in enumerate(names)}
        settings = {"spaces": names, "forms": forms, "width": self.width, "about": self.about}
        return State(settings, {"scale": self.scale, "spreads": self.spreads}).with_parts(parts)

    @classmethod
    def from_state(cls, state: State) -> Self:
        """The inverse of `state`. Raises ValueError for an inconsistent state."""
        names, forms, width = state.setting("spaces", list), state.setting("forms", list), state.setting("width", int)
        if not names or len(forms) != len(names) or not all(isinstance(n, str) for n in (*names, *forms)):
            raise ValueError(f"{len(forms)} forms for {len(names)} feature maps")
        feature_maps = {name: feature_map_from_state(forms[i], state.part(f"space{i}")) for i, name in enumerate(names)}
        ngrams = Ngrams.from_state(state.part("ngrams"))
        layers = {
            name: Linear.from_state(state.part(f"layer{i}"), features=feature_map.width, width=width)
            for i, (name, feature_map) in enumerate(feature_maps.items())
        }
        ngram_layer = Linear.from_state(state.part("ngram_layer"), features=ngrams.width, width=width)
        scale = state.array("scale", ngrams.width)
        # Models saved before spreads existed were averaged without rescaling.
        views = 1 + len(names)
        spreads = state.array("spreads", views) if "spreads" in state.arrays else np.ones(views)
        if not (np.isfinite(spreads) & (spreads > 0)).all():
            raise ValueError(f"spreads must be positive: {spreads}")
        return cls(feature_maps, layers, ngrams, scale, ngram_layer, spreads, width, state.setting("about", str))


class CoTrainedClassifier:
    """Classifiers on several feature maps and one on n-grams that are trained on each other's labels for a pool.

    Three steps, as in co-training (Blum & Mitchell 1998): a classifier per feature map is fitted to the labels; the one
    on n-grams is fitted to the pool, labelled by their mean prediction; each feature map's classifier is fitted again
    to the pool, labelled by the mean of the others. True labels are always included, with LABEL_WEIGHT times the weight
    of a pseudo-label. Where views have several variants of their feature map, the one whose classifiers on all views
    together have the best cross-validated loss is used.

    A pseudo-label is the most probable class after every class has been made as frequent in the pool as among the
    labels, which keeps one class from absorbing the others. n-grams are scaled by the largest of their naive Bayes
    log-count ratios (Wang & Manning 2012, who have two classes and one ratio). The prediction is the geometric mean of
    all classifiers, their log probabilities first rescaled to one spread over the pool: a more confident view is not a
    better one.

    For targets with one label per text. `fitted` is the fitted model, which does not include the pool.

    Args:
        pool: The unlabelled texts under each view.
        seed: Shuffles the folds that select the variant.
    """

    name = "co-training"
    about = ""
    fitted: Views

    def __init__(self, pool: Pool, *, seed: int = 0) -> None:
        self.pool = pool
        self.seed = seed

    # Matrices of some thousand rows: BLAS threads that wait for one another make the fits several times as long.
    @threadpool_limits.wrap(limits=1, user_api="blas")
    def fit(
        self,
        texts: Sequence[str],
        targets: NDArray,
        *,
        kind: TargetKind = "single",
        num_classes: int | None = None,
        unlabelled: Sequence[str] | None = None,
    ) -> Self:
        """Fit to texts and targets as in `linear.baselines.Baseline.fit`. Raises UserError for other kinds than
        "single".
        """
        if not TARGETS[kind].has_one_label:
            raise UserError("co-training is for targets with one label per text.", remedy="Leave this method out.")
        pool, targets = self.pool, np.asarray(targets)
        width = num_classes or int(targets.max()) + 1
        shares = np.bincount(targets, minlength=width) / len(targets)
        views: dict[str, _View] = {}
        log_probabilities: dict[str, NDArray[np.float64]] = {}
        labelled = _transformed(pool.feature_maps, lambda feature_map: feature_map.transform(texts))
        variant, outputs = fit_variant(list(labelled.values()), targets, kind, width, self.seed)
        for (name, variants), output in zip(pool.feature_maps.items(), outputs, strict=True):
            views[name] = _View(variants[variant], pool.vectors[name][variant], labelled[name][variant])
            log_probabilities[name] = _balanced_log_probabilities(output.predict(views[name].pool), shares)
        scale, ngram_layer = _fit_ngrams(
            pool, _pseudo_labels(log_probabilities.values()), pool.ngrams.transform(texts), targets
        )
        pool_probabilities = ngram_layer.probabilities(pool.rows @ diags(scale), width)
        ngram_log_probabilities, spreads = (
            _balanced_log_probabilities(pool_probabilities, shares),
            [_log_spread(pool_probabilities, shares)],
        )
        layers: dict[str, Linear] = {}
        for name, view in views.items():
            others = [log_probabilities[other] for other in views if other != name]
            features = normalize(np.concatenate([view.pool, view.labelled]))
            layers[name] = _fit_layer(STRENGTH, features, _pseudo_labels([*others, ngram_log_probabilities]), targets)
            spreads.append(_log_spread(layers[name].probabilities(features[: len(view.pool)], width), shares))
        pool_size = f"{pool.rows.shape[0]:,} texts"
        chosen = {name: view.feature_map for name, view in views.items()}
        self.about = f"co-training of {', '.join(views)} and {pool.rows.shape[1]:,} n-grams on {pool_size}"
        self.fitted = Views(chosen, layers, pool.ngrams, scale, ngram_layer, np.array(spreads), width, self.about)
        return self

    def predict_proba(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Geometric mean (N, C) of the classifiers' probabilities, all rescaled to the same spread."""
        return self.fitted.outputs(texts)

    def size_in_bytes(self) -> int:
        """Size of the classifiers, the feature maps and the n-grams."""
        return self.fitted.size_in_bytes()


def _transformed(
    feature_maps: Mapping[str, Sequence[FeatureMap]], transform: Callable[[FeatureMap], NDArray[np.float64]]
) -> dict[str, list[NDArray[np.float64]]]:
    """Results (N, D) of `transform` for every feature map; a map that serves several variants is transformed once."""
    distinct = {id(feature_map): feature_map for variants in feature_maps.values() for feature_map in variants}
    transformed = {key: transform(feature_map) for key, feature_map in distinct.items()}
    return {name: [transformed[id(feature_map)] for feature_map in variants] for name, variants in feature_maps.items()}


def _balanced_log_probabilities(probabilities: NDArray[np.float64], shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log probabilities (N, C) of deviation 1 whose most probable classes have the shares (C,) of the labels.

    By Sinkhorn scaling of the columns of sharpened probabilities, for which shares of probability are shares of texts.
    """
    logits = _log(probabilities)
    labelled = shares > 0
    logits = SHARPNESS * logits / max(float(logits[:, labelled].std()), 1e-9)
    for _ in range(100):
        frequencies = softmax(logits, axis=1).mean(axis=0)
        logits[:, labelled] += np.log(shares[labelled] / np.maximum(frequencies[labelled], 1e-9))
    return logits / SHARPNESS


def _log_spread(probabilities: NDArray[np.float64], shares: NDArray[np.float64]) -> float:
    """Standard deviation of the log probabilities (N, C) of labelled classes, each text's mean subtracted."""
    logits = _log(probabilities)[:, shares > 0]
    return max(float((logits - logits.mean(axis=1, keepdims=True)).std()), 1e-9)


def _pseudo_labels(log_probabilities: Iterable[NDArray[np.float64]]) -> NDArray[np.int64]:
    """The most probable class (N,) under the mean of the views' log probabilities."""
    return np.asarray(np.mean(list(log_probabilities), axis=0).argmax(axis=1))


def _fit_ngrams(
    pool: Pool, pseudo_labels: NDArray, labelled: csr_matrix, targets: NDArray
) -> tuple[NDArray[np.float32], Linear]:
    """Naive Bayes factors (V,) of the n-grams, and a classifier on rows scaled by them."""
    rows = vstack([pool.rows, labelled]).tocsr()
    scale = log_count_ratios(rows, np.concatenate([pseudo_labels, targets]), _weights(pseudo_labels, targets))
    return scale, _fit_layer(NGRAM_STRENGTH, rows @ diags(scale), pseudo_labels, targets)


def _fit_layer(strength: float, features: Any, pseudo_labels: NDArray, targets: NDArray) -> Linear:
    """Logistic regression on texts with pseudo-labels, followed by those with true ones."""
    model = LogisticRegression(C=strength, max_iter=1_000)
    classes, weights = np.concatenate([pseudo_labels, targets]), _weights(pseudo_labels, targets)
    return Linear.of(model.fit(features, classes, sample_weight=weights))


def log_count_ratios(features: csr_matrix, classes: NDArray, weights: NDArray) -> NDArray[np.float32]:
    """Largest |log P(n-gram | class) / P(n-gram | other classes)| of each n-gram (V,), add-one smoothed."""
    present = (features > 0).astype(np.float32)
    ratios = np.zeros(features.shape[1])
    total = present.T @ weights + 1
    for c in np.unique(classes):
        inside = present.T @ (weights * (classes == c)) + 1
        outside = total - inside + 1
        ratio = np.log(inside / inside.sum()) - np.log(outside / outside.sum())
        ratios = np.maximum(ratios, np.abs(ratio))
    return ratios.astype(np.float32)


def _weights(pseudo_labels: NDArray, targets: NDArray) -> NDArray[np.float64]:
    return np.concatenate([np.ones(len(pseudo_labels)), np.full(len(targets), LABEL_WEIGHT)])


def _log(probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.log(np.maximum(probabilities, 1e-9))
