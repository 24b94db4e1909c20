"""Conversion of the `transformers` library's BERT and DistilBERT, to textgraft and back.

The library keeps queries, keys and values apart; here they are one matrix, in that order. The head is determined by the
weights (conversion.bert_heads), and by config.json only where the weights of several heads have the same names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from textgraft.conversion.bert_heads import LIBRARY, Format, Kind, LibraryModel, architectures, format_for, format_of
from textgraft.core.errors import UserError
from textgraft.encoders.bert import BERT, BERTConfig
from textgraft.heads.features import FeaturesHead
from textgraft.heads.masked_language_model import MaskedLanguageModelHead
from textgraft.models.model import Model, build_unfilled

Names = dict[str, tuple[str, ...]]
"""For each textgraft parameter, the library's weights that are concatenated to its rows."""

HARMLESS = {"embeddings.position_ids", "embeddings.token_type_ids"}
"""Counters 0, 1, 2, ... and zeros that older versions saved among the weights."""

_DISTIL_EPS = 1e-12  # not a setting in the library


def from_huggingface(config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> Model:
    """Convert config.json and weights of the library to a model in float32.

    Raises:
        UserError: The architecture or activation is not supported, a name is missing or unexpected, or a shape is
            wrong.
    """
    kind = _validated_kind(config)
    library_weights = {_plain(name, kind): value for name, value in weights.items()}
    library_weights = {name: value for name, value in library_weights.items() if name not in HARMLESS}
    encoder = _encoder_config(config, kind, library_weights)
    library = LibraryModel(config, kind, encoder, library_weights)
    head_format = format_of(library)
    head = head_format.config(library)
    description = {"encoder": {"name": "bert", **asdict(encoder)}, "head": {"name": head_format.name, **asdict(head)}}
    model = build_unfilled(description)
    names = _names(model, kind, head_format)
    for idle in head_format.idle:
        library_weights.pop(idle, None)
    _take_copies(library_weights, kind, tied=getattr(head, "tied", False))
    expected = {name for parts in names.values() for name in parts}
    errors = [f"missing: {name}" for name in expected - library_weights.keys()]
    errors += [f"left over: {name}" for name in library_weights.keys() - expected]
    parameters = dict(model.named_parameters())
    for ours, parts in names.items():
        rows, *rest = parameters[ours].shape
        shape = (rows // len(parts), *rest)
        errors += [
            f"{n} is {tuple(library_weights[n].shape)}, not {shape}"
            for n in parts
            if n in library_weights and library_weights[n].shape != shape
        ]
    if errors:
        shown = "; ".join(sorted(errors)[:12]) + (f"; and {len(errors) - 12} more" if len(errors) > 12 else "")
        raise UserError(
            f"the weights do not fit config.json ({shown}).", remedy="Check that both are of the same model."
        )
    with torch.no_grad():
        for ours, parts in names.items():
            parameters[ours].copy_(torch.cat([library_weights[name] for name in parts]))
    return model


def to_huggingface(model: Model) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Convert a model to the library's config.json and weights; a tied table is written once.

    A BERT without segments and pooler becomes a DistilBERT.

    Raises:
        UserError: The library has no class for the model.
    """
    encoder, head = model.encoder, model.head
    if not isinstance(encoder, BERT):
        raise UserError("only a BERT can be written as one.")
    kind: Kind = "bert" if encoder.config.num_segments else "distilbert"
    described = encoder.config
    if kind == "distilbert" and (described.pooler or described.layer_norm_eps != _DISTIL_EPS):
        message = f"a model without segments is a DistilBERT, with no pooler and a layer_norm_eps of {_DISTIL_EPS}."
        raise UserError(message, remedy="Make it with num_segments 2 to write it as a BERT.")
    config = _bert_fields(described) if kind == "bert" else _distilbert_fields(described)
    head_format = format_for(head, kind, described)
    config |= {"architectures": [LIBRARY[kind] + head_format.task(head)], **head_format.fields(head, kind)}
    weights: dict[str, Tensor] = {}
    parameters = dict(model.named_parameters())
    prefix = "" if isinstance(head, FeaturesHead) else f"{kind}."
    for ours, library in _names(model, kind, head_format).items():
        for name, part in zip(library, parameters[ours].detach().chunk(len(library)), strict=True):
            of_encoder = ours.startswith("encoder.")
            weights[prefix + name if of_encoder else name] = part.clone()
    weights |= {name: torch.zeros(count) for name, count in head_format.idle.items()}
    return config, weights


def _validated_kind(config: Mapping[str, Any]) -> Kind:
    """The model type, after checking that no setting changes the computation."""
    kind = next((kind for kind in LIBRARY if kind == config.get("model_type")), None)
    if kind is None:
        supported = ", ".join(LIBRARY)
        raise UserError(f"model_type '{config.get('model_type')}' is neither of: {supported}.", where="config.json")
    for architecture in config.get("architectures") or []:
        if architecture not in architectures(kind):
            supported = ", ".join(sorted(architectures(kind)))
            raise UserError(f"architecture {architecture} is none of: {supported}.", where="config.json")
    required: dict[str, Any] = {"hidden_act": "gelu", "activation": "gelu", "position_embedding_type": "absolute"}
    required |= {"is_decoder": False, "add_cross_attention": False}
    for setting, value in required.items():
        if config.get(setting, value) != value:
            raise UserError(f"{setting} is {config[setting]!r}, and only {value!r} is known.", where="config.json")
    return kind


def _plain(name: str, kind: str) -> str:
    """A weight's name without the prefix of models with a head; layer norms by their current names."""
    name = name.removeprefix(f"{kind}.")
    for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
        name = name.removesuffix(old) + new if name.endswith(old) else name
    return name


def _encoder_config(config: Mapping[str, Any], kind: Kind, weights: Mapping[str, Tensor]) -> BERTConfig:
    try:
        if kind == "distilbert":
            return BERTConfig(
                vocab_size=config["vocab_size"],
                embedding_dim=config["dim"],
                num_layers=config["n_layers"],
                num_heads=config["n_heads"],
                feed_forward_dim=config["hidden_dim"],
                max_length=config["max_position_embeddings"],
                num_segments=0,
                pooler=False,
                hidden_dropout=config["dropout"],
                attention_dropout=config["attention_dropout"],
                layer_norm_eps=_DISTIL_EPS,
            )
        return BERTConfig(
            vocab_size=config["vocab_size"],
            embedding_dim=config["hidden_size"],
            num_layers=config["num_hidden_layers"],
            num_heads=config["num_attention_heads"],
            feed_forward_dim=config["intermediate_size"],
            max_length=config["max_position_embeddings"],
            num_segments=config["type_vocab_size"],
            pooler="pooler.dense.weight" in weights,
            hidden_dropout=config["hidden_dropout_prob"],
            attention_dropout=config["attention_probs_dropout_prob"],
            layer_norm_eps=config["layer_norm_eps"],
        )
    except KeyError as error:
        raise UserError(f"the setting {error} is missing.", where="config.json") from error


def _take_copies(weights: dict[str, Tensor], kind: str, *, tied: bool) -> None:
    """Remove weights that the library saves twice. Raises UserError where the two differ."""
    decoder = "vocab_projector" if kind == "distilbert" else "cls.predictions.decoder"
    duplicates = [("cls.predictions.bias", "cls.predictions.decoder.bias")]
    duplicates += [("embeddings.word_embeddings.weight", f"{decoder}.weight")] if tied else []
    for first, second in duplicates:
        copy = weights.pop(second, None)
        if copy is not None and not torch.equal(copy, weights.setdefault(first, copy)):
            raise UserError(f"'{first}' and '{second}' are one according to config.json, but differ here.")


def _names(model: Model, kind: Kind, head_format: Format) -> Names:
    """The library's names for each textgraft parameter, without the prefix of models with a head."""
    modules: Names = {"embedding_norm": ("embeddings.LayerNorm",), "pooler": ("pooler.dense",)}
    tables = {"embedding": "word_embeddings", "positions": "position_embeddings", "segments": "token_type_embeddings"}
    modules |= {ours: (f"embeddings.{library}",) for ours, library in tables.items()}
    for index in range(model.encoder.config.num_layers):
        modules |= {f"layers.{index}.{n}": library for n, library in _layer_names(index, kind).items()}
    modules = {f"encoder.{ours}": library for ours, library in modules.items()}
    modules |= {f"head.{ours}": (library,) for ours, library in head_format.modules(kind).items()}
    names: Names = {}
    for parameter, _ in model.named_parameters():
        module, _, part = parameter.rpartition(".")
        names[parameter] = tuple(f"{library}.{part}" for library in modules[module])
    if kind == "bert" and isinstance(model.head, MaskedLanguageModelHead) and "head.output.bias" in names:
        names["head.output.bias"] = ("cls.predictions.bias",)
    return names


def _layer_names(index: int, kind: str) -> Names:
    """The library's modules for the modules of one block."""
    if kind == "distilbert":
        layer = f"transformer.layer.{index}"
        return {
            "attention.inputs": tuple(f"{layer}.attention.{part}_lin" for part in "qkv"),
            "attention.output": (f"{layer}.attention.out_lin",),
            "attention_norm": (f"{layer}.sa_layer_norm",),
            "feed_forward": (f"{layer}.ffn.lin1",),
            "output": (f"{layer}.ffn.lin2",),
            "output_norm": (f"{layer}.output_layer_norm",),
        }
    layer = f"encoder.layer.{index}"
    return {
        "attention.inputs": tuple(f"{layer}.attention.self.{part}" for part in ("query", "key", "value")),
        "attention.output": (f"{layer}.attention.output.dense",),
        "attention_norm": (f"{layer}.attention.output.LayerNorm",),
        "feed_forward": (f"{layer}.intermediate.dense",),
        "output": (f"{layer}.output.dense",),
        "output_norm": (f"{layer}.output.LayerNorm",),
    }


def _bert_fields(config: BERTConfig) -> dict[str, Any]:
    return {
        "model_type": "bert",
        "vocab_size": config.vocab_size,
        "hidden_size": config.embedding_dim,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.feed_forward_dim,
        "max_position_embeddings": config.max_length,
        "type_vocab_size": config.num_segments,
        "hidden_dropout_prob": config.hidden_dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "layer_norm_eps": config.layer_norm_eps,
        "hidden_act": "gelu",
    }


def _distilbert_fields(config: BERTConfig) -> dict[str, Any]:
    return {
        "model_type": "distilbert",
        "vocab_size": config.vocab_size,
        "dim": config.embedding_dim,
        "n_layers": config.num_layers,
        "n_heads": config.num_heads,
        "hidden_dim": config.feed_forward_dim,
        "max_position_embeddings": config.max_length,
        "dropout": config.hidden_dropout,
        "attention_dropout": config.attention_dropout,
        "activation": "gelu",
    }
