"""A tagger of words as a scikit-learn estimator (tasks.classification.estimator has those of texts)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from textgraft.core.context import RunContext
from textgraft.core.errors import UserError
from textgraft.core.files import temporary_folder
from textgraft.core.precision import TRAINING_PRECISIONS
from textgraft.data.conll import Sentence, Tagged, checked
from textgraft.data.examples import validate_not_single_text
from textgraft.data.tags import converted
from textgraft.models import artifact, loading, model_folder
from textgraft.models.artifact import Artifact
from textgraft.tasks import estimator_parameters as parameters
from textgraft.tasks.fit_report import CandidateReport, FitReport
from textgraft.tasks.registry import open_model_of
from textgraft.tasks.tagging.finetune import SCHEMES, STACKED, TAGGER, TagOptions, tag_finetune
from textgraft.tasks.tagging.network import tagging_head
from textgraft.tasks.tagging.predictor import MAX_TOKENS, TaggedSentence, Tagger, scores
from textgraft.tasks.tagging.spec import TAGGING
from textgraft.tasks.tagging.stacked import Network
from textgraft.training.settings import Settings
from textgraft.word_embeddings.stack import Stack

PARAMETERS: Mapping[str, parameters.Rule] = {
    "model": parameters.optional(parameters.name),
    "stack": parameters.optional(parameters.names),
    "recipe": parameters.name,
    "crf": parameters.optional(parameters.flag),
    "scheme": parameters.optional(parameters.one_of(SCHEMES)),
    "network": parameters.optional(parameters.instance(Network)),
    "minutes": parameters.optional(parameters.positive),
    "seed": parameters.integer(0),
    "max_tokens": parameters.integer(4),
    "precision": parameters.one_of(TRAINING_PRECISIONS),
    "verbose": parameters.flag,
}
"""The valid values of each parameter."""


class SequenceTagger(BaseEstimator):
    """A tagger of words: `textgraft tag finetune` as a scikit-learn estimator.

    It fine-tunes an encoder, or trains a network over a stack of frozen ones, on nine tenths of the sentences, and
    scores it on the rest, beside each word's most frequent tag. The same data, parameters and seed give the same
    probabilities as the command line.

    Parameters
    ----------
    model : str or Path, default=None
        Name or folder of the encoder. None is the default model for the script of the sentences
        (textgraft.models.default_models). Leave it out where there is a stack.
    stack : list of str or Path, default=None
        Names of models and word vectors to train a network over; NAME@LAYERS uses other layers of a model.
    recipe : str, default="default"
        Name or file of a fine-tuning recipe; "default" is the recommended recipe of the encoder.
    crf : bool, default=None
        Learn which tag follows which. None is True with a stack, else False.
    scheme : {"IOB2", "BIOES"}, default=None
        Scheme in which entities are learned. None is BIOES with a stack, else IOB2.
    network : Network, default=None
        Shape of the network over a stack (tasks.tagging.stacked.Network).
    minutes : float, default=None
        Training time, in place of the recipe's epochs; TextClassifier's is a limit beyond which candidates are left
        out.
    seed : int, default=0
        Seed of everything random.
    max_tokens : int, default=256
        Length in tokens of a window over a long sentence.
    precision : {"auto", "fp32", "bf16"}, default="auto"
        Precision of training and prediction.
    verbose : bool, default=False
        Show progress on stderr.

    Attributes
    ----------
    classes_ : list of str
        The tags, of entities as IOB2.
    report_ : FitReport
        The score on the held-out sentences with its 95 % interval, beside the baseline's; printed as text, shown as
        HTML in a notebook.
    candidates_ : dict of str to CandidateReport
        The tagger and the baseline, with their scores on the held-out sentences.
    tagger_ : Tagger
        The fitted model, as `textgraft.Tagger` gives it.

    Notes
    -----
    X is a list of lists of words, y a list of lists of tags, of entities or others. Entities come back as IOB2 whatever
    their scheme was, as `read_conll` gives them. At least two different sentences are needed.

    Examples
    --------
    >>> from textgraft import SequenceTagger
    >>> words = [["Ann", "lives", "in", "Rome"], ["Bob", "works"], ["Rome", "is", "old"]]
    >>> tags = [["B-PER", "O", "O", "B-LOC"], ["B-PER", "O"], ["B-LOC", "O", "O"]]
    >>> tagger = SequenceTagger().fit(words, tags)  # doctest: +SKIP
    >>> tagger.classes_  # doctest: +SKIP
    ['O', 'B-LOC', 'I-LOC', 'B-PER', 'I-PER']
    >>> print(tagger.report_)  # doctest: +SKIP
    tagger: F1 66.7 % [66.7, 66.7], held out, n = 1; 10.0 s of training.
    Fine-tuned by the recipe 'lstm-gentle', beside each word's most frequent tag.
    <BLANKLINE>
    candidate         F1  weight
    tagger        66.7 %   100 %
    frequent tag  66.7 %     0 %
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        stack: Sequence[str | Path] | None = None,
        recipe: str = "default",
        crf: bool | None = None,
        scheme: str | None = None,
        network: Network | None = None,
        minutes: float | None = None,
        seed: int = 0,
        max_tokens: int = MAX_TOKENS,
        precision: str = "auto",
        verbose: bool = False,
    ) -> None:
        self.model = model
        self.stack = stack
        self.recipe = recipe
        self.crf = crf
        self.scheme = scheme
        self.network = network
        self.minutes = minutes
        self.seed = seed
        self.max_tokens = max_tokens
        self.precision = precision
        self.verbose = verbose

    def fit(self, X: Iterable[Sequence[str]], y: Iterable[Sequence[str]]) -> Self:
        """Train on N sentences and the tags of their words.

        Parameters
        ----------
        X : iterable of lists of str
            N sentences as words.
        y : iterable of lists of str
            A tag for each word.

        Returns
        -------
        self : SequenceTagger

        Raises
        ------
        UserError
            A ValueError, for a parameter of a wrong type or value; both a model and a stack; sentences that are no
            lists of words; tags that are not one a word, or not legal; fewer than two different sentences; and unknown
            names.
        """
        parameters.validate_parameters(self, PARAMETERS)
        if self.stack is not None and self.model is not None:
            remedy = "Leave one of them out, or add the model to the stack."
            raise UserError("both a model and a stack are given.", where=type(self).__name__, remedy=remedy)
        train = checked(_tagged(X, y, "the training data"))
        with temporary_folder() as folder:
            self._set_fitted(self._finetune(train, Path(folder) / "tagger"))
        return self

    def predict(self, X: Iterable[Sequence[str]]) -> list[list[str]]:
        """A tag for each word of each sentence."""
        return [list(self._as_iob2(prediction)) for prediction in self._tag(X)]

    def predict_confidence(self, X: Iterable[Sequence[str]]) -> list[list[float]]:
        """The probability of each tag of `predict` among the legal tags of its sentence."""
        return [list(prediction.probabilities) for prediction in self._tag(X)]

    def score(self, X: Iterable[Sequence[str]], y: Iterable[Sequence[str]]) -> float:
        """F1 of entities as conlleval counts them, or the accuracy of other tags."""
        gold = _tagged(X, y, "y")
        tag_scores = scores(checked(gold), self._tag([s.words for s in gold.sentences]))
        return float(tag_scores.headline.value or 0.0)

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the fitted tagger as a folder, which the command line can use too.

        Raises
        ------
        UserError
            `path` exists (without `overwrite`) or cannot be written.
        """
        check_is_fitted(self)
        self.tagger_.artifact.run["name"] = Path(path).name
        return artifact.save(self.tagger_.artifact, path, overwrite=overwrite)

    @classmethod
    def from_artifact(cls, path: str | Path, *, precision: str = "auto") -> Self:
        """The fitted estimator from a folder that `save` or `textgraft tag finetune` wrote.

        `fit` trains it anew: `crf`, `scheme`, `seed` and `max_tokens` are those of the folder, and `model` is the
        bundled model that it was trained from, or else the folder, as for a tagger over a stack. The other parameters
        are the defaults. `report_` is None for a folder without results.

        Raises
        ------
        UserError
            The folder is damaged, or has a model of another task.
        """
        opened = open_model_of(TAGGING, path)
        trained = opened if isinstance(opened, Artifact) else loading.load_network(path)
        tagger = cls(**_parameters_of(trained, str(path)), precision=precision)
        tagger._set_fitted(trained)
        return tagger

    def _options(self) -> TagOptions:
        """Options of `textgraft tag finetune` for the parameters."""
        default = TagOptions() if self.stack is None else STACKED
        scheme: Any = default.scheme if self.scheme is None else self.scheme
        return TagOptions(
            recipe=str(self.recipe),
            max_tokens=int(self.max_tokens),
            scheme=scheme,
            crf=default.crf if self.crf is None else bool(self.crf),
            network=self.network or Network(),
            settings=Settings(
                seed=int(self.seed),
                precision=self.precision,
                minutes=None if self.minutes is None else float(self.minutes),
            ),
        )

    def _finetune(self, train: Tagged, out: Path) -> Artifact:
        """Train by `tag_finetune`; the tagger in memory."""
        options = self._options()
        model = self.model if self.stack is None else Stack.open(self.stack, precision=self.precision)
        return tag_finetune(train, out, model=model, options=options, context=RunContext(show=self.verbose)).tagger

    def _set_fitted(self, trained: Artifact) -> None:
        """Set the fitted attributes."""
        self.tagger_ = Tagger(trained, precision=self.precision)
        head = tagging_head(trained.model).config
        ends = ("E-", "S-") if head.scheme == "BIOES" else ()
        self.classes_ = [tag for tag in head.tags if not tag.startswith(ends)]
        self.report_: FitReport | None = None
        if "results" in trained.run:
            chosen = f"Fine-tuned by the recipe '{trained.run.get('recipe')}', beside each word's most frequent tag."
            self.report_ = FitReport.of(trained.run, TAGGER, TAGGER, chosen)
        self.candidates_: Mapping[str, CandidateReport] = self.report_.candidates if self.report_ else {}

    def _tag(self, X: Iterable[Sequence[str]]) -> list[TaggedSentence]:
        check_is_fitted(self)
        return self.tagger_.tag([Sentence.of(words) for words in _sentences(X)])

    def _as_iob2(self, prediction: TaggedSentence) -> Sequence[str]:
        return converted(prediction.tags, "IOB2") if prediction.has_entities else prediction.tags

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        return tags


def _parameters_of(trained: Artifact, path: str) -> dict[str, Any]:
    """The parameters that train such a tagger, as far as the folder has them."""
    run, head = trained.run, tagging_head(trained.model).config
    base = (run.get("base") or {}).get("name")
    bundled = trained.stack is None and base in model_folder.names()
    parameters = {"model": base if bundled else path, "crf": head.crf, "seed": run.get("settings", {}).get("seed")}
    parameters |= {"scheme": head.scheme if head.scheme in SCHEMES else None, "max_tokens": run.get("max_tokens")}
    return {name: value for name, value in parameters.items() if value is not None}


def _tagged(X: Iterable[Sequence[str]], y: Iterable[Sequence[str]], source: str) -> Tagged:
    words, tags = _sentences(X), [list(row) for row in y]
    check_consistent_length(words, tags)
    for index, (sentence, sentence_tags) in enumerate(zip(words, tags, strict=True)):
        if len(sentence) != len(sentence_tags) or not all(isinstance(tag, str) and tag for tag in sentence_tags):
            message = f"{len(sentence)} words, and {len(sentence_tags)} tags that are not all strings or not as many."
            raise UserError(message, where=f"y[{index}]", remedy="Give a tag for each word.")
    pairs = zip(words, tags, strict=True)
    return Tagged(tuple(Sentence.of(sentence, its_tags) for sentence, its_tags in pairs), source=source)


def _sentences(X: Iterable[Sequence[str]]) -> list[list[str]]:
    """X as lists of words. Raises UserError for anything else."""
    validate_not_single_text(X, name="X", remedy="Pass a list of lists of words.")
    sentences = []
    for index, words in enumerate(X):
        if isinstance(words, str | bytes) or not hasattr(words, "__len__") or not len(words):
            remedy = "Split texts into words, and leave out empty ones."
            raise UserError("this is no list of words.", where=f"X[{index}]", remedy=remedy)
        if not all(isinstance(word, str) for word in words):
            raise UserError("a word is not a string.", where=f"X[{index}]")
        sentences.append([str(word) for word in words])
    return sentences
