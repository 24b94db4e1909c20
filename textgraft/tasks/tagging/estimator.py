"""A tagger of words as a scikit-learn estimator (estimators has those of texts)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from textgraft.core.errors import UserError
from textgraft.data.conll import Sentence, Tagged, checked
from textgraft.data.examples import validate_not_single_text
from textgraft.data.tags import converted
from textgraft.models import artifact, loading
from textgraft.models.default_models import default_models_for
from textgraft.tasks.tagging.finetune import STACKED, TagOptions, fitted, train_tagger
from textgraft.tasks.tagging.predictor import MAX_TOKENS, Reply, Tagger, scores
from textgraft.tasks.tagging.stacked import Network
from textgraft.training.loop import Settings
from textgraft.word_embeddings.stack import Stack


class SequenceTagger(BaseEstimator):
    """Tags the words of sentences: one encoder fine-tuned, or a network over a stack of frozen ones.

    `model` is the name or the folder of the encoder (None: the usual one for the script of the sentences); with
    `stack`, a list of names of models and word vectors (NAME@LAYERS reads other layers), it is not read. `network` is
    the shape of what is trained over a stack (tasks.tagging.stacked.Network). `crf` and `scheme` None are what suits:
    a CRF over BIOES with a stack, else none over IOB2. The same `seed` gives the same tagger, bit for bit; `verbose`
    shows progress on stderr.

    X is a list of lists of words, y a list of lists of tags, of entities or plain ones. Entities come back as IOB2
    whatever their scheme was, as `read_conll` gives them.
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
        self.seed = seed
        self.max_tokens = max_tokens
        self.precision = precision
        self.verbose = verbose

    def fit(self, X: Iterable[Sequence[str]], y: Iterable[Sequence[str]]) -> Self:
        """Train on N sentences and the tags of their words.

        Raises UserError (a ValueError) for sentences that are no lists of words, tags that are not one a word or not
        legal, and unknown names.
        """
        train = checked(_tagged(X, y, "the training data"))
        recommended_recipe = TagOptions() if self.stack is None else STACKED
        scheme: Any = recommended_recipe.scheme if self.scheme is None else self.scheme
        options = TagOptions(
            recipe=self.recipe,
            max_tokens=self.max_tokens,
            scheme=scheme,
            crf=recommended_recipe.crf if self.crf is None else self.crf,
            network=self.network or Network(),
            settings=Settings(seed=self.seed, precision=self.precision),
        )
        if self.stack is None:
            source = loading.load_network(
                self.model or default_models_for(" ".join(s.words) for s in train.sentences).alone
            )
        else:
            source = options.network.over(Stack.open(self.stack, precision=self.precision), self.seed)
        options = fitted(options, source)
        with tempfile.TemporaryDirectory(prefix="textgraft-") as folder:
            trained, _ = train_tagger(source, train, options, Path(folder), show=self.verbose)
        trained.run |= {"stage": "tag", "max_tokens": options.max_tokens}
        self.tagger_ = Tagger(trained, precision=self.precision)
        self.classes_ = train.tags
        return self

    def predict(self, X: Iterable[Sequence[str]]) -> list[list[str]]:
        """A tag for each word of each sentence."""
        return [list(self._shown(reply)) for reply in self._replies(X)]

    def predict_confidence(self, X: Iterable[Sequence[str]]) -> list[list[float]]:
        """How sure each tag of `predict` is: its probability among the legal tags of its sentence."""
        return [list(reply.probabilities) for reply in self._replies(X)]

    def score(self, X: Iterable[Sequence[str]], y: Iterable[Sequence[str]]) -> float:
        """F1 of entities as conlleval counts them, or the accuracy of other tags."""
        gold = _tagged(X, y, "y")
        found = scores(checked(gold), self._replies([s.words for s in gold.sentences]))
        return float(found.headline.value or 0.0)

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the fitted tagger as a folder, which the command line can use too.

        Raises UserError where `path` exists (without `overwrite`) or cannot be written.
        """
        check_is_fitted(self)
        self.tagger_.artifact.run["name"] = Path(path).name
        return artifact.save(self.tagger_.artifact, path, overwrite=overwrite)

    def _replies(self, X: Iterable[Sequence[str]]) -> list[Reply]:
        check_is_fitted(self)
        return self.tagger_.tag([Sentence.of(words) for words in _sentences(X)])

    def _shown(self, reply: Reply) -> Sequence[str]:
        return converted(reply.tags, "IOB2") if reply.has_entities else reply.tags

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        return tags


def _tagged(X: Iterable[Sequence[str]], y: Iterable[Sequence[str]], source: str) -> Tagged:
    words, tags = _sentences(X), [list(row) for row in y]
    check_consistent_length(words, tags)
    for index, (some, theirs) in enumerate(zip(words, tags, strict=True)):
        if len(some) != len(theirs) or not all(isinstance(tag, str) and tag for tag in theirs):
            message = f"{len(some)} words, and {len(theirs)} tags that are not all strings or not as many."
            raise UserError(message, where=f"y[{index}]", remedy="Give a tag for each word.")
    pairs = zip(words, tags, strict=True)
    return Tagged(tuple(Sentence.of(some, theirs) for some, theirs in pairs), source=source)


def _sentences(X: Iterable[Sequence[str]]) -> list[list[str]]:
    """X as lists of words. Raises UserError, with the place, for anything else."""
    validate_not_single_text(X, name="X", remedy="Pass a list of lists of words.")
    found = []
    for index, words in enumerate(X):
        if isinstance(words, str | bytes) or not hasattr(words, "__len__") or not len(words):
            remedy = "Split texts into words, and leave out empty ones."
            raise UserError("this is no list of words.", where=f"X[{index}]", remedy=remedy)
        if not all(isinstance(word, str) for word in words):
            raise UserError("a word is not a string.", where=f"X[{index}]")
        found.append([str(word) for word in words])
    return found
