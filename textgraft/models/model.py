"""Models of an encoder and a head, built from plain configs by the names in two dicts."""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from textgraft.core.errors import UserError, did_you_mean
from textgraft.data.batch import Batch
from textgraft.encoders.base import Encoded, Encoder, LayerGroup, State
from textgraft.heads.auxiliary_language_model import AuxiliaryLanguageModel
from textgraft.heads.base import Head, Loss
from textgraft.heads.contrastive import contrastive_loss
from textgraft.nn.cpu.denormals import start_workers
from textgraft.nn.layer_aggregation import LAST, LayerAggregation, new_layer_aggregation
from textgraft.nn.uninitialized import Uninitialized

CONTRASTED_POSITIONS = 512
"""Positions, padding included, that a processor encodes at once for a contrastive loss."""

# name: (module, class, class of its config); imported on first use
ENCODERS = {
    "awd_lstm": ("textgraft.encoders.awd_lstm", "AWDLSTM", "AWDLSTMConfig"),
    "elmo": ("textgraft.encoders.elmo", "ELMo", "ELMoConfig"),
    "gpt": ("textgraft.encoders.gpt", "GPT", "GPTConfig"),
    "bert": ("textgraft.encoders.bert", "BERT", "BERTConfig"),
    "roberta": ("textgraft.encoders.roberta", "RoBERTa", "RoBERTaConfig"),
    "mpnet": ("textgraft.encoders.mpnet", "MPNet", "MPNetConfig"),
    "cove": ("textgraft.encoders.cove", "CoVe", "CoVeConfig"),
    "transformer_xl": ("textgraft.encoders.transformer_xl", "TransformerXL", "TransformerXLConfig"),
    "flair": ("textgraft.encoders.flair", "Flair", "FlairConfig"),
    "modernbert": ("textgraft.encoders.modernbert", "ModernBERT", "ModernBERTConfig"),
    "llama": ("textgraft.encoders.llama", "Llama", "LlamaConfig"),
    "word_lstm": ("textgraft.encoders.word_lstm", "WordLSTM", "WordLSTMConfig"),
    "transformers": ("textgraft.encoders.transformers_bridge", "TransformersBridge", "TransformersBridgeConfig"),
}
HEADS = {
    "bidirectional_language_model": (
        "textgraft.heads.bidirectional_language_model",
        "BidirectionalLanguageModelHead",
        "BidirectionalLanguageModelConfig",
    ),
    "choice": ("textgraft.heads.multiple_choice", "ChoiceHead", "ChoiceConfig"),
    "classification": ("textgraft.heads.classification", "ClassificationHead", "ClassificationConfig"),
    "features": ("textgraft.heads.features", "FeaturesHead", "FeaturesConfig"),
    "span": ("textgraft.heads.span", "SpanHead", "SpanConfig"),
    "language_model": ("textgraft.heads.language_model", "LanguageModelHead", "LanguageModelConfig"),
    "masked_language_model": (
        "textgraft.heads.masked_language_model",
        "MaskedLanguageModelHead",
        "MaskedLanguageModelConfig",
    ),
    "replaced_tokens": ("textgraft.heads.replaced_tokens", "ReplacedTokensHead", "ReplacedTokensConfig"),
    "tagging": ("textgraft.heads.tagging", "TaggingHead", "TaggingConfig"),
    "translation": ("textgraft.heads.translation", "TranslationHead", "TranslationConfig"),
}


class Model(nn.Module):
    """An encoder with a head: the loss of a batch, and layer groups from bottom to top.

    Where the head's config names a `layer_aggregation` (nn.layer_aggregation) other than the last layer, the head's
    input is an `Encoded` with its output as `top`; its parameters are trained with the head.

    Args:
        encoder: The encoder.
        head: The head.
        auxiliary: A language model trained beside the head (GPT's L3 = L2 + λ L1), during training only: it is not part
            of `describe` and `build`.

    Attributes:
        contrastive_temperature: Not 0 while the encoder is trained with a contrastive loss in place of the head
            (heads.contrastive).

    Raises:
        UserError: The encoder's layers do not allow the layer aggregation, or its width is not the head's `input_dim`.
    """

    def __init__(self, encoder: Encoder, head: Head, auxiliary: AuxiliaryLanguageModel | None = None) -> None:
        super().__init__()
        self.encoder, self.head, self.auxiliary = encoder, head, auxiliary
        self.contrastive_temperature = 0.0
        self.layer_aggregation: LayerAggregation | None = None
        name = getattr(head.config, "layer_aggregation", LAST)
        if name != LAST:
            self.layer_aggregation = new_layer_aggregation(name, encoder.widths)
            if self.layer_aggregation.output_dim != head.config.input_dim:
                width, expected = self.layer_aggregation.output_dim, head.config.input_dim
                message = f"the head takes vectors of width {expected}, and the layer aggregation '{name}' has {width}."
                raise UserError(message, where="input_dim", remedy=f"Give the head input_dim {width}.")

    def forward(self, batch: Batch) -> Tensor:
        """The head's raw scores."""
        return self.forward_with_state(batch)[0]

    def forward_with_state(self, batch: Batch, state: State | None = None) -> tuple[Tensor, State | None]:
        """The head's raw scores of texts that continue from a state, and the next state."""
        encoded = self._encoded(batch.to(self.device), state)
        scores: Tensor = self.head(self._aggregated(encoded))
        return scores, encoded.state

    def loss(self, batch: Batch, state: State | None = None) -> Loss:
        """The loss of a batch, which may be on another device than the model."""
        batch = batch.to(self.device)
        if batch.features is not None:
            head: Any = self.head
            head_loss: Loss = head.loss_of(batch.features, batch)
            return head_loss
        if self.contrastive_temperature:
            return self._contrastive_loss(batch)
        encoded = self._encoded(batch, state)
        loss = self.head.loss(self._aggregated(encoded), batch)
        penalty = self.layer_aggregation.penalty() if self.layer_aggregation is not None and self.training else None
        if penalty is not None:
            loss = replace(loss, total=loss.total + loss.count * penalty)
        return loss if self.auxiliary is None else self.auxiliary.added(loss, encoded, batch)

    def _contrastive_loss(self, batch: Batch) -> Loss:
        """The contrastive loss of a batch."""
        parts = self._by_length(batch)
        vectors = torch.cat([self.vectors(part) for part in parts])
        targets = torch.cat([part.targets for part in parts if part.targets is not None])
        return contrastive_loss(vectors, targets.to(vectors.device), self.contrastive_temperature)

    def contrasted_positions(self, batch: Batch) -> int:
        """Positions that the contrastive loss of a batch encodes, with the padding that is left."""
        return sum(part.ids.numel() for part in self._by_length(batch))

    def _by_length(self, batch: Batch) -> list[Batch]:
        """A processor encodes rows with others of their length, for less padding."""
        return batch.parts(CONTRASTED_POSITIONS) if self.device.type == "cpu" else [batch]

    def vectors(self, batch: Batch) -> Tensor:
        """The input of a classifier's head for each of E examples, (E, D)."""
        head: Any = self.head
        vectors: Tensor = head.vectors(self._aggregated(self._encoded(batch.to(self.device), None)))
        return vectors

    def _encoded(self, batch: Batch, state: State | None) -> Encoded:
        encoded: Encoded = self.encoder(
            batch, state, keep="all" if self.layer_aggregation is not None else self.head.keep
        )
        return encoded if batch.groups is None else replace(encoded, groups=batch.groups)

    def _aggregated(self, encoded: Encoded) -> Encoded:
        """The head's input: `encoded` with the layer aggregation's output as `top`."""
        return (
            encoded if self.layer_aggregation is None else replace(encoded, top=self.layer_aggregation(encoded.layers))
        )

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.parameters()).device

    def layer_groups(self) -> list[LayerGroup]:
        """The encoder's groups and, last, the head's, which cover every parameter exactly once.

        A table that encoder and head share (weight tying) is in the head's group, and so are the parameters of a layer
        aggregation. An auxiliary language model is in the lowest group: the table that it shares stays there, and its
        own parameters (a bias, or an untied table) would otherwise be trained on the outputs of a frozen encoder.
        """
        aggregation = () if self.layer_aggregation is None else self.layer_aggregation.parameters()
        head = (*aggregation, *self.head.parameters())
        shared = {id(p) for p in head}
        below = [
            LayerGroup(g.name, tuple(p for p in g.parameters if id(p) not in shared))
            for g in self.encoder.layer_groups()
        ]
        if self.auxiliary is not None:
            below[0] = LayerGroup(below[0].name, (*below[0].parameters, *self.auxiliary.own(self.encoder)))
        return [g for g in below if g.parameters] + [LayerGroup("head", head)]

    def values(self) -> dict[str, Tensor]:
        """Every parameter and persistent buffer by name, a shared one once, as saved and loaded."""
        named = dict(self.named_parameters()) | dict(self.named_buffers())
        persistent = self.state_dict().keys()
        return {name: value for name, value in named.items() if name in persistent}

    def multiplied(self) -> int:
        """Number of weights that each token is multiplied with: all matrices but tables that only the input uses.

        A training step takes about six operations per such weight and token (Kaplan et al. 2020, §2.1).
        """
        tables = [m for m in self.encoder.modules() if isinstance(m, nn.Embedding)]
        heads = [self.head] if self.auxiliary is None else [self.head, self.auxiliary]
        looked_up = {id(m.weight) for m in tables} - {id(p) for head in heads for p in head.parameters()}
        return sum(p.numel() for p in self.parameters() if p.ndim > 1 and id(p) not in looked_up)

    @property
    def family(self) -> str:
        """The name of the encoder's architecture."""
        return _name(self.encoder, ENCODERS)

    def describe(self) -> dict[str, Any]:
        """The configs as JSON values, from which `build` builds the same model with random weights."""
        return {"encoder": _described(self.encoder, ENCODERS), "head": _described(self.head, HEADS)}


def _described(part: Encoder | Head, registry: dict[str, tuple[str, str, str]]) -> dict[str, Any]:
    return {"name": _name(part, registry), **asdict(part.config)}


def _name(part: Encoder | Head, registry: dict[str, tuple[str, str, str]]) -> str:
    return next(name for name, (_, cls, _) in registry.items() if cls == type(part).__name__)


def _class_and_config(
    kind: str, description: dict[str, Any], registry: dict[str, tuple[str, str, str]]
) -> tuple[type, Any]:
    """The class and the config object for one part of a description."""
    settings = dict(description)
    name = settings.pop("name", None)
    if name not in registry:
        raise UserError(f"unknown {kind} '{name}'.", remedy=did_you_mean(str(name), registry))
    module, cls, config_cls = registry[name]
    loaded = import_module(module)
    try:
        config = getattr(loaded, config_cls)(**settings)
    except TypeError as error:
        raise UserError(f"the {kind} '{name}' has a missing or an unknown setting ({error}).") from error
    _validate_types(config)
    return getattr(loaded, cls), config


def _validate_types(config: Any) -> None:
    """Raise TypeError for a number, a name or a switch of another type, and for a number that is no size of a model."""
    for field in fields(config):
        value, kind = getattr(config, field.name), TYPES.get(str(field.type))
        if kind is not None and (not isinstance(value, kind) or isinstance(value, bool) != (kind is bool)):
            raise TypeError(f"{field.name} is {str(value)[:40]!r}, and not of type {field.type}")
        if kind in (int, int | float) and not abs(value) < LARGEST:
            raise TypeError(f"{field.name} is out of range")
        if field.name == "num_layers" and isinstance(value, int) and value > MOST_LAYERS:
            raise TypeError(f"{field.name} is {value:,}, and {MOST_LAYERS:,} are the most")


NAMES = ("str", "TargetKind", "Direction", "Activation")
TYPES: dict[str, Any] = {"int": int, "float": int | float, "bool": bool, **dict.fromkeys(NAMES, str)}
"""Types of settings by their annotation; others are not validated here."""
LARGEST, MOST_LAYERS = 1e300, 10_000


def build(description: dict[str, Any]) -> Model:
    """Build the model of a description, with random weights.

    Args:
        description: As `Model.describe` returns it.

    Raises:
        UserError: An unknown name, or a setting that the family does not have.
    """
    encoder_cls, config = _class_and_config("encoder", description["encoder"], ENCODERS)
    start_workers()  # before the first weights are drawn or copied, which would start them otherwise
    encoder = encoder_cls(config)
    return Model(encoder, new_head(description["head"], encoder))


def new_head(description: dict[str, Any], encoder: Encoder) -> Head:
    """Build the head of a description, with its output tied to the encoder's table if `tied` is set.

    Raises:
        UserError: As `build`.
    """
    cls, config = _class_and_config("head", description, HEADS)
    head: Head = cls(config, encoder.tied()) if getattr(config, "tied", False) else cls(config)
    return head


def has_setting(encoder: str, name: str) -> bool:
    """True if the config of an encoder family has the field `name`, or the family is unknown."""
    if encoder not in ENCODERS:
        return True
    module, _, config_cls = ENCODERS[encoder]
    return name in {field.name for field in fields(getattr(import_module(module), config_cls))}


def build_unfilled(description: dict[str, Any]) -> Model:
    """`build` with uninitialized weights, to be filled; torch's random state is not changed."""
    with torch.random.fork_rng(devices=[]), Uninitialized():
        return build(description)


def build_fresh(description: dict[str, Any], seed: int) -> Model:
    """`build` with weights drawn from `seed`; torch's random state is not changed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build(description)


def graft(encoder: Encoder, description: dict[str, Any], seed: int) -> Model:
    """`build_fresh` with the weights of `encoder`.

    Weights that the description leaves out, such as those of a pooler, are not copied.
    """
    model = build_fresh(description, seed)
    values = encoder.state_dict()
    model.encoder.load_state_dict({name: values[name] for name in model.encoder.state_dict()})
    return model


def graft_on_positions(source: Model, head: dict[str, Any], *, dropout: float, seed: int) -> Model:
    """`graft` for a head with outputs at every position, which does not use a pooler: the encoder is built without it.

    Args:
        source: The pretrained model.
        head: Description of the head, with all of its dropout rates.
        dropout: Factor of all dropout rates.
        seed: Of the new weights.
    """
    description = {**source.describe(), "head": head}
    if "pooler" in description["encoder"]:
        description["encoder"]["pooler"] = False
    return graft(source.encoder, with_dropout(description, dropout), seed)


def with_dropout(description: dict[str, Any], multiplier: float) -> dict[str, Any]:
    """A description with every dropout multiplied (fastai's `drop_mult`); the weights do not change."""

    def scaled(part: dict[str, Any]) -> dict[str, Any]:
        rates = {k: min(0.9, v * multiplier) for k, v in part.items() if k.endswith("_dropout")}
        if "dropouts" in part:  # of the bridge to transformers, by the checkpoint's names
            rates["dropouts"] = {k: min(0.9, v * multiplier) for k, v in part["dropouts"].items()}
        return part | rates

    return {"encoder": scaled(description["encoder"]), "head": scaled(description["head"])}
