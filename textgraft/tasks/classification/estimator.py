"""textgraft as scikit-learn estimators: one that learns labels, one that turns texts into vectors.

Arguments are stored in `__init__` and nothing else happens there; `fit` does the work and leaves attributes with a
trailing underscore. So `clone`, `Pipeline`, `cross_val_score` and `GridSearchCV` work as they do for any estimator,
with a list, array or series of strings as X.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d

from textgraft.core.errors import UserError, did_you_mean
from textgraft.data.examples import Examples, Label, Pair, TargetKind, each_text, is_missing, reads
from textgraft.data.labels import ClassWeights, Labels, kind_of_texts
from textgraft.models import artifact, loading
from textgraft.models.artifact import Artifact
from textgraft.models.default_models import default_models_for
from textgraft.models.inference import embed_sequences
from textgraft.nn.layer_aggregation import LAST, new_layer_aggregation
from textgraft.nn.pooling import POOLINGS, pooled_dim
from textgraft.tasks.classification.predictor import Classifier
from textgraft.tasks.classification.training import EncodedTexts, Plan, as_model, train_classifier
from textgraft.tasks.language_modeling.adapt import adapt as adapt_language_model
from textgraft.training.driver import content_hash
from textgraft.training.loop import Settings
from textgraft.training.provenance import provenance
from textgraft.training.recipes import load_recipe

TargetForm = Literal["single", "indicator", "sets"]
"""What y looks like: one label a text, a row of zeros and ones a text, or a list, tuple or set of labels a text."""


class TextClassifier(ClassifierMixin, BaseEstimator):
    """A classifier grafted onto a pretrained language model (Howard & Ruder 2018, §3.3).

    `model` is the name or the folder of the language model (None: the usual one for the script of the texts,
    textgraft.models.default_models), `recipe` says how to fine-tune it, `max_tokens` where long texts are cut.
    `class_weights` is "none", "balanced" or {label: weight}. With `adapt` the language model first reads the training
    texts, and those given to `fit` as `unlabelled` (§3.2). `precision` is "auto", "fp32" or "bf16"; `verbose` shows
    progress on stderr. The same `seed` gives the same classifier, bit for bit.

    Labels may be strings, integers or booleans, one a text; or several a text, as a matrix of zeros and ones or as
    lists, tuples or sets. They come back in the form in which they came (lists and sets as tuples); `classes_` has
    them sorted. Cross-validation wants the matrix, because scikit-learn cannot split the others.

    Nothing is scored here: `textgraft.finetune` measures a model, calibrates it and stands baselines beside it.
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        recipe: str = "default",
        seed: int = 0,
        max_tokens: int = 512,
        class_weights: str | Mapping[Any, float] = "none",
        adapt: bool = False,
        precision: str = "auto",
        verbose: bool = False,
    ) -> None:
        self.model = model
        self.recipe = recipe
        self.seed = seed
        self.max_tokens = max_tokens
        self.class_weights = class_weights
        self.adapt = adapt
        self.precision = precision
        self.verbose = verbose

    def fit(self, X: Iterable[str], y: Any, *, unlabelled: Iterable[str] | None = None) -> Self:
        """Fine-tune on N texts, or pairs of texts, and their labels.

        Pairs are two strings each: tuples, or the rows of an array or frame of two columns.

        Raises UserError (a ValueError) for texts that are no strings, labels that are missing or do not differ, an
        unknown model or recipe, and unlabelled texts that nothing would read.
        """
        texts = check_texts(X)
        given = Targets.read(y)
        check_consistent_length(texts, given.labels)
        kind: TargetKind = "single" if given.answers == "single" else "multi"
        examples = Examples(texts, given.labels, kind, source="the training data", unit="row")
        with tempfile.TemporaryDirectory(prefix="textgraft-") as folder:
            source = self._language_model(texts, unlabelled, Path(folder))
            member = self._train(source, examples, given, Path(folder))
        self.classifier_ = Classifier([member], precision=self.precision)
        self.classes_, self.answers_ = given.classes, given.answers
        return self

    def predict(self, X: Iterable[str]) -> np.ndarray:
        """(N,) labels as they were in y; for several labels a text those of probability 0.5 or more."""
        p = self.predict_proba(X)
        if self.answers_ == "single":
            return self.classes_[p.argmax(axis=1)]
        if self.answers_ == "indicator":
            return (p >= 0.5).astype(np.int64)
        rows = np.empty(len(p), dtype=object)
        rows[:] = [tuple(self.classes_[row >= 0.5].tolist()) for row in p]
        return rows

    def predict_proba(self, X: Iterable[str]) -> np.ndarray:
        """(N, C) probabilities, a column for each of `classes_`; rows sum to 1 where a text has one label."""
        check_is_fitted(self)
        names = self.classifier_.labels.names
        columns = [names.index(str(label)) for label in self.classes_.tolist()]
        return self.classifier_.outputs(check_texts(X))[:, columns]

    def score(self, X: Iterable[str], y: Any, sample_weight: Any = None) -> float:
        """Accuracy: the share of texts that got exactly the right label, or labels."""
        check_is_fitted(self)
        if self.answers_ != "sets":
            return float(super().score(X, y, sample_weight))
        predicted = self.predict(X)
        check_consistent_length(predicted, y)
        return float(np.average([set(p) == set(t) for p, t in zip(predicted, y)], weights=sample_weight))

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the fitted classifier as an artifact folder, which the command line can use too.

        Raises UserError where `path` exists (without `overwrite`) or cannot be written.
        """
        check_is_fitted(self)
        return artifact.save(self.classifier_.members[0], path, overwrite=overwrite)

    @classmethod
    def from_artifact(cls, path: str | Path, *, precision: str = "auto") -> Self:
        """The fitted estimator from a folder that `save` or `textgraft finetune` wrote.

        Its parameters are the defaults, but for `model`, which is the folder. Raises UserError for a damaged folder
        and for a model that predicts a quantity.
        """
        member = loading.load_network(path)
        estimator = cls(str(path), precision=precision)
        estimator.classifier_ = Classifier([member], precision=precision)
        labels = estimator.classifier_.labels
        if labels.kind == "numeric":
            remedy = "Use textgraft.load, whose predict gives numbers."
            raise UserError("this model predicts a quantity, not classes.", where=str(path), remedy=remedy)
        classes = member.run.get("classes", [])
        # Names in labels.json are strings; run.json knows what they were in y.
        known = sorted(map(str, classes)) == sorted(labels.names)
        estimator.classes_ = np.array(classes if known else labels.names)
        estimator.answers_ = member.run.get("answers", "single" if labels.kind == "single" else "sets")
        return estimator

    def _language_model(self, texts: list[str], unlabelled: Iterable[str] | None, folder: Path) -> Artifact:
        model = self.model or default_models_for(texts).alone
        if not self.adapt:
            if unlabelled is not None:
                remedy = "Pass adapt=True, and the language model reads them first."
                raise UserError("unlabelled texts are given, but nothing would read them.", remedy=remedy)
            return loading.load_network(model)
        pool = texts + check_texts([] if unlabelled is None else unlabelled, name="unlabelled")
        adapted = adapt_language_model(
            pool,
            folder / "adapted",
            model=model,
            recipe=self.recipe,
            settings=Settings(seed=self.seed, precision=self.precision),
            show=self.verbose,
        )
        return loading.load_network(adapted)

    def _train(self, source: Artifact, examples: Examples, given: Targets, folder: Path) -> Artifact:
        labels = Labels.fit(examples)
        if labels.kind == "multi":  # a column of zeros only is a class too
            labels = Labels("multi", tuple(sorted(str(label) for label in given.classes.tolist())))
        settings = Settings(seed=self.seed, precision=self.precision)
        weights = self.class_weights
        named: ClassWeights = weights if isinstance(weights, str) else {str(k): w for k, w in weights.items()}
        recipe = source.recommended_recipe(self.recipe, kind_of_texts(examples, labels))
        plan = Plan(
            language_model=source.model,
            from_scratch=False,
            stage=load_recipe(recipe).finetune,
            settings=settings,
            labels=labels,
            class_weights=labels.class_weights(examples, named),
            pad_id=source.tokenizer.pad_id,
        )
        sequences, lost = source.encoded(examples.texts, self.max_tokens)
        encoded = EncodedTexts(sequences, labels.encode(examples))
        trained = train_classifier(
            plan, encoded, {}, seed=self.seed, folder=folder, title="classifier", show=self.verbose
        )
        data = {"train": {"texts": len(examples), "sha256": content_hash(zip(examples.texts, given.labels))}}
        record = provenance(
            stage="finetune", name="classifier", base=source.run, data=data, recipe=recipe, settings=settings
        )
        record |= {
            "labels": len(examples),
            "classes": given.classes.tolist(),
            "answers": given.answers,
            "kind": labels.kind,
            "reads": reads(examples.texts),
            "max_tokens": self.max_tokens,
            "tokens_lost": {"train": lost.share},
            "history": trained.history,
        }
        return Artifact(as_model(plan, trained), source.tokenizer, labels, record)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array, tags.input_tags.one_d_array = True, False, True
        tags.classifier_tags.multi_label = True
        return tags


class TextEmbedder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Texts to vectors: the pooled top layer of a model that textgraft has saved, fine-tuned or not.

    Without `model` it is the usual one for the script of the texts that `fit` is given
    (textgraft.models.default_models). `pooling` is "mean", "max", "last" or "concat" (all three, Howard & Ruder 2018,
    §3.3); `layers` says which layers to read instead of the top one (nn.layer_aggregation.LAYER_AGGREGATIONS). Nothing
    is learned from the texts: `fit` loads the model.
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        pooling: str = "mean",
        layers: str = LAST,
        max_tokens: int = 512,
        precision: str = "auto",
    ) -> None:
        self.model = model
        self.pooling = pooling
        self.layers = layers
        self.max_tokens = max_tokens
        self.precision = precision

    def fit(self, X: Iterable[str], y: Any = None) -> Self:
        """Load the model.

        Raises UserError for an unknown model or pooling, layers that it cannot read so, and texts that are no strings.
        """
        texts = check_texts(X)
        if self.pooling not in POOLINGS:
            raise UserError(f"unknown pooling '{self.pooling}'.", remedy=did_you_mean(str(self.pooling), POOLINGS))
        self.artifact_ = loading.load_network(self.model or default_models_for(texts).alone)
        read = new_layer_aggregation(self.layers, self.artifact_.model.encoder.widths)
        self._n_features_out = pooled_dim(self.pooling, read.output_dim)
        return self

    def transform(self, X: Iterable[str]) -> np.ndarray:
        """(N, D) float32 vectors, or (N, 3 D) with pooling "concat"."""
        check_is_fitted(self)
        texts = check_texts(X)
        if not texts:
            return np.zeros((0, self._n_features_out), dtype=np.float32)
        tokenizer = self.artifact_.tokenizer
        sequences, _ = self.artifact_.encoded(texts, self.max_tokens)
        model, given = self.artifact_.model, (tokenizer.pad_id, self.pooling, self.precision)
        return embed_sequences(model, sequences, *given, layers=self.layers)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array, tags.input_tags.one_d_array = True, False, True
        return tags


def check_texts(X: Iterable[str], *, name: str = "X") -> list[str]:
    """X as a list of strings; of Pairs, where X has two strings in each row.

    Raises UserError, with the place, for anything that is not one string a text, or two.
    """
    shape: tuple[int, ...] = getattr(X, "shape", (0,))
    if len(shape) != 1 and (len(shape) != 2 or shape[1] != 2):
        what = f"{shape[1]} column{'s' * (shape[1] != 1)}" if len(shape) == 2 else f"{len(shape)} dimensions"
        remedy = "Pass one column of texts, such as frame['text'], or two of pairs."
        raise UserError(f"this has {what}, and texts have one, pairs two.", where=name, remedy=remedy)
    if len(shape) == 2:
        X = X.to_numpy().tolist() if hasattr(X, "to_numpy") else np.asarray(X).tolist()
    texts = list(each_text(X, name=name))
    for index, text in enumerate(texts):
        if isinstance(text, Pair) != isinstance(texts[0], Pair):
            raise UserError("single texts and pairs are mixed.", where=f"{name}[{index}]")
    return [text if isinstance(text, Pair) else str(text) for text in texts]


@dataclass(frozen=True)
class Targets:
    """What y says: labels as textgraft's own (strings, or tuples of them), and the user's classes, sorted."""

    labels: list[Label]
    classes: np.ndarray
    answers: TargetForm

    @classmethod
    def read(cls, y: Any) -> Targets:
        """Raises UserError for missing labels and labels that cannot be sorted; ValueError for a quantity."""
        values = y.toarray() if hasattr(y, "toarray") else y
        values = values.to_numpy() if hasattr(values, "to_numpy") else values
        rows = values.tolist() if isinstance(values, np.ndarray) else list(values)
        if rows and all(isinstance(row, list | tuple | set | frozenset) for row in rows):
            if not (isinstance(values, np.ndarray) and values.ndim == 2 and values.shape[1] == 1):
                return cls._of_several(rows)
            rows = column_or_1d(values, warn=True).tolist()
        for index, label in enumerate(rows):
            if is_missing(label):
                remedy = "Fill it in, or take the text out."
                raise UserError("the label is missing.", where=f"y[{index}]", remedy=remedy)
        classes = _sorted_classes(rows)
        check_classification_targets(np.array(rows))
        return cls([str(label) for label in rows], classes, "single")

    @classmethod
    def _of_several(cls, rows: Sequence[Any]) -> Targets:
        classes = _sorted_classes([label for row in rows for label in row])
        if _is_indicator(rows):
            named = [tuple(str(i) for i, value in enumerate(row) if value) for row in rows]
            return cls(list(named), np.arange(len(rows[0])), "indicator")
        return cls([tuple(str(label) for label in row) for row in rows], classes, "sets")


def _is_indicator(rows: Sequence[Any]) -> bool:
    """Whether these are rows of zeros and ones, all equally long, as scikit-learn reads a nested list."""
    ordered = not any(isinstance(row, set | frozenset) for row in rows)
    one_width = len({len(row) for row in rows}) == 1 and len(rows[0]) > 0
    return ordered and one_width and {value for row in rows for value in row} <= {0, 1}


def _sorted_classes(labels: Sequence[Any]) -> np.ndarray:
    try:
        return np.array(sorted(set(labels)))
    except TypeError as error:
        kinds = ", ".join(sorted({type(label).__name__ for label in labels}))
        remedy = "Make all labels strings, or all integers."
        raise UserError(f"the labels are of different kinds ({kinds}).", where="y", remedy=remedy) from error
