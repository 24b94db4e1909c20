"""Few labels, many texts: classifiers that see a text in different ways teach each other on the unlabelled pool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, diags, vstack
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize

from textgraft.baselines import Ngrams, Space, fit_output
from textgraft.data.examples import TargetKind
from textgraft.errors import UserError

LABEL_WEIGHT = 10.0
"""How many texts with a guessed label one with a true label weighs as much as."""
STRENGTH = 10.0
NGRAM_STRENGTH = 1.0
SHARPNESS = 10.0
NGRAMS = 100_000
POOL_TEXTS = 50_000


@dataclass(frozen=True)
class Pool:
    """Unlabelled texts as each view sees them: made once, for any number of labelled samples.

    Self-training never asks for the texts again, so a pool holds only vectors (N, D) and n-grams (N, V).
    """

    spaces: Mapping[str, Space]
    vectors: Mapping[str, NDArray[np.float64]]
    ngrams: Ngrams
    rows: csr_matrix

    @classmethod
    def of(cls, texts: Sequence[str], spaces: Mapping[str, Space], *, seed: int = 0) -> Self:
        """At most POOL_TEXTS of the texts, drawn at random."""
        if len(texts) > POOL_TEXTS:
            chosen = np.random.default_rng(seed).choice(len(texts), POOL_TEXTS, replace=False)
            texts = [texts[i] for i in np.sort(chosen)]
        ngrams = Ngrams(characters=False, max_features=NGRAMS, min_df=5).fit(texts)
        vectors = {name: space.transform(texts) for name, space in spaces.items()}
        return cls(spaces, vectors, ngrams, ngrams.transform(texts))


class SelfTrained:
    """Classifiers on several spaces and one on n-grams, which learn from each other's answers for the pool.

    Three steps, in the manner of co-training (Blum & Mitchell 1998): a classifier on each space learns from the labels;
    one on n-grams learns what their mean says of the pool; each space's classifier learns anew, from what the others'
    mean says. All three times the true labels weigh LABEL_WEIGHT times.
    A guessed label is the likeliest class once every class is as frequent in the pool as among the labels, which keeps
    one class from swallowing the other. The n-grams are weighted by the largest of their naive Bayes log-count ratios
    (Wang & Manning 2012, who have two classes and one ratio). The answer is the mean of all.

    For one label a text. `fit` raises UserError for other kinds of target.
    """

    name = "self-trained"
    about = ""

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
        self.num_classes = num_classes or int(targets.max()) + 1
        self._shares = np.bincount(targets, minlength=self.num_classes) / len(targets)
        own = {name: space.transform(texts) for name, space in pool.spaces.items()}
        first = {name: fit_output(own[name], targets, kind, self.num_classes, self.seed, latent=True) for name in own}
        said = {name: self._evened(first[name].predict(pool.vectors[name])) for name in own}
        self._ngrams = _NgramClassifier(pool.ngrams, self.num_classes).fit(
            pool.rows, self._guesses(said.values()), pool.ngrams.transform(texts), targets
        )
        ngrams_say = self._evened(self._ngrams.predict(pool.rows))
        self._views: dict[str, Any] = {}
        for name in own:
            others = [said[other] for other in own if other != name]
            guesses = self._guesses([*others, ngrams_say])
            features = normalize(np.concatenate([pool.vectors[name], own[name]]))
            self._views[name] = _classifier(STRENGTH).fit(
                features, np.concatenate([guesses, targets]), sample_weight=_weights(guesses, targets)
            )
        size = f"{pool.rows.shape[0]:,} texts"
        self.about = f"{', '.join(own)} and {pool.rows.shape[1]:,} n-grams teach each other on {size}"
        return self

    def predict_proba(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """(N, C), the geometric mean of what the views say."""
        if not len(texts):
            return np.zeros((0, self.num_classes))
        said = [self._ngrams.predict(self.pool.ngrams.transform(texts))]
        for name, view in self._views.items():
            said.append(_placed(view, normalize(self.pool.spaces[name].transform(texts)), self.num_classes))
        return np.asarray(softmax(np.mean([_log(p) for p in said], axis=0), axis=1))

    def size_in_bytes(self) -> int:
        """Of the views and the spaces they look at."""
        views = sum(view.coef_.nbytes for view in self._views.values()) + self._ngrams.size_in_bytes()
        return views + sum(space.size_in_bytes() for space in self.pool.spaces.values())

    def _evened(self, probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
        """Log probabilities (N, C), of deviation 1, whose likeliest classes are as frequent as among the labels.

        By Sinkhorn's scaling of the columns, on answers made sharp: then shares of probability are shares of texts.
        """
        logits = _log(probabilities)
        known = self._shares > 0
        logits = SHARPNESS * logits / max(float(logits[:, known].std()), 1e-9)
        for _ in range(100):
            found = softmax(logits, axis=1).mean(axis=0)
            logits[:, known] += np.log(self._shares[known] / np.maximum(found[known], 1e-9))
        return logits / SHARPNESS

    def _guesses(self, said: Any) -> NDArray[np.int64]:
        """The class (N,) that the views' mean finds likeliest."""
        return np.asarray(np.mean(list(said), axis=0).argmax(axis=1))


class _NgramClassifier:
    """Logistic regression on TF-IDF rows whose columns are scaled by their naive Bayes ratios."""

    def __init__(self, ngrams: Ngrams, num_classes: int) -> None:
        self._ngrams, self.num_classes = ngrams, num_classes

    def fit(self, rows: csr_matrix, guesses: NDArray, own: csr_matrix, targets: NDArray) -> Self:
        features, classes = vstack([rows, own]).tocsr(), np.concatenate([guesses, targets])
        weights = _weights(guesses, targets)
        self._scale = _log_count_ratios(features, classes, weights)
        self._model = _classifier(NGRAM_STRENGTH).fit(features @ diags(self._scale), classes, sample_weight=weights)
        return self

    def predict(self, rows: csr_matrix) -> NDArray[np.float64]:
        return _placed(self._model, rows @ diags(self._scale), self.num_classes)

    def size_in_bytes(self) -> int:
        return int(self._ngrams.size_in_bytes() + self._scale.nbytes + self._model.coef_.nbytes)


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


def _classifier(strength: float) -> LogisticRegression:
    return LogisticRegression(C=strength, max_iter=200, tol=1e-3)


def _weights(guesses: NDArray, targets: NDArray) -> NDArray[np.float64]:
    return np.concatenate([np.ones(len(guesses)), np.full(len(targets), LABEL_WEIGHT)])


def _placed(model: LogisticRegression, features: Any, width: int) -> NDArray[np.float64]:
    """Probabilities (N, C), zero for a class the model has not seen."""
    probabilities = np.zeros((features.shape[0], width))
    probabilities[:, model.classes_] = model.predict_proba(features)
    return probabilities


def _log(probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.log(np.maximum(probabilities, 1e-9))
