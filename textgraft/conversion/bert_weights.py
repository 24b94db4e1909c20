"""Weights of BERT and its kin (DistilBERT, RoBERTa, MPNet) by the `transformers` library's names, both ways.

The library keeps queries, keys and values apart; here they are one matrix, in that order. The head is determined by the
weights (conversion.bert_heads), and by config.json only where the weights of several heads have the same names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from textgraft.conversion.bert_heads import (
    LIBRARY,
    ON_TOKEN,
    Format,
    Kind,
    LibraryModel,
    architectures,
    format_for,
    format_of,
)
from textgraft.core.errors import UserError
from textgraft.encoders.bert import BERTConfig
from textgraft.heads.features import FeaturesHead
from textgraft.models.model import Model, build_unfilled

Names = dict[str, tuple[str, ...]]
"""For each textgraft module or parameter, the library's, which are concatenated to its rows."""

HARMLESS = {"embeddings.position_ids", "embeddings.token_type_ids"}
"""Counters 0, 1, 2, ... and zeros that older versions saved among the weights."""
POSITIONS, SEGMENTS = "embeddings.position_embeddings.weight", "embeddings.token_type_embeddings.weight"
TOKENS = "embeddings.word_embeddings.weight"

BERT_BLOCK: Names = {
    "attention.inputs": tuple(f"attention.self.{part}" for part in ("query", "key", "value")),
    "attention.output": ("attention.output.dense",),
    "attention_norm": ("attention.output.LayerNorm",),
    "feed_forward": ("intermediate.dense",),
    "output": ("output.dense",),
    "output_norm": ("output.LayerNorm",),
}
PLAIN = {
    "hidden_act": "gelu",
    "activation": "gelu",
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
}
"""Settings with which the library computes what is computed here; absent ones have these values."""


@dataclass(frozen=True)
class Layout:
    """The library's names for one kind of model.

    Attributes:
        kind: Key of bert_heads.LIBRARY.
        encoder: Name in model.ENCODERS.
        prefix: Prefix of the encoder's weights in models with a head.
        blocks: Module that holds the blocks.
        block: The library's modules for the modules of a block.
        decoder: Output table of the masked language model.
        bias: Its bias.
        others: The library's modules for further modules of the encoder.
    """

    kind: Kind
    encoder: str
    prefix: str
    blocks: str = "encoder.layer"
    block: Names = field(default_factory=lambda: BERT_BLOCK)
    decoder: str = "lm_head.decoder"
    bias: str = "lm_head.bias"
    others: Names = field(default_factory=dict)


def validate_config(config: Mapping[str, Any], kind: Kind) -> None:
    """Raise UserError for a class without a counterpart here, and for a setting that changes the computation."""
    for architecture in config.get("architectures") or []:
        if architecture not in architectures(kind):
            supported = ", ".join(sorted(architectures(kind)))
            raise UserError(f"architecture {architecture} is none of: {supported}.", where="config.json")
    for setting, value in PLAIN.items():
        if config.get(setting, value) != value:
            raise UserError(f"{setting} is {config[setting]!r}, and only {value!r} is known.", where="config.json")


def sizes(config: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of BERTConfig by BERT's settings. Raises KeyError for a missing one."""
    return {
        "vocab_size": config["vocab_size"],
        "embedding_dim": config["hidden_size"],
        "num_layers": config["num_hidden_layers"],
        "num_heads": config["num_attention_heads"],
        "feed_forward_dim": config["intermediate_size"],
        "max_length": config["max_position_embeddings"],
        "hidden_dropout": config["hidden_dropout_prob"],
        "attention_dropout": config["attention_probs_dropout_prob"],
        "layer_norm_eps": config["layer_norm_eps"],
    }


def settings(config: BERTConfig) -> dict[str, Any]:
    """The inverse of `sizes`."""
    return {
        "vocab_size": config.vocab_size,
        "hidden_size": config.embedding_dim,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.feed_forward_dim,
        "max_position_embeddings": config.max_length,
        "hidden_dropout_prob": config.hidden_dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "layer_norm_eps": config.layer_norm_eps,
        "hidden_act": "gelu",
    }


def plain_names(weights: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Weights without the prefix of models with a head and without counters; layer norms by their current names."""

    def plain(name: str) -> str:
        name = name.removeprefix(prefix)
        for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
            name = name.removesuffix(old) + new if name.endswith(old) else name
        return name

    return {plain(name): value for name, value in weights.items() if plain(name) not in HARMLESS}


def counted_from(weights: dict[str, Tensor], first: int, config: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out the rows of the position table before `first`, the position of each text's first token.

    Args:
        weights: Weights by plain names, whose position table is replaced.
        first: Number of rows to leave out.
        config: The settings.

    Returns:
        The settings with as many positions as are left.
    """
    if POSITIONS in weights:
        weights[POSITIONS] = weights[POSITIONS][first:]
    if "max_position_embeddings" not in config:
        return dict(config)
    return {**config, "max_position_embeddings": config["max_position_embeddings"] - first}


def counted_to(weights: dict[str, Tensor], first: int, prefix: str) -> None:
    """The inverse of `counted_from`, with rows of zeros."""
    name = POSITIONS if POSITIONS in weights else prefix + POSITIONS
    weights[name] = torch.cat([weights[name].new_zeros(first, weights[name].shape[1]), weights[name]])


def read(layout: Layout, config: Mapping[str, Any], encoder: BERTConfig, weights: dict[str, Tensor]) -> Model:
    """The model with these weights by plain names, in float32.

    Raises:
        UserError: A name is missing or unexpected, or a shape is wrong.
    """
    library = LibraryModel(config, layout.kind, encoder, weights)
    head_format = format_of(library)
    head = head_format.config(library)
    description = {
        "encoder": {"name": layout.encoder, **asdict(encoder)},
        "head": {"name": head_format.name, **asdict(head)},
    }
    model = build_unfilled(description)
    names = _names(model, layout, head_format)
    for idle in head_format.idle:
        weights.pop(idle, None)
    _take_copies(weights, layout, tied=getattr(head, "tied", False))
    expected = {name for parts in names.values() for name in parts}
    errors = [f"missing: {name}" for name in expected - weights.keys()]
    errors += [f"left over: {name}" for name in weights.keys() - expected]
    parameters = dict(model.named_parameters())
    for ours, parts in names.items():
        rows, *rest = parameters[ours].shape
        shape = (rows // len(parts), *rest)
        errors += [
            f"{n} is {tuple(weights[n].shape)}, not {shape}"
            for n in parts
            if n in weights and weights[n].shape != shape
        ]
    if errors:
        shown = "; ".join(sorted(errors)[:12]) + (f"; and {len(errors) - 12} more" if len(errors) > 12 else "")
        raise UserError(
            f"the weights do not fit config.json ({shown}).", remedy="Check that both are of the same model."
        )
    with torch.no_grad():
        for ours, parts in names.items():
            parameters[ours].copy_(torch.cat([weights[name] for name in parts]))
    return model


def write(layout: Layout, model: Model, config: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The library's config.json, `config` and the head's entries, and its weights; a tied table is written once.

    Raises:
        UserError: The library has no class for the head.
    """
    kind, head = layout.kind, model.head
    head_format = format_for(head, kind, model.encoder.config)
    config = config | {"architectures": [LIBRARY[kind] + head_format.task(head)], **head_format.fields(head, kind)}
    weights: dict[str, Tensor] = {}
    parameters = dict(model.named_parameters())
    prefix = "" if isinstance(head, FeaturesHead) else layout.prefix
    leaves_pooler = kind in ON_TOKEN and not head_format.keeps_pooler
    for ours, library in _names(model, layout, head_format).items():
        if leaves_pooler and ours.startswith("encoder.pooler."):
            continue  # the library's class has none
        for name, part in zip(library, parameters[ours].detach().chunk(len(library)), strict=True):
            of_encoder = ours.startswith("encoder.")
            weights[prefix + name if of_encoder else name] = part.clone()
    weights |= {name: torch.zeros(count) for name, count in head_format.idle.items()}
    return config, weights


def _take_copies(weights: dict[str, Tensor], layout: Layout, *, tied: bool) -> None:
    """Remove weights that the library saves twice. Raises UserError where the two differ."""
    duplicates = [(layout.bias, f"{layout.decoder}.bias")] if layout.bias != f"{layout.decoder}.bias" else []
    duplicates += [(TOKENS, f"{layout.decoder}.weight")] if tied else []
    for first, second in duplicates:
        copy = weights.pop(second, None)
        if copy is not None and not torch.equal(copy, weights.setdefault(first, copy)):
            raise UserError(f"'{first}' and '{second}' are one according to config.json, but differ here.")


def _names(model: Model, layout: Layout, head_format: Format) -> Names:
    """The library's names for each textgraft parameter, without the prefix of models with a head."""
    modules: Names = {"embedding_norm": ("embeddings.LayerNorm",), "pooler": ("pooler.dense",), **layout.others}
    tables = {"embedding": TOKENS, "positions": POSITIONS, "segments": SEGMENTS}
    modules |= {ours: (library.removesuffix(".weight"),) for ours, library in tables.items()}
    for index in range(model.encoder.config.num_layers):
        block = f"{layout.blocks}.{index}"
        modules |= {
            f"layers.{index}.{n}": tuple(f"{block}.{m}" for m in library) for n, library in layout.block.items()
        }
    modules = {f"encoder.{ours}": library for ours, library in modules.items()}
    modules |= {f"head.{ours}": (library,) for ours, library in head_format.modules(layout.kind).items()}
    names: Names = {}
    for parameter, _ in model.named_parameters():
        module, _, part = parameter.rpartition(".")
        names[parameter] = tuple(f"{library}.{part}" for library in modules[module])
    if head_format.name == "masked_language_model" and "head.output.bias" in names:
        names["head.output.bias"] = (layout.bias,)
    return names
