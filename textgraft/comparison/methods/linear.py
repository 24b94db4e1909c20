"""Bag-of-words methods, without a language model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from textgraft.comparison.methods.base import KINDS, ONE_LABEL, MethodOptions, Predictions
from textgraft.core.errors import UserError
from textgraft.core.resource_meter import Meter
from textgraft.data.examples import Examples, TargetKind
from textgraft.data.labels import Labels
from textgraft.linear.baselines import Baseline, LsaBaseline
from textgraft.linear.fasttext import FastTextClassifier
from textgraft.linear.lsa import FeatureMap
from textgraft.linear.methods import LINEAR_METHODS, Family, FeatureMaps
from textgraft.linear.word_vector_features import WordVectorFeatures
from textgraft.word_embeddings.sources import StaticVectors
from textgraft.word_embeddings.stack import Stack


class Linear:
    """A method of linear.methods; `linear_method` makes the class of each."""

    name: str
    about: str
    model = ""
    needs_pool: bool
    kinds: tuple[TargetKind, ...]

    def __init__(self, options: MethodOptions) -> None:
        self.options, self.fingerprint = options, ""
        self._feature_maps: FeatureMaps | None = None

    def prepare(self, pool: Sequence[str], folder: Path) -> float:
        """Fit the feature maps, and what classifiers share besides."""
        self._feature_maps = FeatureMaps(pool, folder / "feature_maps", seed=self.options.seed)
        for family in LINEAR_METHODS[self.name].feature_maps:
            self._feature_maps.of(family)
        with Meter() as meter:
            LINEAR_METHODS[self.name].classifier(self._feature_maps, 0)
        return sum(self._feature_maps.seconds.values()) + meter.seconds

    def train_and_predict(
        self, train: Examples, texts: Sequence[str], labels: Labels, seed: int, folder: Path
    ) -> Predictions:
        assert self._feature_maps is not None, "prepare comes first"
        return fit_and_predict(LINEAR_METHODS[self.name].classifier(self._feature_maps, seed), train, texts, labels)


def linear_method(method_name: str) -> type[Linear]:
    """The class of a method of linear.methods, by its name."""
    method = LINEAR_METHODS[method_name]

    class Named(Linear):
        name, about = method_name, method.about
        needs_pool = bool(method.feature_maps)
        kinds = ONE_LABEL if method.one_label_only else KINDS

    return Named


class PretrainedVectors:
    """`vectors` with pretrained word vectors, a folder or a file, in place of vectors from counts."""

    name = "vectors"
    about = "Logistic regression on means of pretrained word vectors, weighted by their rarity in the unlabelled texts."
    model = ""
    needs_pool = True
    kinds = KINDS

    def __init__(self, options: MethodOptions) -> None:
        (source,) = Stack.open([options.named_model]).sources
        if not isinstance(source, StaticVectors):
            remedy = f"Use features@{options.model}, or name word vectors (textgraft vectors)."
            raise UserError("this is a model, not word vectors.", where=str(options.model), remedy=remedy)
        self.options, self._source, self.fingerprint = options, source, source.fingerprint
        self._feature_map: FeatureMap | None = None

    def prepare(self, pool: Sequence[str], folder: Path) -> float:
        """Fit the feature map."""
        feature_maps, vectors = (
            FeatureMaps(pool, folder / "feature_maps", seed=self.options.seed),
            self._source.word_vectors,
        )
        name = f"given-{self.fingerprint[:12]}"
        family = Family((name,), lambda of: [WordVectorFeatures(seed=of.seed, pretrained=vectors).fit(of.texts)])
        (self._feature_map,) = feature_maps.of(family)
        return feature_maps.seconds[family]

    def train_and_predict(
        self, train: Examples, texts: Sequence[str], labels: Labels, seed: int, folder: Path
    ) -> Predictions:
        assert self._feature_map is not None, "prepare comes first"
        return fit_and_predict(LsaBaseline(feature_maps=[self._feature_map], seed=seed), train, texts, labels)


class FastText:
    """The classifier of Joulin et al. 2016 (textgraft.linear.fasttext)."""

    name = "fasttext"
    about = "The mean of learned word and bigram vectors into a softmax (Joulin et al. 2016)."
    model = ""
    needs_pool = False
    kinds = KINDS

    def __init__(self, options: MethodOptions) -> None:
        self.fingerprint = ""

    def prepare(self, pool: Sequence[str], folder: Path) -> float:
        return 0.0

    def train_and_predict(
        self, train: Examples, texts: Sequence[str], labels: Labels, seed: int, folder: Path
    ) -> Predictions:
        return fit_and_predict(FastTextClassifier(seed=seed), train, texts, labels)


def fit_and_predict(classifier: Baseline, train: Examples, texts: Sequence[str], labels: Labels) -> Predictions:
    """Fit `classifier` and predict `texts`."""
    classifier.fit(train.texts, labels.encode(train), kind=labels.kind, num_classes=labels.num_classes)
    return Predictions(classifier.predict_proba(texts), classifier.size_in_bytes(), classifier.about)
