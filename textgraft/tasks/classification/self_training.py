"""Classification by label texts alone: similarity of sentence embeddings, then self-training on unlabelled texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, diags, vstack
from scipy.special import log_softmax, softmax
from sklearn.linear_model import LogisticRegression

from textgraft.core.errors import UserError
from textgraft.linear.co_training import LABEL_WEIGHT, NGRAM_STRENGTH, STRENGTH, log_count_ratios
from textgraft.linear.linear_layer import Linear, Output, Setting
from textgraft.linear.ngram_counts import MAX_NGRAMS, random_subset
from textgraft.linear.ngrams import Ngrams
from textgraft.tasks.classification.label_texts import LabelTexts
from textgraft.tasks.classification.linear_probe import answers, as_layer

Embed = Callable[[Sequence[str]], NDArray]
"""From N texts to their vectors (N, D) of length 1."""
SIMILARITY, SELF_TRAINING, CO_TRAINING = "similarity", "self-training", "co-training"
SIMILARITY_TEMPERATURE = 0.07
"""Divisor of cosines before the softmax. The best values on TREC and SMS spam are 0.06 to 0.21."""
TEMPERATURE = 1.4
"""Divisor of the fitted layer's logits. The best values on TREC and SMS spam are 1.0 to 2.1."""
TEXTS_AS_LABELLED = 8
"""Number of labelled texts that a label's own texts weigh as much as in its prototype; best on TREC and SMS spam with 1
to 8 labelled texts a label."""
MIN_TEXTS_PER_LABEL = 10
"""Pool texts per label below which similarity alone is used."""
MIN_CO_TRAINING_TEXTS, MIN_CO_TRAINING_TEXTS_PER_LABEL = 1_000, 100
"""Pool texts, and pool texts per label, below which n-grams do not take part."""
MAX_POOL_TEXTS = 10_000
"""Texts of the pool, a random sample of more."""
CONFIDENT, CONFIDENT_LAST = 0.1, 0.3
"""Share of each label's texts, the most confident ones, that the next classifier is fitted to; after co-training."""


class ZeroShot:
    """A linear classifier on sentence embeddings that is fitted without labels, from texts that describe the labels.

    A label's prototype is the mean of the vectors of its texts, drawn towards that of its labelled texts the more there
    are (TEXTS_AS_LABELLED); the similarity to it is a cosine. Where
    the pool is large enough, a logistic regression on the vectors is fitted to the texts that similarity is most
    confident of, CONFIDENT of those of each label and at least MIN_TEXTS_PER_LABEL; all labels have the same total
    weight. It keeps what the confident texts of a label share, and leaves what only makes them similar to its
    description. In a larger pool a classifier on n-grams is fitted to the texts that this one is most confident of, and
    the last one on the vectors to those that both are (co-training). Label texts take part like pseudo-labelled texts,
    labelled ones with LABEL_WEIGHT times their weight.

    Any function that embeds texts will do, and none of it depends on labelled texts, so that with its `outputs` it is
    a candidate of model selection too.

    Args:
        embed: Embeds texts as vectors of length 1.
        method: The most that is done: SIMILARITY, SELF_TRAINING or CO_TRAINING.
        seed: Seed of the sample of a large pool.

    Attributes:
        layer: (C, D + 1) weights of the vectors and, last, the biases.
        temperature: Divisor of the logits.
        about: What was done: SIMILARITY, SELF_TRAINING or CO_TRAINING.

    >>> import numpy as np
    >>> vectors = {"cat": [1, 0], "dog": [0, 1], "kitten": [0.8, 0.6]}
    >>> model = ZeroShot(lambda texts: np.array([vectors[text] for text in texts])).fit("cat, dog")
    >>> model.outputs(["kitten"]).round(2).tolist()
    [[0.95, 0.05]]
    """

    layer: NDArray[np.float64]
    temperature: float
    about: str

    def __init__(self, embed: Embed, *, method: str = CO_TRAINING, seed: int = 0) -> None:
        self.embed, self.method, self.seed = embed, method, seed

    def fit(
        self, labels: Any, pool: Sequence[str] = (), *, texts: Sequence[str] = (), targets: Sequence[int] | NDArray = ()
    ) -> Self:
        """Fit to label texts and unlabelled texts.

        Args:
            labels: As in LabelTexts.of; classes are numbered in the order of its sorted names.
            pool: Unlabelled texts; empty and repeated ones count once or not at all.
            texts: Labelled texts, if there are some.
            targets: Their classes.

        Raises:
            UserError: As LabelTexts.of.
        """
        labels = LabelTexts.of(labels)
        examples, numbers = labels.labelled
        labelled = [*examples, *texts]
        targets = np.concatenate([numbers, np.asarray(targets, dtype=np.int64)])
        prototypes = self._prototypes(labels, labelled, targets)
        pool = list(dict.fromkeys(text for text in pool if text.strip()))
        pool = [pool[i] for i in random_subset(len(pool), MAX_POOL_TEXTS, self.seed)]
        if len(pool) < MIN_TEXTS_PER_LABEL * len(labels.names) or self.method == SIMILARITY:
            weights = prototypes / SIMILARITY_TEMPERATURE
            self.layer = np.concatenate([weights, np.zeros((len(weights), 1))], axis=1)
            self.temperature, self.about = 1.0, SIMILARITY
            return self
        classes = np.concatenate([np.arange(len(labels.names)), targets])
        weights = np.concatenate([np.ones(len(labels.names)), np.full(len(targets), LABEL_WEIGHT)])
        vectors = np.asarray(self.embed(pool), dtype=np.float64)
        known = np.concatenate([prototypes, self.embed(labelled)]) if labelled else prototypes
        view = _View(vectors, known, classes, weights)
        chosen = confident_texts(vectors @ prototypes.T, CONFIDENT)
        first = view.fit(chosen)
        ngrams = self._ngram_view(pool, labels, labelled, view) if self.method == CO_TRAINING else None
        if ngrams is not None:
            scores = first.log_probabilities(vectors)
            second = ngrams.fit(confident_texts(scores, CONFIDENT), scaled=True)
            both = _standardised(scores) + _standardised(second.log_probabilities(ngrams.pool))
            first = view.fit(confident_texts(both, CONFIDENT_LAST))
        self.layer, self.temperature = first.layer(vectors.shape[1]), TEMPERATURE
        self.about = SELF_TRAINING if ngrams is None else CO_TRAINING
        return self

    def outputs(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Probabilities (N, C) of texts, classes in the order of the sorted names."""
        if not len(texts):
            return np.zeros((0, len(self.layer)))
        return np.asarray(softmax(answers(self.layer, self.embed(texts)) / self.temperature, axis=1))

    def _prototypes(self, labels: LabelTexts, labelled: Sequence[str], targets: NDArray) -> NDArray[np.float64]:
        """Vectors (C, D) of length 1 of the labels: of their texts, and of their examples by their number."""
        classes = np.repeat(np.arange(len(labels.names)), [len(texts) for texts in labels.texts])
        described = _means(self.embed([text for texts in labels.texts for text in texts]), classes, len(labels.names))
        if not len(labelled):
            return described
        shares = np.bincount(targets, minlength=len(labels.names))[:, None] / TEXTS_AS_LABELLED
        return _unit(described + shares * _means(self.embed(labelled), targets, len(labels.names)))

    def _ngram_view(
        self, pool: Sequence[str], labels: LabelTexts, labelled: Sequence[str], view: _View
    ) -> _View | None:
        """The n-grams of the same texts; None where the pool is too small or has no words."""
        if len(pool) < max(MIN_CO_TRAINING_TEXTS, MIN_CO_TRAINING_TEXTS_PER_LABEL * len(labels.names)):
            return None
        ngrams = Ngrams(characters=False, max_features=MAX_NGRAMS)
        try:
            rows = ngrams.fit_transform(pool)
        except UserError:  # no text contains a word
            return None
        known = ngrams.transform([*(" ".join(texts) for texts in labels.texts), *labelled])
        return _View(rows, known, view.classes, view.weights, NGRAM_STRENGTH)


class _View:
    """Features of the pool and of the texts whose classes are known, which every fit includes with their weights.

    Dense or sparse rows `pool` (N, D) and `known` (K, D), `classes` (K,), `weights` (K,); `strength` is C.
    """

    def __init__(self, pool: Any, known: Any, classes: NDArray, weights: NDArray, strength: float = STRENGTH) -> None:
        self.pool, self.known, self.classes, self.weights, self.strength = pool, known, classes, weights, strength

    def fit(self, chosen: tuple[NDArray, NDArray], *, scaled: bool = False) -> _Fitted:
        """Fit to the chosen pool texts, all classes with the same total weight, and to the known ones.

        Args:
            chosen: Indices and pseudo-labels of M texts.
            scaled: Scale the columns by their naive Bayes log-count ratios first.
        """
        indices, pseudo_labels = chosen
        rows: Any = self.pool[indices]
        rows = (
            vstack([rows, self.known]).tocsr() if isinstance(rows, csr_matrix) else np.concatenate([rows, self.known])
        )
        counts = np.bincount(pseudo_labels)
        balanced = len(pseudo_labels) / np.count_nonzero(counts) / counts[pseudo_labels]
        classes = np.concatenate([pseudo_labels, self.classes])
        weights = np.concatenate([balanced, self.weights])
        scale = log_count_ratios(rows, classes, weights) if scaled else None
        rows = rows if scale is None else rows @ diags(scale)
        model = LogisticRegression(C=self.strength, max_iter=1_000)
        return _Fitted(Linear.of(model.fit(rows, classes, sample_weight=weights)), int(self.classes.max()) + 1, scale)


class _Fitted:
    """A fitted logistic regression of all C classes, on features whose columns were multiplied by `scale`."""

    def __init__(self, linear: Linear, width: int, scale: NDArray | None) -> None:
        self.linear, self.width, self.scale = linear, width, scale

    def log_probabilities(self, rows: Any) -> NDArray[np.float64]:
        """Log probabilities (N, C)."""
        scores = self.linear.scores(rows if self.scale is None else rows @ diags(self.scale))
        if scores.shape[1] == 1:  # scikit-learn's two classes
            scores = np.concatenate([np.zeros_like(scores), scores], axis=1)
        return np.asarray(log_softmax(scores, axis=1))

    def layer(self, features: int) -> NDArray[np.float64]:
        """The same as one layer (C, D + 1)."""
        output = Output("single", [self.linear], self.width, Setting(STRENGTH), "")
        return as_layer(output, "single", self.width, features)


def confident_texts(scores: NDArray, share: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The most confident texts of each class.

    Args:
        scores: (N, C), the class of a text being the one with the highest; the distance to the next is confidence.
        share: Of the texts of each class, of which at least MIN_TEXTS_PER_LABEL are taken where it has as many.

    Returns:
        Indices (M,) of the texts, and their classes.
    """
    best = scores.argmax(axis=1)
    ordered = np.sort(scores, axis=1)
    margins = ordered[:, -1] - ordered[:, -2]
    chosen = []
    for c in range(scores.shape[1]):
        members = np.flatnonzero(best == c)
        count = max(int(np.ceil(share * len(members))), MIN_TEXTS_PER_LABEL)
        chosen.append(members[np.argsort(-margins[members], kind="stable")[:count]])
    indices = np.concatenate(chosen)
    return indices, best[indices]


def _means(vectors: NDArray, classes: NDArray, width: int) -> NDArray[np.float64]:
    """Mean vectors (width, D) of each class, of length 1; zeros for a class without a vector."""
    sums = np.zeros((width, vectors.shape[1]))
    np.add.at(sums, classes, vectors)
    return _unit(sums)


def _unit(vectors: NDArray) -> NDArray[np.float64]:
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9))


def _standardised(log_probabilities: NDArray) -> NDArray[np.float64]:
    """Log probabilities (N, C) of mean 0 for each text and of standard deviation 1 over all."""
    centred = log_probabilities - log_probabilities.mean(axis=1, keepdims=True)
    return np.asarray(centred / max(float(centred.std()), 1e-9))
