"""Conversion of the `transformers` library's Llama, Mistral, Qwen2, Qwen3 and SmolLM3 to textgraft and back."""

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
    no_such_head,
    required_settings,
    taken,
    target_kind,
    task_of,
    validate_settings,
)
from textgraft.core.errors import UserError
from textgraft.encoders.llama import Llama, LlamaConfig
from textgraft.heads.features import FeaturesHead
from textgraft.heads.language_model import LanguageModelHead
from textgraft.models.model import Model, build_unfilled
from textgraft.nn.rotary import SCALING_SETTINGS
from textgraft.nn.softmax import FullSoftmax

PREFIXES = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3", "smollm3": "SmolLM3"}
"""Prefix of the library's classes, by model_type."""
TASKS = ("Model", "ForCausalLM", "ForSequenceClassification")
BELOW_HEAD, TABLE, LM_HEAD, SCORE = "model.", "embed_tokens.weight", "lm_head.weight", "score.weight"
BUFFER = ".rotary_emb.inv_freq"
"""Angles that older versions saved among the weights."""
ROTARY_BASE = {"smollm3": 2_000_000.0}
FULL, WINDOW = "full_attention", "sliding_attention"
STRIDE = 4
"""By default every fourth layer of a SmolLM3 has no positions."""


def from_huggingface(config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> Model:
    """Convert config.json and weights to a language model, a classifier or an encoder, in float32 and eval mode.

    A language model's output table that is absent, or equal to the token embedding, is tied to it.

    Raises:
        UserError: A setting or architecture is not supported, or the weights do not fit.
    """
    kind = str(config.get("model_type"))
    if kind not in PREFIXES:
        raise UserError(f"'{kind}' is none of: {', '.join(PREFIXES)}.", where="model_type")
    validate_settings(config, {"hidden_act": "silu", "partial_rotary_factor": 1.0})
    task = task_of(config, PREFIXES[kind], TASKS)
    remaining = {n.removeprefix(BELOW_HEAD): w for n, w in weights.items() if not n.endswith(BUFFER)}
    encoder = _encoder_config(config, kind)
    head = _head_description(config, task, remaining, encoder)
    model = build_unfilled({"encoder": {"name": "llama", **asdict(encoder)}, "head": head})
    if head.get("tied", False):
        remaining.pop(LM_HEAD, None)
    fill(model, _parts(model), remaining)
    return model.eval()


def to_huggingface(model: Model) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Convert to config.json and weights for the library's Llama, Mistral, Qwen2, Qwen3 or SmolLM3; a tied table is
    written once.

    Raises:
        UserError: The library has no class for the model.
    """
    encoder = model.encoder
    if not isinstance(encoder, Llama):
        raise UserError("only a model of the family 'llama' can be written as one.")
    kind = _kind_of(encoder.config)
    task, fields = _task_and_fields(model)
    config = {"model_type": kind, "architectures": [PREFIXES[kind] + task], **_fields(encoder.config, kind), **fields}
    weights = taken(model, _parts(model))
    if task != "Model":
        heads = {LM_HEAD, SCORE}
        weights = {name if name in heads else BELOW_HEAD + name: value for name, value in weights.items()}
    return config, weights


def _encoder_config(config: Mapping[str, Any], kind: str) -> LlamaConfig:
    base, scaling = rotary_settings(config, ROTARY_BASE.get(kind, 10_000.0))
    window, window_from = _window(config, kind)
    biased = bool(config.get("attention_bias", False)) and kind != "mistral"
    with required_settings():
        return LlamaConfig(
            vocab_size=config["vocab_size"],
            embedding_dim=config["hidden_size"],
            num_layers=config["num_hidden_layers"],
            num_heads=config["num_attention_heads"],
            num_key_value_heads=config.get("num_key_value_heads") or config["num_attention_heads"],
            head_dim=_head_dim(config, kind),
            feed_forward_dim=config["intermediate_size"],
            max_length=config["max_position_embeddings"],
            rotary_base=base,
            rotary_scaling=scaling,
            no_positions=_no_positions(config) if kind == "smollm3" else [],
            window=window,
            window_from=window_from,
            attention_bias="inputs" if kind == "qwen2" else "all" if biased else "none",
            feed_forward_bias=bool(config.get("mlp_bias", False)) and kind in ("llama", "smollm3"),
            query_key_norm=kind == "qwen3",
            attention_dropout=config.get("attention_dropout") or 0.0,
            norm_eps=config.get("rms_norm_eps", 1e-6),
        )


def _head_dim(config: Mapping[str, Any], kind: str) -> int | None:
    """Width of a head; None for the usual one."""
    width: int | None = config.get("head_dim") or (128 if kind == "qwen3" else None)
    usual = width is None or width * config["num_attention_heads"] == config["hidden_size"]
    return None if usual else width


def rotary_settings(config: Mapping[str, Any], default: float) -> tuple[float, dict[str, Any] | None]:
    """Base and scaling of the rotary positions, from `rope_parameters`, or `rope_theta` and `rope_scaling` of older
    versions.

    Raises:
        UserError: The type of scaling is not implemented, or one of its settings is missing.
    """
    settings = config.get("rope_scaling") or config.get("rope_parameters") or {}
    validate_settings(settings, {"partial_rotary_factor": 1.0})
    base = settings.get("rope_theta")
    base = float(config.get("rope_theta", default) if base is None else base)
    kind = settings.get("rope_type", settings.get("type", "default"))
    if kind == "default":
        return base, None
    if kind not in SCALING_SETTINGS:
        message = f"rope_type is '{kind}', and only {', '.join(['default', *SCALING_SETTINGS])} are implemented."
        raise UserError(message, where="config.json", remedy="Take a model without this setting.")
    length = config.get("original_max_position_embeddings", config.get("max_position_embeddings"))
    known = {"original_max_position_embeddings": length} | dict(settings)
    return base, {"type": kind, **{name: known.get(name) for name in SCALING_SETTINGS[kind]}}


def _window(config: Mapping[str, Any], kind: str) -> tuple[int | None, int]:
    """Window of attention, and the first layer that has it. Raises UserError for windows in other layers."""
    size = config.get("sliding_window", 4096 if kind == "mistral" else None)
    if kind == "smollm3":
        validate_settings(config, {"use_sliding_window": False})
    if size is None or (kind != "mistral" and not config.get("use_sliding_window", False)):
        return None, 0
    if kind == "mistral":
        return int(size), 0
    count = int(config.get("num_hidden_layers", 0))
    kinds = config.get("layer_types")
    first = int(config.get("max_window_layers", 28)) if kinds is None else [*kinds, WINDOW].index(WINDOW)
    if kinds is not None and kinds != [FULL] * first + [WINDOW] * (count - first):
        message = f"layer_types is {kinds}, and only windows in all layers from some layer on are implemented."
        raise UserError(message, where="config.json", remedy="Take a model without this setting.")
    return (int(size), first) if first < count else (None, 0)


def _no_positions(config: Mapping[str, Any]) -> list[int]:
    """Indices of a SmolLM3's layers without rotary positions."""
    count = int(config["num_hidden_layers"])
    rotary = config.get("no_rope_layers")  # named for what its zeros mean: 1 is a layer with positions
    if rotary is None:
        stride = int(config.get("no_rope_layer_interval", STRIDE))
        rotary = [int((i + 1) % stride != 0) for i in range(count)]
    return [i for i, has_positions in enumerate(rotary[:count]) if not has_positions]


def _head_description(
    config: Mapping[str, Any], task: str, weights: Mapping[str, Tensor], encoder: LlamaConfig
) -> dict[str, Any]:
    width, kind = encoder.embedding_dim, config.get("model_type")
    if SCORE in weights or task == "ForSequenceClassification":
        if SCORE not in weights:
            message = f"the weights lack the head of a classifier ({SCORE}), which config.json names."
            raise UserError(message, where="config.json", remedy="Check that both are of the same model.")
        outputs = len(weights[SCORE])
        return {
            "name": "classification",
            "input_dim": width,
            "outputs": outputs,
            "kind": target_kind(config, outputs),
            "direction": "left",
            "pooling": "last",
            "hidden_dim": 0,
            "batch_norm": False,
            "input_dropout": 0.0,
            "hidden_dropout": 0.0,
            "bias": False,
        }
    if LM_HEAD not in weights and task != "ForCausalLM":
        return {"name": "features", "input_dim": width}
    says_tied = bool(config.get("tie_word_embeddings", kind == "smollm3"))
    table, output = weights.get(TABLE), weights.get(LM_HEAD)
    same = output is None or (table is not None and torch.equal(table, output))
    if says_tied and not same:
        raise UserError(f"'{TABLE}' and '{LM_HEAD}' are one according to config.json, but differ here.")
    head = {"name": "language_model", "vocab_size": encoder.vocab_size, "input_dim": width, "bias": False}
    head |= {"tied": says_tied or (output is not None and same)}
    return head | {"output_dropout": 0.0, "alpha": 0.0, "beta": 0.0}


def _task_and_fields(model: Model) -> tuple[str, dict[str, Any]]:
    """The library's class for a model's head, and entries of config.json. Raises UserError where there is none."""
    head = model.head
    if isinstance(head, FeaturesHead):
        return "Model", {}
    if isinstance(head, LanguageModelHead) and not head.config.bias and isinstance(head.output, FullSoftmax):
        return "ForCausalLM", {"tie_word_embeddings": head.config.tied}
    if is_one_layer(head, "last", bias=False):
        return "ForSequenceClassification", {**classifier_fields(head), "tie_word_embeddings": False}  # type: ignore[arg-type]
    raise no_such_head(
        "model of Llama's kind",
        head,
        "Its language models have no bias on the output and no adaptive output layer; its classifiers are one "
        "linear layer without a bias on the last token.",
    )


def _kind_of(config: LlamaConfig) -> str:
    """The model_type that computes the same. Raises UserError where there is none."""
    none = config.attention_bias == "none"
    if config.query_key_norm and config.attention_bias != "inputs" and not config.no_positions:
        kind, has_window, has_bias = "qwen3", True, False
    elif config.attention_bias == "inputs" and not config.query_key_norm and not config.no_positions:
        kind, has_window, has_bias = "qwen2", True, False
    elif config.no_positions and not config.query_key_norm and config.attention_bias != "inputs":
        kind, has_window, has_bias = "smollm3", False, True
    elif config.window is not None and none and not config.query_key_norm and not config.window_from:
        kind, has_window, has_bias = "mistral", True, False
    else:
        kind, has_window, has_bias = "llama", False, True
    plain_head = config.head_dim in (None, config.embedding_dim // config.num_heads)
    fits = (has_window or config.window is None) and (has_bias or not config.feed_forward_bias)
    fits &= kind != "llama" or (not config.query_key_norm and config.attention_bias != "inputs")
    if not fits or (kind in ("qwen2", "smollm3") and not plain_head):
        message = "no model of the transformers library has this combination of window, biases, norms and positions."
        raise UserError(message, remedy="Keep the model in textgraft's format.")
    return kind


def _fields(config: LlamaConfig, kind: str) -> dict[str, Any]:
    rotary: dict[str, Any] = {"rope_type": "default", "rope_theta": config.rotary_base}
    if config.rotary_scaling is not None:
        rotary |= {("rope_type" if name == "type" else name): value for name, value in config.rotary_scaling.items()}
    fields: dict[str, Any] = {
        "vocab_size": config.vocab_size,
        "hidden_size": config.embedding_dim,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "head_dim": config.head_width,
        "intermediate_size": config.feed_forward_dim,
        "max_position_embeddings": config.max_length,
        "rope_parameters": rotary,
        "rope_theta": config.rotary_base,
        "rms_norm_eps": config.norm_eps,
        "attention_dropout": config.attention_dropout,
        "hidden_act": "silu",
        **{f"{name}_token_id": None for name in ("pad", "bos", "eos")},  # of the tokenizer, which is not here
    }
    if kind in ("llama", "qwen3", "smollm3"):
        fields["attention_bias"] = config.attention_bias == "all"
    if kind in ("llama", "smollm3"):
        fields["mlp_bias"] = config.feed_forward_bias
    if kind == "mistral":
        fields["sliding_window"] = config.window
    if kind in ("qwen2", "qwen3"):
        first = config.num_layers if config.window is None else config.window_from
        fields |= {"use_sliding_window": config.window is not None, "sliding_window": config.window}
        fields |= {"max_window_layers": first, "layer_types": [FULL] * first + [WINDOW] * (config.num_layers - first)}
    if kind == "smollm3":
        fields["no_rope_layers"] = [int(i not in config.no_positions) for i in range(config.num_layers)]
    return fields


def _parts(model: Model) -> Parts:
    """The library's weights for each parameter, without the prefix of models with a head."""
    config = model.encoder.config
    query, key = (heads * config.head_width for heads in (config.num_heads, config.num_key_value_heads))
    names: dict[str, tuple[tuple[str, int], ...]] = {
        "encoder.embedding": (("embed_tokens", 0),),
        "encoder.norm": (("norm", 0),),
        "head.output": (("lm_head", 0),),
        "head.layers.1": (("score", 0),),
    }
    for index in range(config.num_layers):
        ours, attention, mlp = f"encoder.layers.{index}", f"layers.{index}.self_attn", f"layers.{index}.mlp"
        inputs = ((f"{attention}.q_proj", query), (f"{attention}.k_proj", key), (f"{attention}.v_proj", key))
        gated = tuple((f"{mlp}.{part}_proj", config.feed_forward_dim) for part in ("gate", "up"))
        names |= {f"{ours}.attention.inputs": inputs, f"{ours}.feed_forward.wide": gated}
        names |= {f"{ours}.attention.output": ((f"{attention}.o_proj", 0),)}
        names |= {f"{ours}.feed_forward.narrow": ((f"{mlp}.down_proj", 0),)}
        names |= {f"{ours}.attention.query_norm": ((f"{attention}.q_norm", 0),)}
        names |= {f"{ours}.attention.key_norm": ((f"{attention}.k_norm", 0),)}
        names |= {f"{ours}.attention_norm": ((f"layers.{index}.input_layernorm", 0),)}
        names |= {f"{ours}.feed_forward_norm": ((f"layers.{index}.post_attention_layernorm", 0),)}
    parts: Parts = {}
    for parameter, _ in model.named_parameters():
        module, _, part = parameter.rpartition(".")
        parts[parameter] = tuple((f"{name}.{part}", rows) for name, rows in names[module])
    return parts
