"""Heads of the `transformers` library's BERTs and DistilBERTs: which of ours each is, and what config.json says."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from textgraft.core.errors import UserError
from textgraft.data.examples import TargetKind
from textgraft.data.tags import scheme_of_names, without_bilou
from textgraft.encoders.bert import BERTConfig
from textgraft.heads.base import Head
from textgraft.heads.classification import POOLED, ClassificationConfig, ClassificationHead
from textgraft.heads.features import FeaturesConfig, FeaturesHead
from textgraft.heads.masked_language_model import MaskedLanguageModelConfig, MaskedLanguageModelHead
from textgraft.heads.multiple_choice import ChoiceConfig, ChoiceHead
from textgraft.heads.span import SpanConfig, SpanHead
from textgraft.heads.tagging import TaggingConfig, TaggingHead

Kind = Literal["bert", "distilbert"]
LIBRARY: dict[Kind, str] = {"bert": "Bert", "distilbert": "DistilBert"}
"""How the names of the library's classes begin, by model_type."""
PROBLEMS: dict[str, TargetKind] = {
    "single_label_classification": "single",
    "multi_label_classification": "multi",
    "regression": "numeric",
}


@dataclass(frozen=True)
class Theirs:
    """What lies in a folder: config.json, the weights by their plain names, and what follows of the encoder."""

    config: Mapping[str, Any]
    kind: Kind
    encoder: BERTConfig
    given: Mapping[str, Tensor]

    @property
    def task(self) -> str:
        """How the name of the class that wrote it ends, as in ForTokenClassification; empty where it is not said."""
        architectures = self.config.get("architectures") or [""]
        return str(architectures[0]).removeprefix(LIBRARY[self.kind])

    def names(self, count: int) -> list[str]:
        """What the outputs are called; LABEL_0 and so on where config.json does not say."""
        known = self.config.get("id2label") or {}
        return [str(known.get(str(i), known.get(i, f"LABEL_{i}"))) for i in range(count)]


class Format(ABC):
    """A head of the library's. `name` is that of ours in model.HEADS, `tasks` how the library's classes end.

    `idle` are biases that move all scores alike, which a softmax does not see: ours has none, and zeros are written.
    """

    name: str
    tasks: tuple[str, ...]
    idle: Mapping[str, int] = {}

    @abstractmethod
    def reads(self, theirs: Theirs) -> bool:
        """Whether these weights are of such a head."""

    @abstractmethod
    def config(self, theirs: Theirs) -> Any:
        """The config of our head."""

    @abstractmethod
    def modules(self, kind: Kind) -> dict[str, str]:
        """The library's module for each of ours."""

    @abstractmethod
    def writes(self, head: Head, kind: Kind, encoder: BERTConfig) -> bool:
        """Whether the library has such a head, with these settings."""

    @abstractmethod
    def fields(self, head: Any, kind: Kind) -> dict[str, Any]:
        """What config.json says because of it, beside the class."""

    def task(self, head: Any) -> str:
        """How the class's name ends."""
        return self.tasks[0]


class Spans(Format):
    """Answers as stretches of a text."""

    name = "span"
    tasks = ("ForQuestionAnswering",)
    idle: Mapping[str, int] = {"qa_outputs.bias": 2}

    def reads(self, theirs: Theirs) -> bool:
        return "qa_outputs.weight" in theirs.given

    def config(self, theirs: Theirs) -> SpanConfig:
        dropout = theirs.config.get("qa_dropout", 0.0) if theirs.kind == "distilbert" else 0.0
        return SpanConfig(theirs.encoder.embedding_dim, input_dropout=dropout)

    def modules(self, kind: Kind) -> dict[str, str]:
        return {"output": "qa_outputs"}

    def writes(self, head: Head, kind: Kind, encoder: BERTConfig) -> bool:
        return isinstance(head, SpanHead)

    def fields(self, head: Any, kind: Kind) -> dict[str, Any]:
        return {"qa_dropout": head.config.input_dropout} if kind == "distilbert" else {}


class MaskedTokens(Format):
    """A language model of hidden tokens, and of next sentences where it has that."""

    name = "masked_language_model"
    tasks = ("ForMaskedLM", "ForPreTraining")

    def reads(self, theirs: Theirs) -> bool:
        given = theirs.given
        return "vocab_projector.bias" in given or any(name.startswith("cls.predictions.") for name in given)

    def config(self, theirs: Theirs) -> MaskedLanguageModelConfig:
        encoder, tied = theirs.encoder, bool(theirs.config.get("tie_word_embeddings", True))
        pairs = "cls.seq_relationship.weight" in theirs.given
        sizes = encoder.vocab_size, encoder.embedding_dim
        return MaskedLanguageModelConfig(*sizes, tied, pairs, encoder.layer_norm_eps)

    def modules(self, kind: Kind) -> dict[str, str]:
        if kind == "distilbert":
            return {"dense": "vocab_transform", "norm": "vocab_layer_norm", "output": "vocab_projector"}
        transform = "cls.predictions.transform"
        return {
            "dense": f"{transform}.dense",
            "norm": f"{transform}.LayerNorm",
            "output": "cls.predictions.decoder",
            "next_sentence": "cls.seq_relationship",
        }

    def writes(self, head: Head, kind: Kind, encoder: BERTConfig) -> bool:
        return isinstance(head, MaskedLanguageModelHead) and head.config.layer_norm_eps == encoder.layer_norm_eps

    def fields(self, head: Any, kind: Kind) -> dict[str, Any]:
        return {"tie_word_embeddings": head.config.tied}

    def task(self, head: Any) -> str:
        return self.tasks[bool(head.config.next_sentence)]


class Features(Format):
    """No head at all."""

    name = "features"
    tasks = ("Model",)

    def reads(self, theirs: Theirs) -> bool:
        return "classifier.weight" not in theirs.given

    def config(self, theirs: Theirs) -> FeaturesConfig:
        return FeaturesConfig(theirs.encoder.embedding_dim)

    def modules(self, kind: Kind) -> dict[str, str]:
        return {}

    def writes(self, head: Head, kind: Kind, encoder: BERTConfig) -> bool:
        return isinstance(head, FeaturesHead)

    def fields(self, head: Any, kind: Kind) -> dict[str, Any]:
        return {}


class Tags(Format):
    """A tag for each word. The library tags pieces; which of a word's counts, it leaves to its users: ours the first.

    A config.json names the tags and not their scheme, which follows from the names (data.tags.scheme_of_names).
    """

    name = "tagging"
    tasks = ("ForTokenClassification",)

    def reads(self, theirs: Theirs) -> bool:
        return theirs.task in self.tasks

    def config(self, theirs: Theirs) -> TaggingConfig:
        tags = [without_bilou(tag) for tag in theirs.names(len(theirs.given["classifier.weight"]))]
        dropout = _pooled_dropout(theirs) if theirs.kind == "bert" else theirs.encoder.hidden_dropout
        width = theirs.encoder.embedding_dim
        return TaggingConfig(width, tags, scheme=scheme_of_names(tags), input_dropout=dropout)

    def modules(self, kind: Kind) -> dict[str, str]:
        return {"output": "classifier"}

    def writes(self, head: Head, kind: Kind, encoder: BERTConfig) -> bool:
        return isinstance(head, TaggingHead) and not head.config.crf and head.config.subword_pooling == "first"

    def fields(self, head: Any, kind: Kind) -> dict[str, Any]:
        dropout = {"classifier_dropout": head.config.input_dropout} if kind == "bert" else {}
        return _named(head.config.tags) | dropout


class Classes(Format):
    """One label, several, or a number, for a text or a pair."""

    name = "classification"
    tasks = ("ForSequenceClassification",)

    def reads(self, theirs: Theirs) -> bool:
        return "classifier.weight" in theirs.given and theirs.task not in (*Tags.tasks, *Options.tasks)

    def config(self, theirs: Theirs) -> ClassificationConfig:
        outputs = len(theirs.given["classifier.weight"])
        problem = theirs.config.get("problem_type")
        problem = problem or ("regression" if outputs == 1 else "single_label_classification")
        if problem not in PROBLEMS or (problem == "regression" and outputs > 1):
            raise UserError(f"problem_type '{problem}' with {outputs} outputs is not known.", where="config.json")
        return ClassificationConfig(theirs.encoder.embedding_dim, outputs, kind=PROBLEMS[problem], **_layers(theirs))

    def modules(self, kind: Kind) -> dict[str, str]:
        if kind == "distilbert":
            return {"layers.1": "pre_classifier", "layers.4": "classifier"}
        return {"layers.1": "classifier"}

    def writes(self, head: Head, kind: Kind, encoder: BERTConfig) -> bool:
        if not isinstance(head, ClassificationHead) or head.config.both_orders:
            return False
        return _has_layers(head.config, kind, encoder)

    def fields(self, head: Any, kind: Kind) -> dict[str, Any]:
        config = head.config
        problem = next(theirs for theirs, ours in PROBLEMS.items() if ours == config.kind)
        labels = [f"LABEL_{i}" for i in range(config.outputs)]
        return {"problem_type": problem, **_named(labels), **_dropouts(config, kind)}


class Options(Format):
    """One of several options, each scored by itself."""

    name = "choice"
    tasks = ("ForMultipleChoice",)
    idle: Mapping[str, int] = {"classifier.bias": 1}

    def reads(self, theirs: Theirs) -> bool:
        return theirs.task in self.tasks

    def config(self, theirs: Theirs) -> ChoiceConfig:
        return ChoiceConfig(theirs.encoder.embedding_dim, **_layers(theirs))

    def modules(self, kind: Kind) -> dict[str, str]:
        return {f"score.{ours}": theirs for ours, theirs in Classes().modules(kind).items()}

    def writes(self, head: Head, kind: Kind, encoder: BERTConfig) -> bool:
        return isinstance(head, ChoiceHead) and _has_layers(head.config, kind, encoder)

    def fields(self, head: Any, kind: Kind) -> dict[str, Any]:
        return _dropouts(head.config, kind)


FORMATS: tuple[Format, ...] = (Spans(), MaskedTokens(), Tags(), Options(), Classes(), Features())


def architectures(kind: Kind) -> set[str]:
    """The classes of the library that are known, of either model_type."""
    known = {f"{LIBRARY[kind]}{task}" for format_ in FORMATS for task in format_.tasks}
    return known - {"DistilBertForPreTraining"}


def format_of(theirs: Theirs) -> Format:
    """How the head in these weights is read."""
    return next(format_ for format_ in FORMATS if format_.reads(theirs))


def format_for(head: Head, kind: Kind, encoder: BERTConfig) -> Format:
    """How the head is written. Raises UserError for one that the library does not have."""
    for format_ in FORMATS:
        if format_.writes(head, kind, encoder):
            return format_
    if isinstance(head, TaggingHead):
        remedy = "The library's tagger has no CRF, and its users let the first piece speak for a word."
    else:
        shape = f"pooling '{POOLED}', hidden_dim 0"
        if kind == "distilbert":
            shape = "pooling 'first', hidden_dim the model's width"
        remedy = f"The library's classifier is {shape}, and batch_norm False; its language model shares layer_norm_eps."
    raise UserError(f"the transformers library has no {LIBRARY[kind]} with such a head.", remedy=remedy)


def _named(labels: list[str]) -> dict[str, Any]:
    return {
        "id2label": {str(i): name for i, name in enumerate(labels)},
        "label2id": {name: i for i, name in enumerate(labels)},
    }


def _pooled_dropout(theirs: Theirs) -> float:
    dropout = theirs.config.get("classifier_dropout")
    return float(theirs.encoder.hidden_dropout if dropout is None else dropout)


def _layers(theirs: Theirs) -> dict[str, Any]:
    """Settings of ClassificationConfig and ChoiceConfig that are the library's layers above the encoder."""
    shape: dict[str, Any] = {"direction": "both", "batch_norm": False}
    if theirs.kind == "distilbert":
        width, dropout = theirs.encoder.embedding_dim, theirs.config.get("seq_classif_dropout", 0.2)
        return shape | {"pooling": "first", "hidden_dim": width, "input_dropout": 0.0, "hidden_dropout": dropout}
    dropout = _pooled_dropout(theirs)
    return shape | {"pooling": POOLED, "hidden_dim": 0, "input_dropout": dropout, "hidden_dropout": 0.0}


def _has_layers(config: ClassificationConfig | ChoiceConfig, kind: Kind, encoder: BERTConfig) -> bool:
    pooling, width = (POOLED, 0) if kind == "bert" else ("first", encoder.embedding_dim)
    form = (config.pooling, config.hidden_dim, config.batch_norm, config.words_dim)
    return form == (pooling, width, False, 0)


def _dropouts(config: ClassificationConfig | ChoiceConfig, kind: Kind) -> dict[str, Any]:
    if kind == "bert":
        return {"classifier_dropout": config.input_dropout}
    return {"seq_classif_dropout": config.hidden_dropout}
