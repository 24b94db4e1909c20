"""A classifier of texts as a scikit-learn estimator.

Arguments are stored in `__init__` and nothing else happens there; `fit` does the work and leaves attributes with a
trailing underscore. So `clone`, `Pipeline`, `cross_val_score` and `GridSearchCV` work as they do for any estimator,
with a list, array or series of strings as X.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from textgraft.core.context import RunContext
from textgraft.core.errors import UserError
from textgraft.core.files import temporary_folder
from textgraft.core.precision import TRAINING_PRECISIONS
from textgraft.data.examples import Examples, TargetKind
from textgraft.data.labels import ClassWeights
from textgraft.data.unlabelled import with_unlabelled
from textgraft.models import artifact, loading, model_folder
from textgraft.models.artifact import Artifact
from textgraft.models.loading import OpenedModels
from textgraft.tasks import estimator_parameters as parameters
from textgraft.tasks.classification import estimator_input as inputs
from textgraft.tasks.classification.candidate_methods import candidate_method
from textgraft.tasks.classification.ensemble import save_ensemble
from textgraft.tasks.classification.finetune import finetune
from textgraft.tasks.classification.finetune_options import (
    ENSEMBLE,
    FINE_TUNED,
    LINEAR_PROBE,
    METHODS,
    FinetuneOptions,
)
from textgraft.tasks.classification.linear_candidates import CANDIDATE_METHODS
from textgraft.tasks.classification.predictor import Classifier
from textgraft.tasks.fit_report import CandidateReport, FitReport
from textgraft.tasks.language_modeling.adapt import enough_to_adapt
from textgraft.training.recipes import load_recipe
from textgraft.training.settings import Settings

PARAMETERS: Mapping[str, parameters.Rule] = {
    "model": parameters.optional(parameters.name),
    "method": parameters.one_of(METHODS),
    "recipe": parameters.optional(parameters.name),
    "adapt": parameters.flag,
    "minutes": parameters.optional(parameters.limit),
    "folds": parameters.optional(parameters.integer(2)),
    "seed": parameters.integer(0),
    "max_tokens": parameters.integer(1),
    "class_weights": parameters.class_weights,
    "precision": parameters.one_of(TRAINING_PRECISIONS),
    "verbose": parameters.flag,
}
"""The valid values of each parameter but `unlabelled`, which is validated as X is."""


class TextClassifier(ClassifierMixin, BaseEstimator):
    """A classifier of texts from a few labels: `textgraft finetune` as a scikit-learn estimator.

    By default it fits candidates in order of cost, each only if it fits into `minutes`: n-grams, a
    linear probe of an encoder, on unlabelled texts co-training, also with the encoder's vectors, and LSA, and the
    fine-tuned encoder. Each is scored on held-out folds of the training texts, and the weighted ensemble of them
    predicts. The same data, parameters and seed give the same probabilities as the command line, as long as the time
    limit decides nothing.

    Parameters
    ----------
    model : str or Path, default=None
        Name or folder of the language model, or several as MODEL+MODEL. None is, for the ensemble and the linear probe,
        the largest sentence encoder of `textgraft.list_models` up to 150 million parameters that is installed or in the
        cache and is for the language of the texts (textgraft.models.default_encoders). Where there is none, and for
        "fine-tuned", it is a bundled model by the script of the texts (textgraft.models.default_models).
    method : str, default="ensemble"
        "ensemble" chooses among the candidates. To fit one of them alone: "linear" (n-grams), "lsa", "co-training",
        "linear-probe" or "fine-tuned". "vectors", which is none of them, is logistic regression on weighted means of
        word vectors that are counted from the unlabelled texts.
    recipe : str, default=None
        Name or file of a fine-tuning recipe. With a recipe the method is "fine-tuned".
    unlabelled : list of str, default=None
        Texts of the domain without labels. LSA and co-training are fitted on them, and the language model is adapted
        to them. Those that `fit` is given take precedence.
    adapt : bool, default=True
        Continue the pretraining of the language model on the unlabelled texts, where there are any. The ensemble does
        so only if the first fold shows that it may be worth it and there is time for it, and never with a sentence
        encoder, whose vectors are part of co-training instead.
    minutes : float, default=None
        Time limit of the ensemble's model selection, adapting included, in minutes of the wall clock. What would take
        longer than is left is not begun, or with fewer unlabelled texts or folds; `candidates_` has the reason. None is
        5 on a processor and no limit on a GPU; infinity is no limit.
    folds : int, default=None
        Number of cross-validation folds, 2 or more. None is five, fewer where a class has fewer texts, and one held-out
        fifth of more than 2,000 texts.
    seed : int, default=0
        Seed of everything random.
    max_tokens : int, default=512
        Length in tokens that longer texts are cut to, for language models.
    class_weights : {"none", "balanced"} or dict, default="none"
        Weights of the classes, by label. Only a fine-tuned language model heeds them, so that it is all that is fitted.
    precision : {"auto", "fp32", "bf16"}, default="auto"
        Precision of training and prediction.
    verbose : bool, default=False
        Show progress on stderr.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted, of the type they had in y.
    report_ : FitReport
        The method, the choice and its reason, the score on held-out folds with its 95 % interval, the seconds, and a
        table of the candidates; printed as text, shown as HTML in a notebook.
    candidates_ : dict of str to CandidateReport
        For each candidate its score on held-out folds, its weight, the `method` that fits it alone, and the reason if
        it was left out. Linear candidates bear the name of their method. Those of a language model bear the name of its
        family: "gpt" is the method "fine-tuned", and "gpt-probe" the method "linear-probe". "bert-co-training", with
        the vectors of a sentence encoder as a view, is in the ensemble only, and its `method` is empty.
    classifier_ : Classifier
        The fitted model, as `textgraft.load` gives it.

    Notes
    -----
    Labels may be strings, integers or booleans, one a text; or several a text, as a matrix of zeros and ones (a frame
    names the classes by its columns), as lists, tuples, sets or arrays, or as their text in a CSV file ("['a', 'b']").
    They come back in the form in which they came (lists, sets and their text as tuples). Cross-validation wants the
    matrix, because scikit-learn cannot split the others. Texts without a label (None, NaN, "") are unlabelled texts.
    For pairs of texts X has two strings in each row.

    References
    ----------
    Howard & Ruder 2018, Universal Language Model Fine-tuning for Text Classification, §3.3.

    Examples
    --------
    >>> from textgraft import TextClassifier
    >>> texts = ["great film", "great story", "great acting", "poor film", "poor story", "poor acting"]
    >>> labels = ["pos", "pos", "pos", "neg", "neg", "neg"]
    >>> classifier = TextClassifier(method="linear").fit(texts, labels)
    >>> classifier.predict(["a great evening", "a poor evening"]).tolist()
    ['pos', 'neg']
    >>> list(classifier.candidates_)
    ['linear']
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        method: str = ENSEMBLE,
        recipe: str | None = None,
        unlabelled: Sequence[str] | None = None,
        adapt: bool = True,
        minutes: float | None = None,
        folds: int | None = None,
        seed: int = 0,
        max_tokens: int = 512,
        class_weights: str | Mapping[Any, float] = "none",
        precision: str = "auto",
        verbose: bool = False,
    ) -> None:
        self.model = model
        self.method = method
        self.recipe = recipe
        self.unlabelled = unlabelled
        self.adapt = adapt
        self.minutes = minutes
        self.folds = folds
        self.seed = seed
        self.max_tokens = max_tokens
        self.class_weights = class_weights
        self.precision = precision
        self.verbose = verbose

    def fit(self, X: Iterable[str], y: Any, *, unlabelled: Iterable[str] | None = None) -> Self:
        """Fit the candidates, and the weights of their ensemble.

        Parameters
        ----------
        X : iterable of str, or of pairs of str
            N texts. Pairs are tuples, or the rows of an array or frame of two columns.
        y : array-like of shape (N,) or (N, n_classes), or list of N sets
            Their labels.
        unlabelled : iterable of str, default=None
            Texts without labels, in place of the parameter `unlabelled`.

        Returns
        -------
        self : TextClassifier

        Raises
        ------
        UserError
            A ValueError, for a parameter of a wrong type or value, or without a meaning for the method; texts that are
            no strings; labels that are all missing, do not differ, or are too few for two folds; an unknown model or
            recipe; a method that needs unlabelled texts without any; and unlabelled texts that no candidate uses.
        """
        parameters.validate_parameters(self, PARAMETERS)
        texts = inputs.validate_texts(X)
        targets = inputs.Targets.read(y)
        check_consistent_length(texts, targets.labels)
        kind: TargetKind = "single" if targets.answers == "single" else "multi"
        examples = Examples(texts, targets.labels, kind, source="the training data", unit="row")
        pool = inputs.single_texts(self.unlabelled if unlabelled is None else unlabelled)
        if pool and not self.adapt and self._method in (LINEAR_PROBE, FINE_TUNED):
            remedy = "Leave adapt at True, and the language model is adapted to them."
            raise UserError("there are unlabelled texts, but nothing would be trained on them.", remedy=remedy)
        examples, extended_pool = with_unlabelled(examples, pool)
        adapts = self.adapt and bool(pool or enough_to_adapt(extended_pool or ()))
        with temporary_folder() as folder:
            models = self._finetuned(examples, extended_pool, Path(folder) / "classifier", adapts)
        about = {"classes": targets.classes.tolist(), "answers": targets.answers, "method": self._method}
        for run in (models.run, *(member.run for member in models.members)):
            run.update(about)
        self._use(models, targets.classes, targets.answers)
        return self

    def predict(self, X: Iterable[str]) -> np.ndarray:
        """Predict (N,) labels of the type they had in y; for several labels a text those of probability 0.5 or more."""
        p = self.predict_proba(X)
        if self.answers_ == "single":
            return self.classes_[p.argmax(axis=1)]
        if self.answers_ == "indicator":
            return (p >= 0.5).astype(np.int64)
        rows = np.empty(len(p), dtype=object)
        rows[:] = [tuple(self.classes_[row >= 0.5].tolist()) for row in p]
        return rows

    def predict_proba(self, X: Iterable[str]) -> np.ndarray:
        """(N, n_classes) probabilities, a column for each of `classes_`; rows sum to 1 where a text has one label.

        A column of the indicator matrix that was zero in every row of y is 0.
        """
        check_is_fitted(self)
        names = self.classifier_.labels.names
        outputs = self.classifier_.outputs(inputs.validate_texts(X))
        probabilities = np.zeros((len(outputs), len(self.classes_)))
        for column, label in enumerate(map(inputs.class_name, self.classes_.tolist())):
            if label in names:
                probabilities[:, column] = outputs[:, names.index(label)]
        return probabilities

    def score(self, X: Iterable[str], y: Any, sample_weight: Any = None) -> float:
        """Accuracy: the share of texts whose label, or set of labels, is exactly right."""
        check_is_fitted(self)
        if self.answers_ != "sets":
            return float(super().score(X, y, sample_weight))
        predicted = self.predict(X)
        sets = inputs.label_sets(y)
        check_consistent_length(predicted, sets)
        return float(np.average([set(p) == t for p, t in zip(predicted, sets)], weights=sample_weight))

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the fitted classifier as an artifact folder, which the command line can use too.

        Raises
        ------
        UserError
            `path` exists (without `overwrite`) or cannot be written.
        """
        check_is_fitted(self)
        models = self.models_
        for run in (models.run, *(member.run for member in models.members)):
            run["name"] = Path(path).name
        if len(models.members) == 1:
            return artifact.save(models.members[0], path, overwrite=overwrite)
        members = dict(zip(models.folders, models.members, strict=True))
        return save_ensemble(members, models.run, path, weights=models.saved_weights, overwrite=overwrite)

    @classmethod
    def from_artifact(cls, path: str | Path, *, precision: str = "auto") -> Self:
        """The fitted estimator from a folder that `save` or `textgraft finetune` wrote.

        `fit` fits it anew: `method`, `seed` and `max_tokens` are those of the folder, and `model` is the bundled model
        that it was trained from; without one it is the folder, if that is a network, or else None. The other parameters
        are the defaults. `report_` is None for a folder without results.

        Raises
        ------
        UserError
            The folder is damaged, or its model predicts a quantity.
        """
        models = loading.open_models(path)
        labels = Classifier.of(models).labels
        if not labels.target.has_classes:
            remedy = "Use textgraft.load, whose predict gives numbers."
            raise UserError("this model predicts a quantity, not classes.", where=str(path), remedy=remedy)
        classes = models.run.get("classes", [])
        # Names in labels.json are strings; run.json has the classes of y.
        has_classes = set(map(inputs.class_name, classes)) >= set(labels.names)
        answers = models.run.get("answers", "single" if labels.target.has_one_label else "sets")
        estimator = cls(**_parameters_of(models), precision=precision)
        estimator._use(models, np.array(classes if has_classes else labels.names), answers)
        return estimator

    @property
    def _method(self) -> str:
        """The method; "fine-tuned" with a recipe."""
        return FINE_TUNED if self.recipe is not None and self.method == ENSEMBLE else self.method

    def _options(self) -> FinetuneOptions:
        """Options of `textgraft finetune` for the parameters."""
        weights = self.class_weights
        named: ClassWeights = (
            weights if isinstance(weights, str) else {str(label): float(weight) for label, weight in weights.items()}
        )
        return FinetuneOptions(
            recipe=None if self.recipe is None else str(self.recipe),
            method=self._method,
            folds=None if self.folds is None else int(self.folds),
            max_tokens=int(self.max_tokens),
            class_weights=named,
            baselines=self._method != FINE_TUNED,
            report=False,
            minutes=None if self.minutes is None else float(self.minutes),
            settings=self._settings(),
        )

    def _settings(self) -> Settings:
        """Seed and precision; numbers of numpy, such as those of a grid, as Python's, which JSON has."""
        return Settings(seed=int(self.seed), precision=self.precision)

    def _finetuned(self, examples: Examples, pool: list[str] | None, out: Path, adapts: bool) -> OpenedModels:
        """Train by `finetune`; the classifier in memory."""
        options = self._options()
        if adapts and load_recipe(options.language_recipe).adapt.phases:
            options = replace(options, adapt=self._settings())
        context = RunContext(show=self.verbose)
        finetune(examples, out, model=self.model, unlabelled=pool, options=options, context=context)
        return loading.open_models(out)

    def _use(self, models: OpenedModels, classes: np.ndarray, answers: inputs.TargetForm) -> None:
        """Set the fitted attributes."""
        run = models.run
        self.models_ = models
        self.classifier_ = Classifier.of(models, precision=self.precision)
        self.classes_, self.answers_ = classes, answers
        method = _method_of(run)
        alone = f"The language model alone, fine-tuned by the recipe '{run.get('recipe')}'."
        left_out = _left_out(run, self.class_weights) if method == ENSEMBLE else {}
        self.report_: FitReport | None = None
        if "results" in run:
            report = FitReport.of(run, first_method(run), method, alone, left_out=left_out)
            candidates = {name: replace(one, method=candidate_method(name)) for name, one in report.candidates.items()}
            self.report_ = replace(report, candidates=candidates)
        self.candidates_: Mapping[str, CandidateReport] = self.report_.candidates if self.report_ else {}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array, tags.input_tags.one_d_array = True, False, True
        tags.classifier_tags.multi_label = True
        return tags


def first_method(run: Mapping[str, Any]) -> str:
    """The name of what was saved among the methods of run.json's results, with which the verdict begins."""
    methods, verdict = run["results"]["methods"], run["results"]["verdict"]
    return next((name for name in methods if verdict.startswith(f"{name}: ")), next(iter(methods)))


def _method_of(run: Mapping[str, Any]) -> str:
    """The method in run.json; of earlier versions' command line, the one that it implies."""
    method: str = run.get("method", ENSEMBLE if "ensemble" in run else FINE_TUNED)
    return method


def _parameters_of(models: OpenedModels) -> dict[str, Any]:
    """The parameters that fit such models, as far as the folder has them."""
    run, network = models.run, len(models.members) == 1 and isinstance(models.members[0], Artifact)
    language_model = (run.get("base") or {}).get("name")
    model = language_model if language_model in model_folder.names() else models.name if network else None
    parameters = {"model": model, "method": _method_of(run), "seed": run.get("settings", {}).get("seed")}
    parameters |= {"max_tokens": run.get("max_tokens")}
    return {name: value for name, value in parameters.items() if value is not None}


def _left_out(run: Mapping[str, Any], class_weights: Any) -> dict[str, str]:
    """Reasons for candidates of the ensemble that run.json does not mention."""
    weighted = not isinstance(class_weights, str) or class_weights != "none"
    why = "class weights are for a fine-tuned language model alone" if weighted else "there are no unlabelled texts"
    if not weighted and "ensemble" not in run:
        why = "the labels are too few to choose by"
    mentioned = run.get("ensemble", {}).get("candidates", {})
    return {name: why for name in CANDIDATE_METHODS if name not in mentioned}
