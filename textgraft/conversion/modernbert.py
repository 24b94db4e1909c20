"""Conversion of the `transformers` library's ModernBERT, with its heads, to textgraft and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from textgraft.conversion.weights import (
    Parts,
    classifier_fields,
    fill,
    is_one_layer,
    label_names,
    named_labels,
    no_such_head,
    required_settings,
    taken,
    target_kind,
    task_of,
    validate_settings,
)
from textgraft.core.errors import UserError
from textgraft.data.tags import scheme_of_names, without_bilou
from textgraft.encoders.modernbert import ModernBERT, ModernBERTConfig
from textgraft.heads.features import FeaturesHead
from textgraft.heads.masked_language_model import MaskedLanguageModelHead
from textgraft.heads.span import SpanHead
from textgraft.heads.tagging import TaggingHead
from textgraft.models.model import Model, build_unfilled

PREFIX, BELOW_HEAD = "ModernBert", "model."
TASKS = ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")
POOLERS = {"cls": "first", "mean": "mean"}
"""Poolers by the library's `classifier_pooling`."""
TABLE, DECODER = "embeddings.tok_embeddings.weight", "decoder.weight"
SPAN_BIAS = "classifier.bias"
"""Moves all positions of a question-answering head equally, to which a softmax is invariant: zeros are written."""
PLAIN = {
    "hidden_activation": "gelu",
    "classifier_activation": "gelu",
    "norm_bias": False,
    "attention_bias": False,
    "mlp_bias": False,
    "classifier_bias": False,
    "decoder_bias": True,
}
"""Settings that the published models share, and that are implemented."""
FULL, LOCAL = "full_attention", "sliding_attention"
THETAS = {FULL: ("global_rope_theta", 160_000.0), LOCAL: ("local_rope_theta", 10_000.0)}
"""Names of the rotary bases in config.json of older versions of the library, and their defaults."""


def from_huggingface(config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> Model:
    """Convert config.json and weights of the library to a model in float32.

    Raises:
        UserError: A setting or architecture is not supported, or the weights do not fit.
    """
    validate_settings(config, PLAIN)
    task = task_of(config, PREFIX, TASKS)
    remaining = {name.removeprefix(BELOW_HEAD): value for name, value in weights.items()}
    if task in ("", "Model"):
        heads = {"decoder.bias": "ForMaskedLM", "classifier.weight": "ForSequenceClassification"}
        task = next((head for name, head in heads.items() if name in remaining), "Model")
    encoder = _encoder_config(config, task)
    if "classifier.weight" not in remaining and task not in ("Model", "ForMaskedLM"):
        raise UserError(f"the weights lack the head of a {PREFIX}{task} (classifier.weight).", where="config.json")
    head = _head_description(config, task, remaining, encoder)
    model = build_unfilled({"encoder": {"name": "modernbert", **asdict(encoder)}, "head": head})
    if task == "ForQuestionAnswering":
        remaining.pop(SPAN_BIAS, None)
    if head.get("tied", False):
        copy = remaining.pop(DECODER, None)
        if copy is not None and not torch.equal(copy, remaining.setdefault(TABLE, copy)):
            raise UserError(f"'{TABLE}' and '{DECODER}' are one according to config.json, but differ here.")
    fill(model, _parts(model), remaining)
    return model


def to_huggingface(model: Model) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Convert a model to the library's config.json and weights; a tied table is written once.

    Raises:
        UserError: The library has no class for the model.
    """
    encoder = model.encoder
    if not isinstance(encoder, ModernBERT):
        raise UserError("only a ModernBERT can be written as one.")
    task, fields = _task_and_fields(model)
    config = {"model_type": "modernbert", "architectures": [PREFIX + task], **_fields(encoder.config), **fields}
    weights = taken(model, _parts(model))
    if task == "ForQuestionAnswering":
        weights[SPAN_BIAS] = torch.zeros(2)
    if task != "Model":
        below = {name for name in weights if name.startswith(("embeddings.", "layers.", "final_norm."))}
        weights = {BELOW_HEAD + name if name in below else name: value for name, value in weights.items()}
    return config, weights


def _encoder_config(config: Mapping[str, Any], task: str) -> ModernBERTConfig:
    pooling = str(config.get("classifier_pooling", "cls"))
    if pooling not in POOLERS:
        raise UserError(f"classifier_pooling '{pooling}' is not known.", where="config.json")
    bases = _rotary_bases(config)
    with required_settings():
        return ModernBERTConfig(
            vocab_size=config["vocab_size"],
            embedding_dim=config["hidden_size"],
            num_layers=config["num_hidden_layers"],
            num_heads=config["num_attention_heads"],
            feed_forward_dim=config["intermediate_size"],
            max_length=config["max_position_embeddings"],
            global_every=_global_every(config),
            window=max(1, config.get("local_attention", 128) // 2),
            global_rotary_base=bases[FULL],
            local_rotary_base=bases[LOCAL],
            pooler=POOLERS[pooling] if task == "ForSequenceClassification" else False,
            transform=task in ("ForTokenClassification", "ForQuestionAnswering"),
            embedding_dropout=config.get("embedding_dropout", 0.0),
            hidden_dropout=config.get("mlp_dropout", 0.0),
            attention_dropout=config.get("attention_dropout", 0.0),
            layer_norm_eps=config.get("norm_eps", 1e-5),
        )


def _global_every(config: Mapping[str, Any]) -> int:
    """Distance between layers that attend to the whole text. Raises UserError where it is not always the same."""
    kinds = config.get("layer_types")
    if kinds is None:
        return int(config.get("global_attn_every_n_layers", 3))
    full = [i for i, kind in enumerate(kinds) if kind == FULL]
    distance = full[1] if len(full) > 1 else len(kinds)
    if kinds != [FULL if i % distance == 0 else LOCAL for i in range(config["num_hidden_layers"])]:
        message = f"layer_types is {kinds}, and only a {FULL} in every n-th layer from the first on is implemented."
        raise UserError(message, where="config.json", remedy="Take a model without this setting.")
    return distance


def _rotary_bases(config: Mapping[str, Any]) -> dict[str, float]:
    """Bases of the rotary positions by kind of layer, from `rope_parameters`, or as older versions name them."""
    bases: dict[str, float] = {}
    for kind, (older, default) in THETAS.items():
        settings = (config.get("rope_parameters") or {}).get(kind) or config.get("rope_scaling") or {}
        scaling = settings.get("rope_type", settings.get("type", "default"))
        if scaling != "default":
            message = f"rope_type is '{scaling}', and only 'default' is implemented."
            raise UserError(message, where="config.json", remedy="Take a model without this setting.")
        base = settings.get("rope_theta", config.get(older, default))
        bases[kind] = bases[FULL] if base is None else float(base)  # None: the same in all layers
    return bases


def _head_description(
    config: Mapping[str, Any], task: str, weights: Mapping[str, Tensor], encoder: ModernBERTConfig
) -> dict[str, Any]:
    width, dropout = encoder.embedding_dim, config.get("classifier_dropout", 0.0)
    if task == "Model":
        return {"name": "features", "input_dim": width}
    if task == "ForMaskedLM":
        tied = bool(config.get("tie_word_embeddings", True))
        return {
            "name": "masked_language_model",
            "vocab_size": encoder.vocab_size,
            "input_dim": width,
            "tied": tied,
            "transform_bias": False,
            "layer_norm_eps": encoder.layer_norm_eps,
        }
    if task == "ForQuestionAnswering":
        return {"name": "span", "input_dim": width, "input_dropout": dropout}
    outputs = len(weights["classifier.weight"])
    if task == "ForTokenClassification":
        tags = [without_bilou(tag) for tag in label_names(config, outputs)]
        scheme = scheme_of_names(tags)
        return {"name": "tagging", "input_dim": width, "tags": tags, "scheme": scheme, "input_dropout": dropout}
    return {
        "name": "classification",
        "input_dim": width,
        "outputs": outputs,
        "kind": target_kind(config, outputs),
        "direction": "both",
        "pooling": "pooled",
        "hidden_dim": 0,
        "batch_norm": False,
        "input_dropout": dropout,
        "hidden_dropout": 0.0,
    }


def _task_and_fields(model: Model) -> tuple[str, dict[str, Any]]:
    """The library's class for a model's head, and entries of config.json. Raises UserError where there is none."""
    config, head = model.encoder.config, model.head
    if isinstance(head, FeaturesHead) and not (config.pooler or config.transform):
        return "Model", {}
    if isinstance(head, MaskedLanguageModelHead) and not (config.pooler or config.transform):
        transform = (head.config.transform_bias, head.config.next_sentence, head.config.layer_norm_eps)
        if transform == (False, False, config.layer_norm_eps):
            return "ForMaskedLM", {"tie_word_embeddings": head.config.tied}
    if config.pooler and not config.transform and is_one_layer(head, "pooled", bias=True):
        pooling = next(name for name, ours in POOLERS.items() if ours == config.pooler)
        dropout = {"classifier_dropout": head.config.input_dropout, "classifier_pooling": pooling}
        return "ForSequenceClassification", {**classifier_fields(head), **dropout}  # type: ignore[arg-type]
    if config.transform and not config.pooler:
        dropout = {"classifier_dropout": getattr(head.config, "input_dropout", 0.0)}
        if isinstance(head, TaggingHead) and not head.config.crf and head.config.subword_pooling == "first":
            return "ForTokenClassification", {**named_labels(head.config.tags), **dropout}
        if isinstance(head, SpanHead):
            return "ForQuestionAnswering", dropout
    raise no_such_head(
        "ModernBERT",
        head,
        "Its classifiers have a transform below the linear layer (pooler, or for taggers transform), no CRF and "
        "no hidden layer; its language model has a transform without biases.",
    )


def _parts(model: Model) -> Parts:
    """The library's weights for each parameter, without the prefix of models with a head."""
    names = {
        "encoder.embedding": "embeddings.tok_embeddings",
        "encoder.embedding_norm": "embeddings.norm",
        "encoder.norm": "final_norm",
        "head.dense": "head.dense",
        "head.norm": "head.norm",
    }
    for ours in ("encoder.pooler", "encoder.transform"):
        names |= {f"{ours}.{part}": f"head.{part}" for part in ("dense", "norm")}
    is_language_model = isinstance(model.head, MaskedLanguageModelHead)
    names |= {"head.layers.1": "classifier", "head.output": "decoder" if is_language_model else "classifier"}
    for index in range(model.encoder.config.num_layers):
        ours, theirs = f"encoder.layers.{index}", f"layers.{index}"
        names |= {f"{ours}.attention_norm": f"{theirs}.attn_norm", f"{ours}.feed_forward_norm": f"{theirs}.mlp_norm"}
        names |= {f"{ours}.attention.inputs": f"{theirs}.attn.Wqkv", f"{ours}.attention.output": f"{theirs}.attn.Wo"}
        names |= {f"{ours}.feed_forward.wide": f"{theirs}.mlp.Wi", f"{ours}.feed_forward.narrow": f"{theirs}.mlp.Wo"}
    parts: Parts = {}
    for parameter, _ in model.named_parameters():
        module, _, part = parameter.rpartition(".")
        parts[parameter] = ((f"{names[module]}.{part}", 0),)
    return parts


def _fields(config: ModernBERTConfig) -> dict[str, Any]:
    kinds = [FULL if config.is_global(i) else LOCAL for i in range(config.num_layers)]
    bases = {FULL: config.global_rotary_base, LOCAL: config.local_rotary_base}
    special = ("pad", "bos", "eos", "cls", "sep")
    return {
        "vocab_size": config.vocab_size,
        "hidden_size": config.embedding_dim,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.feed_forward_dim,
        "max_position_embeddings": config.max_length,
        "layer_types": kinds,
        "global_attn_every_n_layers": config.global_every,
        "local_attention": 2 * config.window,
        "rope_parameters": {kind: {"rope_type": "default", "rope_theta": base} for kind, base in bases.items()},
        "global_rope_theta": config.global_rotary_base,
        "local_rope_theta": config.local_rotary_base,
        "embedding_dropout": config.embedding_dropout,
        "mlp_dropout": config.hidden_dropout,
        "attention_dropout": config.attention_dropout,
        "norm_eps": config.layer_norm_eps,
        **{f"{name}_token_id": None for name in special},  # the library's defaults are those of a larger vocabulary
        **PLAIN,
    }
