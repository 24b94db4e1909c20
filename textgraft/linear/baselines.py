"""What a user would have used instead: the linear classifiers that every result stands beside.

Two of them, both fitted by scikit-learn. `linear`: TF-IDF of n-grams and logistic regression (ridge for
numbers). `lsa`: the same classifier on a latent semantic analysis (Deerwester et al. 1990) of all text there
is, labelled or not; the honest rival of a language model, for it has read the same unlabelled text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from textgraft.data.examples import TargetKind, reads
from textgraft.linear.fitted import FeatureMapModel, Fitted, NgramModel
from textgraft.linear.linear_layer import fit_latent_output, fit_output
from textgraft.linear.lsa import FeatureMap, plain_and_residual_idf
from textgraft.linear.ngram_counts import NgramCounts
from textgraft.linear.ngrams import Ngrams
from textgraft.linear.pair_ngrams import PairNgrams

CHARACTERS_UP_TO = 4_000_000
"""Characters of training text. Character n-grams help when labels are few (IMDb: +1.3 points at 100, +0.6 at 500)
and multiply time and memory by ten when they are not."""
COEFFICIENTS = 50_000_000
"""Most coefficients (features x classes) of one classifier, 400 MB; thousands of classes get fewer features."""


class Baseline(Protocol):
    """A classifier or regressor of raw texts, fitted from encoded targets.

    Targets are class numbers (N,) for "single", 0/1 (N, C) for "multi", floats (N,) for "numeric".
    `predict_proba` gives (N, C) probabilities, or (N,) values for "numeric". `about` says in a sentence what
    was fitted.
    """

    name: str
    about: str

    def fit(
        self,
        texts: Sequence[str],
        targets: NDArray,
        *,
        kind: TargetKind = "single",
        num_classes: int | None = None,
        unlabelled: Sequence[str] | None = None,
    ) -> Self: ...

    def predict_proba(self, texts: Sequence[str]) -> NDArray[np.float64]: ...

    def size_in_bytes(self) -> int: ...


class LinearBaseline:
    """TF-IDF (sublinear) of word 1-2-grams, and character 3-5-grams inside words, into logistic regression.

    `characters` adds the character n-grams; None adds them while the training text is small
    (`CHARACTERS_UP_TO`). Scripts that do not part words by spaces get character 1-3-grams only. C is chosen
    from `STRENGTHS` by the log loss of 5-fold cross-validation where there are five texts of each class, else
    (and for label sets) it is 10. Of pairs it reads each side, what both share and how much that is (PairNgrams).
    `unlabelled` text is of no use to it and is ignored. The same input gives
    the same output; `seed` shuffles the folds. What was learned is `fitted`.

    Raises UserError where the texts have no words.
    """

    name = "linear"
    about = ""
    fitted: Fitted

    def __init__(self, *, characters: bool | None = None, seed: int = 0) -> None:
        self.characters = characters
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
        classes = num_classes or _count_classes(targets, kind)
        most = max(1_000, COEFFICIENTS // classes)
        characters = self.characters
        if characters is None:
            characters = sum(map(len, texts)) <= CHARACTERS_UP_TO
        ngrams: Ngrams | PairNgrams
        if reads(texts) == "pairs":
            ngrams = PairNgrams(Ngrams(characters=characters, max_features=most // 4)).fit(texts)
            rows = ngrams.transform(texts)
        else:
            ngrams = Ngrams(characters=characters, max_features=most)
            rows = ngrams.fit_transform(texts)
        output = fit_output(rows, targets, kind, classes, self.seed)
        self.fitted = NgramModel(ngrams, output)
        self.about = self.fitted.about
        return self

    def predict_proba(self, texts: Sequence[str]) -> NDArray[np.float64]:
        return self.fitted.outputs(texts)

    def size_in_bytes(self) -> int:
        """Of the coefficients and the n-grams they belong to."""
        return self.fitted.size_in_bytes()


class LsaBaseline:
    """Logistic regression on the latent semantic analysis of the training texts and all unlabelled ones, or on a space.

    Each text becomes a vector of length 1 of its strongest dimensions. Which of `spaces`, how many dimensions, and C
    are chosen by the log loss of 5-fold cross-validation where there are five texts of each class; else it is the
    first space, all of them and C = 10. Spaces that have been fitted already are used as they are; without them `fit`
    fits a plain and an even analysis to its texts and `unlabelled`. What was learned is `fitted`.
    """

    name = "lsa"
    about = ""
    fitted: Fitted

    def __init__(self, *, spaces: Sequence[FeatureMap] = (), seed: int = 0) -> None:
        self.spaces = spaces
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
        classes = num_classes or _count_classes(targets, kind)
        spaces = self.spaces
        if not spaces:
            spaces = plain_and_residual_idf(
                NgramCounts.of([*texts, *(unlabelled or ())], seed=self.seed), seed=self.seed
            )
        best, output = fit_latent_output([s.transform(texts) for s in spaces], targets, kind, classes, self.seed)
        self.fitted = FeatureMapModel(spaces[best], output)
        self.about = self.fitted.about
        return self

    def predict_proba(self, texts: Sequence[str]) -> NDArray[np.float64]:
        return self.fitted.outputs(texts)

    def size_in_bytes(self) -> int:
        """Of the coefficients and the latent space."""
        return self.fitted.size_in_bytes()


BASELINES: dict[str, type[LinearBaseline] | type[LsaBaseline]] = {
    "linear": LinearBaseline,
    "lsa": LsaBaseline,
}


def _count_classes(targets: NDArray, kind: TargetKind) -> int:
    if kind == "multi":
        return int(np.asarray(targets).shape[1])
    return int(np.max(targets)) + 1 if kind == "single" else 1
