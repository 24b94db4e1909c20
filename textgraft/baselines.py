"""What a user would have used instead: the linear classifiers that every result stands beside.

Two of them, both scikit-learn throughout. `linear`: TF-IDF of n-grams and logistic regression (ridge for
numbers). `lsa`: the same classifier on a latent semantic analysis (Deerwester et al. 1990) of all text there
is, labelled or not; the honest rival of a language model, for it has read the same unlabelled text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, hstack
from sklearn.decomposition import TruncatedSVD
from sklearn.dummy import DummyClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_score
from sklearn.preprocessing import normalize

from textgraft.data.examples import TargetKind
from textgraft.errors import UserError

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
CHARACTERS_UP_TO = 4_000_000
"""Characters of training text. Character n-grams help when labels are few (IMDb: +1.3 points at 100, +0.6 at 500)
and multiply time and memory by ten when they are not."""
SPACED_FROM = 0.09
"""Share of white space from which even a script without spaces has been cut into words (raw Thai has 0.04-0.05)."""
COEFFICIENTS = 50_000_000
"""Most coefficients (features x classes) of one classifier, 400 MB; thousands of classes get fewer features."""
POOL_AT_MOST = 100_000
"""Texts that a latent space is fitted to; a random sample of a larger pool."""

_PUNCTUATION = r"!-/:-@\[-`{-~¡«»¿،؛؟।\u2010-\u2027\u2030-\u205e\u3000-\u303f"
# What punctuation and space leave over; \w+ would drop emoji and cut Hindi at its vowel signs.
WORD = rf"[^\s{_PUNCTUATION}]+|[!?]"
_UNSPACED_SCRIPT = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]"
)


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
    (and for label sets) it is 10. `unlabelled` text is of no use to it and is ignored. The same input gives
    the same output; `seed` shuffles the folds.

    Raises UserError where the texts have no words.
    """

    name = "linear"
    about = ""

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
        self._ngrams = Ngrams(characters=characters, max_features=most).fit(texts)
        self._output = fit_output(self._ngrams.transform(texts), targets, kind, classes, self.seed)
        self.about = f"TF-IDF of {self._ngrams.about} -> {self._output.about}"
        return self

    def predict_proba(self, texts: Sequence[str]) -> NDArray[np.float64]:
        return self._output.predict(self._ngrams.transform(texts))

    def size_in_bytes(self) -> int:
        """Of the coefficients and the n-grams they belong to."""
        return self._output.size_in_bytes() + self._ngrams.size_in_bytes()


class Space(Protocol):
    """Texts as coordinates (N, D), the strongest dimension first, learned from text without labels."""

    about: str

    def transform(self, texts: Sequence[str]) -> NDArray[np.float64]: ...

    def size_in_bytes(self) -> int: ...


class LatentSpace:
    """A latent semantic analysis: TF-IDF of the most frequent 1-2-grams, truncated SVD.

    `dimensions` is D, or fewer where the texts are few. Fit it once to all the text there is, then hand it to
    as many `LsaBaseline` as you like.
    """

    def __init__(self, *, dimensions: int = 200, max_features: int = 50_000, seed: int = 0) -> None:
        self.dimensions = dimensions
        self.max_features = max_features
        self.seed = seed

    def fit(self, texts: Sequence[str]) -> Self:
        if len(texts) > POOL_AT_MOST:
            chosen = np.random.default_rng(self.seed).choice(len(texts), POOL_AT_MOST, replace=False)
            texts = [texts[i] for i in np.sort(chosen)]
        self._ngrams = Ngrams(characters=False, max_features=self.max_features, min_df=5).fit(texts)
        features = self._ngrams.transform(texts)
        rank = max(1, min(self.dimensions, features.shape[1] - 1, len(texts) - 1))
        self._svd = TruncatedSVD(rank, n_iter=4, random_state=self.seed).fit(features)
        self.about = f"LSA of {len(texts):,} texts ({rank} dimensions of {self._ngrams.about})"
        return self

    def transform(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Texts as coordinates (N, D), the strongest dimension first; a text without known words is all zeros."""
        if len(texts) == 0:
            return np.zeros((0, self._svd.n_components))
        return self._svd.transform(self._ngrams.transform(texts)).astype(np.float64)

    def size_in_bytes(self) -> int:
        """Of the dimensions and the n-grams they weigh."""
        return int(self._svd.components_.nbytes) + self._ngrams.size_in_bytes()


class LsaBaseline:
    """Logistic regression on the latent semantic analysis of the training texts and all unlabelled ones, or on a space.

    Each text becomes a vector of length 1 of its strongest dimensions; how many, and C, are chosen by the log
    loss of 5-fold cross-validation where there are five texts of each class, else all of them and C = 10. A
    `space` that has been fitted already is used as it is; otherwise `fit` fits one to its texts and
    `unlabelled`.
    """

    name = "lsa"
    about = ""

    def __init__(self, *, space: Space | None = None, seed: int = 0) -> None:
        self.space = space
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
        self._space = self.space or LatentSpace(seed=self.seed).fit([*texts, *(unlabelled or ())])
        features = self._space.transform(texts)
        self._output = fit_output(features, targets, kind, classes, self.seed, latent=True)
        self.about = f"{self._space.about} -> {self._output.about}"
        return self

    def predict_proba(self, texts: Sequence[str]) -> NDArray[np.float64]:
        return self._output.predict(self._space.transform(texts))

    def size_in_bytes(self) -> int:
        """Of the coefficients and the latent space."""
        return self._output.size_in_bytes() + self._space.size_in_bytes()


BASELINES: dict[str, type[LinearBaseline] | type[LsaBaseline]] = {
    "linear": LinearBaseline,
    "lsa": LsaBaseline,
}


def parts_words_by_spaces(texts: Sequence[str]) -> bool:
    """Whether spaces part the words of these texts, judged on a sample of at most 200,000 characters.

    No, where half of the characters are of a script that runs words together (Thai, Lao, Khmer, Burmese,
    Tibetan, Chinese, Japanese) and white space is rare. Rare spaces alone do not tell: one-word texts have
    none either.
    """
    sample = "".join(text[:1_000] for text in texts[:: len(texts) // 200 + 1])
    unspaced, spaces = len(_UNSPACED_SCRIPT.findall(sample)), sum(map(str.isspace, sample))
    return unspaced <= len(sample) / 2 or spaces / len(sample) >= SPACED_FROM


class Ngrams:
    """TF-IDF rows of length 1 a kind of n-gram, side by side."""

    def __init__(self, *, characters: bool, max_features: int, min_df: int = 2) -> None:
        self.characters, self.max_features, self.min_df = characters, max_features, min_df

    def fit(self, texts: Sequence[str]) -> Self:
        if not parts_words_by_spaces(texts):
            kinds = {"character 1-3-grams": {"analyzer": "char", "ngram_range": (1, 3)}}
        else:
            kinds = {"word 1-2-grams": {"token_pattern": WORD, "ngram_range": (1, 2)}}
            if self.characters:
                kinds["character 3-5-grams"] = {"analyzer": "char_wb", "ngram_range": (3, 5)}
        self._vectorizers = [self._fit_one(texts, options) for options in kinds.values()]
        self.about = " and ".join(f"{len(v.vocabulary_):,} {k}" for k, v in zip(kinds, self._vectorizers))
        return self

    def _fit_one(self, texts: Sequence[str], options: dict[str, Any]) -> TfidfVectorizer:
        most = self.max_features
        # A handful of texts may have no n-gram in common; then every n-gram has to do.
        for min_df in (self.min_df if len(texts) >= 1_000 else min(2, self.min_df), 1):
            try:
                return TfidfVectorizer(
                    sublinear_tf=True, min_df=min_df, max_features=most, dtype=np.float32, **options
                ).fit(texts)
            except ValueError:
                continue
        raise UserError("no text has a single word in it.", remedy="Check that the text column is the right one.")

    def transform(self, texts: Sequence[str]) -> csr_matrix:
        if len(texts) == 0:
            return csr_matrix((0, sum(len(v.vocabulary_) for v in self._vectorizers)))
        return hstack([v.transform(texts) for v in self._vectorizers]).tocsr()

    def size_in_bytes(self) -> int:
        """Of the n-grams as UTF-8 and a weight for each."""
        names = sum(len(name.encode("utf-8", "surrogatepass")) for v in self._vectorizers for name in v.vocabulary_)
        return names + sum(v.idf_.nbytes for v in self._vectorizers)


@dataclass(frozen=True)
class _Setting:
    """What is chosen by cross-validation: C (ridge: 1 / alpha), and of a latent space how many dimensions."""

    strength: float
    dimensions: int | None = None

    def view(self, features: Any) -> Any:
        return features if self.dimensions is None else normalize(features[:, : self.dimensions])


@dataclass(frozen=True)
class Output:
    """Fitted estimators: one, or one a label; `width` is the number of classes they answer for."""

    kind: TargetKind
    estimators: list[Any]
    width: int
    setting: _Setting
    about: str

    def predict(self, features: Any) -> NDArray[np.float64]:
        if features.shape[0] == 0:
            return np.zeros(0 if self.kind == "numeric" else (0, self.width))
        features = self.setting.view(features)
        if self.kind == "numeric":
            return self.estimators[0].predict(features)
        probabilities = np.zeros((features.shape[0], self.width))
        if self.kind == "single":
            # Classes without a training text keep probability 0.
            probabilities[:, self.estimators[0].classes_] = self.estimators[0].predict_proba(features)
            return probabilities
        for column, estimator in enumerate(self.estimators):
            yes = np.flatnonzero(estimator.classes_ == 1)
            if len(yes):
                probabilities[:, column] = estimator.predict_proba(features)[:, yes[0]]
        return probabilities

    def size_in_bytes(self) -> int:
        arrays = [getattr(e, name, None) for e in self.estimators for name in ("coef_", "intercept_")]
        return sum(np.asarray(array).nbytes for array in arrays if array is not None)


def fit_output(
    features: Any, targets: NDArray, kind: TargetKind, classes: int, seed: int, *, latent: bool = False
) -> Output:
    width = features.shape[1]
    reads = sorted({min(d, width) for d in DIMENSIONS}) if latent else [None]
    strengths = LATENT_STRENGTHS if latent else STRENGTHS
    settings = [_Setting(strength, d) for d in reads for strength in strengths]
    setting, how = _choose(settings, features, targets, kind, seed)
    view = setting.view(features)
    if kind == "multi":
        labels = np.asarray(targets) > 0.5
        fitted = [_model("multi", setting, labels[:, c]).fit(view, labels[:, c]) for c in range(classes)]
    else:
        fitted = [_model(kind, setting, targets).fit(view, targets)]
    c = setting.strength
    name = f"ridge, alpha={1 / c:g}" if kind == "numeric" else f"logistic regression, C={c:g}"
    dimensions = f"{setting.dimensions} of them -> " if latent else ""
    return Output(kind, fitted, classes, setting, f"{dimensions}{name} ({how})")


def _model(kind: TargetKind, setting: _Setting, targets: NDArray) -> Any:
    """The estimator; where there is one class only, the one that always says so."""
    if kind == "numeric":
        return Ridge(alpha=1 / setting.strength)
    return LogisticRegression(C=setting.strength, max_iter=1_000) if len(np.unique(targets)) > 1 else DummyClassifier()


def _choose(
    settings: list[_Setting], features: Any, targets: NDArray, kind: TargetKind, seed: int
) -> tuple[_Setting, str]:
    """The setting with the best cross-validated log loss (numeric: squared error), the first on ties, and how."""
    classes = len(np.unique(targets)) if kind == "single" else 0
    few = len(_frequent(targets)) < classes if classes else len(targets) < 5 * CROSS_VALIDATE_FROM
    if few or kind == "multi" or classes == 1 or classes > CROSS_VALIDATE_CLASSES:
        fixed = [s for s in settings if s.strength == FIXED_STRENGTH]
        return fixed[-1], "fixed"
    if len(targets) > CROSS_VALIDATE_AT_MOST:
        chosen = np.random.default_rng(seed).permutation(len(targets))[:CROSS_VALIDATE_AT_MOST]
        kept = np.isin(targets[chosen], _frequent(targets[chosen])) if kind == "single" else slice(None)
        features, targets = features[chosen[kept]], targets[chosen[kept]]
    splitter, scoring = (StratifiedKFold, "neg_log_loss") if kind == "single" else (KFold, "neg_mean_squared_error")
    folds = list(splitter(5, shuffle=True, random_state=seed).split(features, targets))
    scores = [
        cross_val_score(_model(kind, s, targets), s.view(features), targets, cv=folds, scoring=scoring).mean()
        for s in settings
    ]
    return settings[int(np.argmax(scores))], "cross-validated"


def _frequent(targets: NDArray) -> NDArray:
    """The classes with texts enough for one in each fold."""
    names, counts = np.unique(targets, return_counts=True)
    return names[counts >= CROSS_VALIDATE_FROM]


def _count_classes(targets: NDArray, kind: TargetKind) -> int:
    if kind == "multi":
        return int(np.asarray(targets).shape[1])
    return int(np.max(targets)) + 1 if kind == "single" else 1
