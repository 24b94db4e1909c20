"""Conversion of the `transformers` library's RoBERTa, XLM-R and CamemBERT, to textgraft and back.

The three have the same networks and weights under other class names. The library counts positions from the id of
padding + 1; the rows of the table below are left out, and are zeros where a model is written. It gives no text but the
first segment, so that one row of that table is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from textgraft.conversion.bert_weights import (
    SEGMENTS,
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
from textgraft.encoders.roberta import RoBERTa, RoBERTaConfig
from textgraft.models.model import Model

LAYOUT = Layout("roberta", "roberta", "roberta.")
MODEL_TYPES = ("roberta", "xlm-roberta", "camembert")
_CLASS = re.compile("^(?:XLMRoberta|Camembert)")


def from_huggingface(config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> Model:
    """Convert config.json and weights of the library to a model in float32.

    Raises:
        UserError: The architecture or activation is not supported, a name is missing or unexpected, or a shape is
            wrong.
    """
    if config.get("model_type") not in MODEL_TYPES:
        supported = ", ".join(MODEL_TYPES)
        raise UserError(f"model_type '{config.get('model_type')}' is none of: {supported}.", where="config.json")
    names = config.get("architectures") or []
    config = {**config, "architectures": [_CLASS.sub("Roberta", name) for name in names]}
    validate_config(config, "roberta")
    padding = config.get("pad_token_id")
    padding = 1 if padding is None else int(padding)
    library_weights = plain_names(weights, LAYOUT.prefix)
    config = counted_from(library_weights, padding + 1, config)
    if SEGMENTS in library_weights:
        library_weights[SEGMENTS] = library_weights[SEGMENTS][:1]
    with required_settings():
        encoder = RoBERTaConfig(**sizes(config), pooler="pooler.dense.weight" in library_weights, padding_id=padding)
    return read(LAYOUT, config, encoder, library_weights)


def to_huggingface(model: Model) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Convert a model to config.json and weights of the library's RoBERTa; a tied table is written once.

    Raises:
        UserError: The library has no class for the model.
    """
    encoder = model.encoder
    if not isinstance(encoder, RoBERTa):
        raise UserError("only a RoBERTa can be written as one.")
    first = encoder.config.padding_id + 1
    fields = {"model_type": "roberta", **settings(encoder.config), "type_vocab_size": encoder.config.num_segments}
    fields |= {"pad_token_id": encoder.config.padding_id}
    fields["max_position_embeddings"] += first
    config, weights = write(LAYOUT, model, fields)
    counted_to(weights, first, LAYOUT.prefix)
    return config, weights
