"""Linear baselines fitted by scikit-learn, reported beside every result.

`linear`: TF-IDF of n-grams and logistic regression (ridge for numbers). `lsa`: the same classifier on a latent semantic
analysis (Deerwester et al. 1990) of all available text, labelled or not; the fair rival of a language model, since both
are trained on the same unlabelled text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from textgraft.data.examples import TargetKind, reads
from textgraft.data.targets import TARGETS
from textgraft.linear.fitted import FeatureMapModel, FittedModel, NgramModel
from textgraft.linear.linear_layer import fit_latent_output, fit_output
from textgraft.linear.lsa import FeatureMap, plain_and_residual_idf
from textgraft.linear.ngram_counts import NgramCounts
from textgraft.linear.ngrams import Ngrams
from textgraft.linear.pair_ngrams import PairNgrams

MAX_TEXT_FOR_CHARACTERS = 4_000_000
"""Characters of training text up to which character n-grams are added. They help when labels are few (IMDb: +1.3 points
at 100, +0.6 at 500) and multiply time and memory by ten when they are not.
"""
MAX_COEFFICIENTS = 50_000_000
"""Most coefficients (features x classes) of one classifier, 400 MB; thousands of classes get fewer features."""


class Baseline(Protocol):
    """Protocol of a classifier or regressor of raw texts, fitted from encoded targets.

    Attributes:
        name: Name of the method.
        about: One sentence that describes the fitted model.
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
    ) -> Self:
        """Fit to N texts.

        Args:
            texts: N raw texts, pairs or questions.
            targets: Class numbers (N,) for "single", 0/1 (N, C) for "multi", floats (N,) for "numeric".
            kind: Kind of the targets.
            num_classes: C; by default the number of classes in `targets`.
            unlabelled: Further texts without labels.
        """
        ...

    def predict_proba(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Probabilities (N, C), or values (N,) for "numeric"."""
        ...

    def size_in_bytes(self) -> int:
        """Size of the parameters and of the vocabulary."""
        ...


class LinearBaseline:
    """TF-IDF (sublinear) of word 1-2-grams, and character 3-5-grams inside words, into logistic regression.

    Scripts without spaces between words get character 1-3-grams only. C is chosen from `STRENGTHS` by the log loss of
    5-fold cross-validation if every class has at least five texts, else (and for label sets) it is 10. Features of a
    pair of texts are those of PairNgrams. Unlabelled texts are ignored. The same input gives the same output. `fitted`
    is the fitted model.

    Args:
        characters: Add character n-grams; None adds them up to MAX_TEXT_FOR_CHARACTERS characters of training text.
        seed: Shuffles the folds of cross-validation.

    Raises:
        UserError: In `fit`, no text contains a word.

    >>> import numpy as np
    >>> baseline = LinearBaseline().fit(["good film", "bad film"] * 5, np.array([1, 0] * 5))
    >>> baseline.predict_proba(["a good one", "a bad one"]).argmax(axis=1)
    array([1, 0])
    """

    name = "linear"
    about = ""
    fitted: FittedModel

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
        """Fit to texts and targets as in `Baseline.fit`."""
        classes = num_classes or TARGETS[kind].output_count(targets)
        max_features = max(1_000, MAX_COEFFICIENTS // classes)
        characters = self.characters
        if characters is None:
            characters = sum(map(len, texts)) <= MAX_TEXT_FOR_CHARACTERS
        ngrams: Ngrams | PairNgrams
        if reads(texts) == "pairs":
            ngrams = PairNgrams(Ngrams(characters=characters, max_features=max_features // 4)).fit(texts)
            features = ngrams.transform(texts)
        else:
            ngrams = Ngrams(characters=characters, max_features=max_features)
            features = ngrams.fit_transform(texts)
        output = fit_output(features, targets, kind, classes, self.seed)
        self.fitted = NgramModel(ngrams, output)
        self.about = self.fitted.about
        return self

    def predict_proba(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Probabilities (N, C), or values (N,) for "numeric"."""
        return self.fitted.outputs(texts)

    def size_in_bytes(self) -> int:
        """Size of the coefficients and of the n-grams."""
        return self.fitted.size_in_bytes()


class LsaBaseline:
    """Logistic regression on a latent semantic analysis of all texts, or on another feature map.

    Each text becomes a vector of length 1 of its strongest dimensions. The feature map, the number of dimensions and C
    are chosen by the log loss of 5-fold cross-validation if every class has at least five texts; else they are the
    first feature map, all dimensions and C = 10. `fitted` is the fitted model.

    Args:
        feature_maps: Fitted feature maps, used as they are. Without them `fit` fits a plain and a residual-IDF weighted
            LSA to its texts and `unlabelled`.
        seed: Shuffles the folds and seeds the analyses.
    """

    name = "lsa"
    about = ""
    fitted: FittedModel

    def __init__(self, *, feature_maps: Sequence[FeatureMap] = (), seed: int = 0) -> None:
        self.feature_maps = feature_maps
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
        """Fit to texts and targets as in `Baseline.fit`."""
        classes = num_classes or TARGETS[kind].output_count(targets)
        feature_maps = self.feature_maps
        if not feature_maps:
            feature_maps = plain_and_residual_idf(
                NgramCounts.of([*texts, *(unlabelled or ())], seed=self.seed), seed=self.seed
            )
        best, output = fit_latent_output(
            [feature_map.transform(texts) for feature_map in feature_maps], targets, kind, classes, self.seed
        )
        self.fitted = FeatureMapModel(feature_maps[best], output)
        self.about = self.fitted.about
        return self

    def predict_proba(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Probabilities (N, C), or values (N,) for "numeric"."""
        return self.fitted.outputs(texts)

    def size_in_bytes(self) -> int:
        """Size of the coefficients and of the feature map."""
        return self.fitted.size_in_bytes()


BASELINES: dict[str, type[LinearBaseline] | type[LsaBaseline]] = {
    "linear": LinearBaseline,
    "lsa": LsaBaseline,
}
