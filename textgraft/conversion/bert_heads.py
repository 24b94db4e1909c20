"""Heads of the `transformers` library's BERT and its kin, and their settings in config.json."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from textgraft.conversion.weights import no_such_head
from textgraft.core.errors import UserError
from textgraft.data.examples import TargetKind
from textgraft.data.tags import scheme_of_names, without_bilou
from textgraft.encoders.bert import BERTConfig
from textgraft.heads.base import Head
from textgraft.heads.classification import POOLED, Activation, ClassificationConfig, ClassificationHead
from textgraft.heads.features import FeaturesConfig, FeaturesHead
from textgraft.heads.masked_language_model import MaskedLanguageModelConfig, MaskedLanguageModelHead
from textgraft.heads.multiple_choice import ChoiceConfig, ChoiceHead
from textgraft.heads.span import SpanConfig, SpanHead
from textgraft.heads.tagging import TaggingConfig, TaggingHead

Kind = Literal["bert", "distilbert", "roberta", "mpnet"]
LIBRARY: dict[Kind, str] = {"bert": "Bert", "distilbert": "DistilBert", "roberta": "Roberta", "mpnet": "MPNet"}
"""Prefix of the library's class names, by model_type."""
PROBLEMS: dict[str, TargetKind] = {
    "single_label_classification": "single",
    "multi_label_classification": "multi",
    "regression": "numeric",
}


@dataclass(frozen=True)
class LibraryModel:
    """A folder's config.json and weights by plain name, and the encoder's configuration."""

    config: Mapping[str, Any]
    kind: Kind
    encoder: BERTConfig
    weights: Mapping[str, Tensor]

    @property
    def task(self) -> str:
        """Suffix of the class that wrote the folder, as in ForTokenClassification; empty where it is not given."""
        architectures = self.config.get("architectures") or [""]
        return str(architectures[0]).removeprefix(LIBRARY[self.kind])

    def names(self, count: int) -> list[str]:
        """Names of the outputs; LABEL_0 and so on where config.json has none."""
        id_to_label = self.config.get("id2label") or {}
        return [str(id_to_label.get(str(i), id_to_label.get(i, f"LABEL_{i}"))) for i in range(count)]


class Format(ABC):
    """A head of the library. `name` is that in model.HEADS, `tasks` are suffixes of the library's classes.

    `keeps_pooler` is true if the library's class has BERT's pooler also in the families of ON_TOKEN.

    `idle` are biases that move all scores equally, to which a softmax is invariant: textgraft has none, and zeros are
    written.
    """

    name: str
    tasks: tuple[str, ...]
    keeps_pooler = False
    idle: Mapping[str, int] = {}

    @abstractmethod
    def matches(self, library: LibraryModel) -> bool:
        """True if these weights have such a head."""

    @abstractmethod
    def config(self, library: LibraryModel) -> Any:
        """Configuration of the textgraft head."""

    @abstractmethod
    def modules(self, kind: Kind) -> dict[str, str]:
        """The library's module for each textgraft module."""

    @abstractmethod
    def can_write(self, head: Head, kind: Kind, encoder: BERTConfig) -> bool:
        """True if the library has such a head, with these settings."""

    @abstractmethod
    def fields(self, head: Any, kind: Kind) -> dict[str, Any]:
        """Entries of config.json for the head, except the class."""

    def task(self, head: Any) -> str:
        """Suffix of the class name."""
        return self.tasks[0]


class Spans(Format):
    """Extractive question answering."""

    name = "span"
    tasks = ("ForQuestionAnswering",)
    idle: Mapping[str, int] = {"qa_outputs.bias": 2}

    def matches(self, library: LibraryModel) -> bool:
        return "qa_outputs.weight" in library.weights

    def config(self, library: LibraryModel) -> SpanConfig:
        dropout = library.config.get("qa_dropout", 0.0) if library.kind == "distilbert" else 0.0
        return SpanConfig(library.encoder.embedding_dim, input_dropout=dropout)

    def modules(self, kind: Kind) -> dict[str, str]:
        return {"output": "qa_outputs"}

    def can_write(self, head: Head, kind: Kind, encoder: BERTConfig) -> bool:
        return isinstance(head, SpanHead)

    def fields(self, head: Any, kind: Kind) -> dict[str, Any]:
        return {"qa_dropout": head.config.input_dropout} if kind == "distilbert" else {}


class MaskedTokens(Format):
    """Masked language model, optionally with next sentence prediction."""

    name = "masked_language_model"
    tasks = ("ForMaskedLM", "ForPreTraining")

    def matches(self, library: LibraryModel) -> bool:
        return any(name.startswith(("cls.predictions.", "vocab_projector.", "lm_head.")) for name in library.weights)

    def config(self, library: LibraryModel) -> MaskedLanguageModelConfig:
        encoder, tied = library.encoder, bool(library.config.get("tie_word_embeddings", True))
        pairs = "cls.seq_relationship.weight" in library.weights
        sizes = encoder.vocab_size, encoder.embedding_dim
        return MaskedLanguageModelConfig(*sizes, tied, pairs, encoder.layer_norm_eps)

    def modules(self, kind: Kind) -> dict[str, str]:
        if kind == "distilbert":
            return {"dense": "vocab_transform", "norm": "vocab_layer_norm", "output": "vocab_projector"}
        if kind != "bert":
            return {"dense": "lm_head.dense", "norm": "lm_head.layer_norm", "output": "lm_head.decoder"}
        transform = "cls.predictions.transform"
        return {
            "dense": f"{transform}.dense",
            "norm": f"{transform}.LayerNorm",
            "output": "cls.predictions.decoder",
            "next_sentence": "cls.seq_relationship",
        }

    def can_write(self, head: Head, kind: Kind, encoder: BERTConfig) -> bool:
        return isinstance(head, MaskedLanguageModelHead) and head.config.layer_norm_eps == encoder.layer_norm_eps

    def fields(self, head: Any, kind: Kind) -> dict[str, Any]:
        return {"tie_word_embeddings": head.config.tied}

    def task(self, head: Any) -> str:
        return self.tasks[bool(head.config.next_sentence)]


class Features(Format):
    """No head: what no other format matches."""

    name = "features"
    tasks = ("Model",)
    keeps_pooler = True

    def matches(self, library: LibraryModel) -> bool:
        return True

    def config(self, library: LibraryModel) -> FeaturesConfig:
        return FeaturesConfig(library.encoder.embedding_dim)

    def modules(self, kind: Kind) -> dict[str, str]:
        return {}

    def can_write(self, head: Head, kind: Kind, encoder: BERTConfig) -> bool:
        return isinstance(head, FeaturesHead)

    def fields(self, head: Any, kind: Kind) -> dict[str, Any]:
        return {}


class Tags(Format):
    """Tagging. The library tags subwords and leaves the choice among a word's to its users; textgraft takes the first.

    config.json has the tags without their scheme, which is derived from the names (data.tags.scheme_of_names).
    """

    name = "tagging"
    tasks = ("ForTokenClassification",)

    def matches(self, library: LibraryModel) -> bool:
        return library.task in self.tasks

    def config(self, library: LibraryModel) -> TaggingConfig:
        tags = [without_bilou(tag) for tag in library.names(len(library.weights["classifier.weight"]))]
        dropout = library.encoder.hidden_dropout if library.kind == "distilbert" else _pooled_dropout(library)
        width = library.encoder.embedding_dim
        return TaggingConfig(width, tags, scheme=scheme_of_names(tags), input_dropout=dropout)

    def modules(self, kind: Kind) -> dict[str, str]:
        return {"output": "classifier"}

    def can_write(self, head: Head, kind: Kind, encoder: BERTConfig) -> bool:
        return isinstance(head, TaggingHead) and not head.config.crf and head.config.subword_pooling == "first"

    def fields(self, head: Any, kind: Kind) -> dict[str, Any]:
        dropout = {} if kind == "distilbert" else {"classifier_dropout": head.config.input_dropout}
        return _named(head.config.tags) | dropout


class Classes(Format):
    """One label, several, or a number, for a text or a pair."""

    name = "classification"
    tasks = ("ForSequenceClassification",)

    def matches(self, library: LibraryModel) -> bool:
        output = f"{self._output(library.kind)}.weight"
        return output in library.weights and library.task not in (*Tags.tasks, *Options.tasks)

    def config(self, library: LibraryModel) -> ClassificationConfig:
        outputs = len(library.weights[f"{self._output(library.kind)}.weight"])
        problem = library.config.get("problem_type")
        problem = problem or ("regression" if outputs == 1 else "single_label_classification")
        if problem not in PROBLEMS or (problem == "regression" and outputs > 1):
            raise UserError(f"problem_type '{problem}' with {outputs} outputs is not known.", where="config.json")
        layers = _layers(library, ON_TOKEN.get(library.kind))
        return ClassificationConfig(library.encoder.embedding_dim, outputs, kind=PROBLEMS[problem], **layers)

    def _output(self, kind: Kind) -> str:
        return list(self.modules(kind).values())[-1]

    def modules(self, kind: Kind) -> dict[str, str]:
        match kind:
            case "bert":
                return {"layers.1": "classifier"}
            case "distilbert":
                return {"layers.1": "pre_classifier", "layers.4": "classifier"}
            case _:
                return {"layers.1": "classifier.dense", "layers.4": "classifier.out_proj"}

    def can_write(self, head: Head, kind: Kind, encoder: BERTConfig) -> bool:
        if not isinstance(head, ClassificationHead) or head.config.both_orders:
            return False
        return _has_layers(head.config, ON_TOKEN.get(kind), encoder)

    def fields(self, head: Any, kind: Kind) -> dict[str, Any]:
        config = head.config
        problem = next(library for library, ours in PROBLEMS.items() if ours == config.kind)
        labels = [f"LABEL_{i}" for i in range(config.outputs)]
        return {"problem_type": problem, **_named(labels), **_dropouts(config, kind)}


class Options(Format):
    """Multiple choice, each option scored separately."""

    name = "choice"
    tasks = ("ForMultipleChoice",)
    keeps_pooler = True
    idle: Mapping[str, int] = {"classifier.bias": 1}

    def matches(self, library: LibraryModel) -> bool:
        return library.task in self.tasks

    def config(self, library: LibraryModel) -> ChoiceConfig:
        return ChoiceConfig(library.encoder.embedding_dim, **_layers(library, _of_options(library.kind)))

    def modules(self, kind: Kind) -> dict[str, str]:
        modules = Classes().modules("distilbert" if kind == "distilbert" else "bert")
        return {f"score.{ours}": library for ours, library in modules.items()}

    def can_write(self, head: Head, kind: Kind, encoder: BERTConfig) -> bool:
        return isinstance(head, ChoiceHead) and _has_layers(head.config, _of_options(kind), encoder)

    def fields(self, head: Any, kind: Kind) -> dict[str, Any]:
        return _dropouts(head.config, kind)


ON_TOKEN: dict[Kind, Activation] = {"distilbert": "relu", "roberta": "tanh", "mpnet": "tanh"}
"""Kinds whose classifier has a hidden layer over the first position, with this activation; BERT's is over the pooler.
"""


def _of_options(kind: Kind) -> Activation | None:
    """As ON_TOKEN, for multiple choice: RoBERTa and MPNet use a pooler there."""
    return ON_TOKEN[kind] if kind == "distilbert" else None


FORMATS: tuple[Format, ...] = (Spans(), MaskedTokens(), Tags(), Options(), Classes(), Features())


def architectures(kind: Kind) -> set[str]:
    """Supported classes of the library for a model_type."""
    names = {f"{LIBRARY[kind]}{task}" for format_ in FORMATS for task in format_.tasks}
    return names if kind == "bert" else names - {f"{LIBRARY[kind]}ForPreTraining"}


def format_of(library: LibraryModel) -> Format:
    """The format of the head in these weights."""
    return next(format_ for format_ in FORMATS if format_.matches(library))


def format_for(head: Head, kind: Kind, encoder: BERTConfig) -> Format:
    """The format for writing a head. Raises UserError for one that the library does not have."""
    for format_ in FORMATS:
        if format_.can_write(head, kind, encoder):
            return format_
    if isinstance(head, TaggingHead):
        remedy = "The library's tagger has no CRF, and a word is represented by its first subword."
    elif isinstance(head, ClassificationHead | ChoiceHead):
        shape = f"one layer on the pooler's vector (pooling '{POOLED}', hidden_dim 0)"
        if kind in ON_TOKEN:
            width = "hidden_dim the model's width"
            shape = f"two layers on the first token (pooling 'first', {width}, activation {ON_TOKEN[kind]})"
        remedy = f"The library's classifier is {shape}, without batch normalisation."
    else:
        remedy = "The library's language model shares layer_norm_eps with its encoder."
    raise no_such_head(LIBRARY[kind], head, remedy)


def _named(labels: list[str]) -> dict[str, Any]:
    return {
        "id2label": {str(i): name for i, name in enumerate(labels)},
        "label2id": {name: i for i, name in enumerate(labels)},
    }


def _pooled_dropout(library: LibraryModel) -> float:
    dropout = library.config.get("classifier_dropout")
    return float(library.encoder.hidden_dropout if dropout is None else dropout)


def _layers(library: LibraryModel, hidden: Activation | None) -> dict[str, Any]:
    """Settings of ClassificationConfig and ChoiceConfig for the library's layers above the encoder.

    `hidden` is the activation of a hidden layer on the first position; without one there is one layer on the pooler's.
    """
    shape: dict[str, Any] = {"direction": "both", "batch_norm": False}
    dropout = _pooled_dropout(library)
    if hidden is None:
        return shape | {"pooling": POOLED, "hidden_dim": 0, "input_dropout": dropout, "hidden_dropout": 0.0}
    shape |= {"pooling": "first", "hidden_dim": library.encoder.embedding_dim, "activation": hidden}
    if library.kind == "distilbert":
        return shape | {"input_dropout": 0.0, "hidden_dropout": library.config.get("seq_classif_dropout", 0.2)}
    return shape | {"input_dropout": dropout, "hidden_dropout": dropout}


def _has_layers(config: ClassificationConfig | ChoiceConfig, hidden: Activation | None, encoder: BERTConfig) -> bool:
    if config.batch_norm or config.words_dim:
        return False
    if isinstance(config, ClassificationConfig) and (config.dense or config.normalize):
        return False
    if hidden is None:
        return (config.pooling, config.hidden_dim) == (POOLED, 0)
    return (config.pooling, config.hidden_dim, config.activation) == ("first", encoder.embedding_dim, hidden)


def _dropouts(config: ClassificationConfig | ChoiceConfig, kind: Kind) -> dict[str, Any]:
    if kind == "distilbert":
        return {"seq_classif_dropout": config.hidden_dropout}
    return {"classifier_dropout": config.input_dropout}
