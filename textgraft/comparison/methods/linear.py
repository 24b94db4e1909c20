"""Methods that count n-grams and words, with no language model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from textgraft.comparison.methods.base import KINDS, MethodOptions, Predictions
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
    """The way "linear" of linear.methods; those below are others of them."""

    name = "linear"
    about = LINEAR_METHODS["linear"].about
    model = ""
    needs_pool = False
    kinds = KINDS

    def __init__(self, options: MethodOptions) -> None:
        self.options, self.fingerprint = options, ""
        self._feature_maps: FeatureMaps | None = None

    def prepare(self, pool: Sequence[str], folder: Path) -> float:
        """Fit the spaces, and what classifiers share beyond them."""
        self._feature_maps = FeatureMaps(pool, folder / "feature_maps", seed=self.options.seed)
        for family in LINEAR_METHODS[self.name].feature_maps:
            self._feature_maps.of(family)
        with Meter() as meter:
            LINEAR_METHODS[self.name].classifier(self._feature_maps, 0)
        return sum(self._feature_maps.seconds.values()) + meter.seconds

    def answer(self, train: Examples, texts: Sequence[str], labels: Labels, seed: int, folder: Path) -> Predictions:
        assert self._feature_maps is not None, "prepare comes first"
        return fitted(LINEAR_METHODS[self.name].classifier(self._feature_maps, seed), train, texts, labels)


class Lsa(Linear):
    name = "lsa"
    about = LINEAR_METHODS["lsa"].about
    needs_pool = True


class Vectors(Linear):
    name = "vectors"
    about = LINEAR_METHODS["vectors"].about
    needs_pool = True


class GivenVectors:
    """`vectors` with vectors that were trained elsewhere, a folder or a file of them, in place of counted ones."""

    name = "vectors"
    about = "Logistic regression on means of given word vectors, weighed by their rarity in the unlabelled texts."
    model = ""
    needs_pool = True
    kinds = KINDS

    def __init__(self, options: MethodOptions) -> None:
        (source,) = Stack.open([options.named_model]).sources
        if not isinstance(source, StaticVectors):
            remedy = f"Write features@{options.model}, or name word vectors (textgraft vectors)."
            raise UserError("this is a model, not word vectors.", where=str(options.model), remedy=remedy)
        self.options, self._pretrained, self.fingerprint = options, source, source.fingerprint
        self._space: FeatureMap | None = None

    def prepare(self, pool: Sequence[str], folder: Path) -> float:
        """Fit the space."""
        feature_maps, vectors = (
            FeatureMaps(pool, folder / "feature_maps", seed=self.options.seed),
            self._pretrained.word_vectors,
        )
        name = f"given-{self.fingerprint[:12]}"
        family = Family((name,), lambda of: [WordVectorFeatures(seed=of.seed, pretrained=vectors).fit(of.texts)])
        (self._space,) = feature_maps.of(family)
        return feature_maps.seconds[family]

    def answer(self, train: Examples, texts: Sequence[str], labels: Labels, seed: int, folder: Path) -> Predictions:
        assert self._space is not None, "prepare comes first"
        return fitted(LsaBaseline(feature_maps=[self._space], seed=seed), train, texts, labels)


class CoTraining(Linear):
    name = "self-trained"
    about = LINEAR_METHODS["self-trained"].about
    needs_pool = True
    kinds: tuple[TargetKind, ...] = ("single",)


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

    def answer(self, train: Examples, texts: Sequence[str], labels: Labels, seed: int, folder: Path) -> Predictions:
        return fitted(FastTextClassifier(seed=seed), train, texts, labels)


def fitted(classifier: Baseline, train: Examples, texts: Sequence[str], labels: Labels) -> Predictions:
    """Fit `classifier` and have it answer."""
    classes = None if labels.kind == "numeric" else labels.num_outputs
    classifier.fit(train.texts, labels.encode(train), kind=labels.kind, num_classes=classes)
    return Predictions(classifier.predict_proba(texts), classifier.size_in_bytes(), classifier.about)
