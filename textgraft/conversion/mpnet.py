"""Conversion of the `transformers` library's MPNet, to textgraft and back.

The library counts positions from 2, whatever the id of padding in config.json, and has 32 buckets of distances, also
where config.json says otherwise. The rows of the position table below are left out, and are zeros where a model is
written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from textgraft.conversion.bert_weights import (
    BERT_BLOCK,
    Layout,
    counted_from,
    counted_to,
    plain_names,
    read,
    settings,
    sizes,
    validate_config,
    write,
)
from textgraft.conversion.weights import required_settings
from textgraft.core.errors import UserError
from textgraft.encoders.mpnet import MPNet, MPNetConfig
from textgraft.models.model import Model

FIRST_POSITION, BUCKETS, FARTHEST = 2, 32, 128
LAYOUT = Layout(
    "mpnet",
    "mpnet",
    "mpnet.",
    block=BERT_BLOCK
    | {
        "attention.inputs": ("attention.attn.q", "attention.attn.k", "attention.attn.v"),
        "attention.output": ("attention.attn.o",),
        "attention_norm": ("attention.LayerNorm",),
    },
    others={"distances": ("encoder.relative_attention_bias",)},
)


def from_huggingface(config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> Model:
    """Convert config.json and weights of the library to a model in float32.

    Raises:
        UserError: The architecture or activation is not supported, a name is missing or unexpected, or a shape is
            wrong.
    """
    validate_config(config, "mpnet")
    buckets = config.get("relative_attention_num_buckets", BUCKETS)
    if buckets != BUCKETS:
        message = f"relative_attention_num_buckets is {buckets}, and only {BUCKETS} is known."
        raise UserError(message, where="config.json")
    library_weights = plain_names(weights, LAYOUT.prefix)
    config = counted_from(library_weights, FIRST_POSITION, config)
    with required_settings():
        encoder = MPNetConfig(**sizes(config), pooler="pooler.dense.weight" in library_weights)
    return read(LAYOUT, config, encoder, library_weights)


def to_huggingface(model: Model) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Convert a model to the library's config.json and weights; a tied table is written once.

    Raises:
        UserError: The library has no class for the model.
    """
    encoder = model.encoder
    if not isinstance(encoder, MPNet):
        raise UserError("only an MPNet can be written as one.")
    config = encoder.config
    if (config.num_buckets, config.max_distance, config.num_segments) != (BUCKETS, FARTHEST, 0):
        message = f"transformers' MPNet has {BUCKETS} buckets of distances up to {FARTHEST}, and no segments."
        raise UserError(message, remedy="Make the model with these settings.")
    fields = {"model_type": "mpnet", **settings(config), "relative_attention_num_buckets": BUCKETS}
    fields["max_position_embeddings"] += FIRST_POSITION
    fields, weights = write(LAYOUT, model, fields)
    counted_to(weights, FIRST_POSITION, LAYOUT.prefix)
    return fields, weights
