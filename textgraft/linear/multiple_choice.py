"""What one would have used to choose between options: the one with most words of the context, and the usual place."""

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
"""Of the squared weights, against the summed log loss: that of a logistic regression with C = 10."""


class FrequentPosition:
    """Says of every question how often the right option stood where; knows whether answers favour a place."""

    name = "usual-place"
    about = "How often the right option stood in each place, whatever it says."

    def fit(
        self,
        texts: Sequence[str],
        targets: NDArray,
        *,
        kind: TargetKind = "choice",
        num_classes: int | None = None,
        unlabelled: Sequence[str] | None = None,
    ) -> Self:
        self.counts = np.bincount(targets) + 1.0
        return self

    def predict_proba(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """(N, most options): 0 where a question has fewer."""
        there = _there(texts)
        counts = np.ones(there.shape[1])
        known = min(len(counts), len(self.counts))
        counts[:known] = self.counts[:known]
        weighed = there * counts
        return np.asarray(weighed / weighed.sum(axis=1, keepdims=True))

    def size_in_bytes(self) -> int:
        return int(self.counts.nbytes)


class WordOverlap:
    """A conditional logit (McFadden 1974) of how much each option has in common with its context, and of its length.

    The measures are those of linear.pair_ngrams, with the log of the option's number of n-grams; the probability of an
    option is a softmax, over the options of its question, of their weighted sum. Nothing of what words mean is known.
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
        questions = _questions(texts)
        sides = [side for question in questions for p in question.pairs for side in (p.first, p.second)]
        self.ngrams = Ngrams(characters=False, max_features=1_000_000, min_df=1).fit(sides)
        rows, there = self._rows(questions), _there(texts)
        self.scale = rows[there].std(axis=0).clip(min=1e-9)
        right, rows = np.arange(len(texts)), rows / self.scale

        def loss(weights: NDArray) -> tuple[float, NDArray]:
            p = _softmax(rows @ weights, there)
            slope = np.einsum("nk,nkf->f", p, rows) - rows[right, targets].sum(axis=0)
            total = -np.log(p[right, targets].clip(1e-12)).sum()
            return float(total + PENALTY / 2 * weights @ weights), slope + PENALTY * weights

        self.weights = minimize(loss, np.zeros(MEASURES + 1), jac=True, method="L-BFGS-B").x
        self.about = f"{self.ngrams.about} that option and context share -> conditional logit, C={1 / PENALTY:g}"
        return self

    def predict_proba(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """(N, most options): 0 where a question has fewer."""
        return _softmax(self._rows(_questions(texts)) / self.scale @ self.weights, _there(texts))

    def size_in_bytes(self) -> int:
        return self.ngrams.size_in_bytes() + int(self.weights.nbytes)

    def _rows(self, questions: Sequence[Choice]) -> NDArray[np.float64]:
        """(N, most options, 6), 0 where a question has fewer."""
        pairs = [pair for question in questions for pair in question.pairs]
        first = self.ngrams.transform([pair.first for pair in pairs])
        second = self.ngrams.transform([pair.second for pair in pairs])
        length = np.log1p(np.diff(second.indptr).astype(np.float64))
        there = _there(questions)
        rows = np.zeros((*there.shape, MEASURES + 1))
        rows[there] = np.column_stack([overlap(first, second), length])
        return rows


def _questions(texts: Sequence[str]) -> list[Choice]:
    questions = [text for text in texts if isinstance(text, Choice)]
    if len(questions) < len(texts):
        raise UserError("there are no options to choose from.", remedy="Give a context and its options.")
    return questions


def _there(texts: Sequence[str]) -> NDArray[np.bool_]:
    """(N, most options): whether the question has so many."""
    sizes = np.array([len(question.options) for question in _questions(texts)])
    return np.asarray(np.arange(sizes.max(initial=1)) < sizes[:, None])


def _softmax(scores: NDArray[np.float64], there: NDArray[np.bool_]) -> NDArray[np.float64]:
    raised = np.where(there, np.exp(scores - np.where(there, scores, -np.inf).max(axis=1, keepdims=True)), 0.0)
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))
