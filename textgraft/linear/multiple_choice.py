"""Baselines for multiple choice: word overlap of option and context, and the most frequent position of the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from textgraft.core.errors import UserError
from textgraft.data.examples import Choice, TargetKind
from textgraft.linear.ngrams import Ngrams
from textgraft.linear.pair_ngrams import MEASURES, overlap

PENALTY = 0.1
"""Factor of the squared weights in the summed log loss, that of a logistic regression with C = 10."""


class FrequentPosition:
    """Frequency of the correct option at each position, whatever the question: exposes a bias of positions."""

    name = "usual-place"
    about = "Frequency of the correct option at each position."

    def fit(
        self,
        texts: Sequence[str],
        targets: NDArray,
        *,
        kind: TargetKind = "choice",
        num_classes: int | None = None,
        unlabelled: Sequence[str] | None = None,
    ) -> Self:
        """Count the positions of the correct options."""
        self.counts = np.bincount(targets) + 1.0
        return self

    def predict_proba(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Probabilities (N, most options), 0 beyond a question's options."""
        mask = _option_mask(texts)
        counts = np.ones(mask.shape[1])
        common = min(len(counts), len(self.counts))
        counts[:common] = self.counts[:common]
        weighted = mask * counts
        return np.asarray(weighted / weighted.sum(axis=1, keepdims=True))

    def size_in_bytes(self) -> int:
        return int(self.counts.nbytes)


class WordOverlap:
    """Conditional logit (McFadden 1974) on the n-gram overlap of each option with its context and on the option's
    length.

    Features are the measures of linear.pair_ngrams and the log number of the option's n-grams; an option's probability
    is a softmax of their weighted sums over the options of the question. The model knows nothing of meaning.
    """

    name = "word-overlap"
    about = ""

    def fit(
        self,
        texts: Sequence[str],
        targets: NDArray,
        *,
        kind: TargetKind = "choice",
        num_classes: int | None = None,
        unlabelled: Sequence[str] | None = None,
    ) -> Self:
        """Fit to N questions (`data.examples.Choice`) and the indices (N,) of their correct options."""
        questions = _questions(texts)
        texts_of_pairs = [
            text for question in questions for pair in question.pairs for text in (pair.first, pair.second)
        ]
        self.ngrams = Ngrams(characters=False, max_features=1_000_000, min_df=1).fit(texts_of_pairs)
        features, mask = self._features(questions), _option_mask(texts)
        self.scale = features[mask].std(axis=0).clip(min=1e-9)
        row_index, features = np.arange(len(texts)), features / self.scale

        def loss(weights: NDArray) -> tuple[float, NDArray]:
            probabilities = _softmax(features @ weights, mask)
            gradient = np.einsum("nk,nkf->f", probabilities, features) - features[row_index, targets].sum(axis=0)
            total = -np.log(probabilities[row_index, targets].clip(1e-12)).sum()
            return float(total + PENALTY / 2 * weights @ weights), gradient + PENALTY * weights

        self.weights = minimize(loss, np.zeros(MEASURES + 1), jac=True, method="L-BFGS-B").x
        self.about = f"{self.ngrams.about} that option and context share -> conditional logit, C={1 / PENALTY:g}"
        return self

    def predict_proba(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Probabilities (N, most options), 0 beyond a question's options."""
        return _softmax(self._features(_questions(texts)) / self.scale @ self.weights, _option_mask(texts))

    def size_in_bytes(self) -> int:
        return self.ngrams.size_in_bytes() + int(self.weights.nbytes)

    def _features(self, questions: Sequence[Choice]) -> NDArray[np.float64]:
        """Features (N, most options, 6), 0 beyond a question's options."""
        pairs = [pair for question in questions for pair in question.pairs]
        first = self.ngrams.transform([pair.first for pair in pairs])
        second = self.ngrams.transform([pair.second for pair in pairs])
        length = np.log1p(np.diff(second.indptr).astype(np.float64))
        mask = _option_mask(questions)
        features = np.zeros((*mask.shape, MEASURES + 1))
        features[mask] = np.column_stack([overlap(first, second), length])
        return features


def _questions(texts: Sequence[str]) -> list[Choice]:
    questions = [text for text in texts if isinstance(text, Choice)]
    if len(questions) < len(texts):
        raise UserError("there are no options to choose from.", remedy="Pass a context and its options.")
    return questions


def _option_mask(texts: Sequence[str]) -> NDArray[np.bool_]:
    """Mask (N, most options), True for existing options."""
    sizes = np.array([len(question.options) for question in _questions(texts)])
    return np.asarray(np.arange(sizes.max(initial=1)) < sizes[:, None])


def _softmax(scores: NDArray[np.float64], mask: NDArray[np.bool_]) -> NDArray[np.float64]:
    exponentials = np.where(mask, np.exp(scores - np.where(mask, scores, -np.inf).max(axis=1, keepdims=True)), 0.0)
    return np.asarray(exponentials / exponentials.sum(axis=1, keepdims=True))
