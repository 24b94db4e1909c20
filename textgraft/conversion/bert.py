"""Conversion of the `transformers` library's BERT and DistilBERT, to textgraft and back (conversion.bert_weights)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from textgraft.conversion.bert_heads import Kind
from textgraft.conversion.bert_weights import Layout, plain_names, read, settings, sizes, validate_config, write
from textgraft.conversion.weights import required_settings
from textgraft.core.errors import UserError
from textgraft.encoders.bert import BERT, BERTConfig
from textgraft.models.model import Model

_DISTIL_EPS = 1e-12  # not a setting in the library

LAYOUTS: dict[Kind, Layout] = {
    "bert": Layout("bert", "bert", "bert.", decoder="cls.predictions.decoder", bias="cls.predictions.bias"),
    "distilbert": Layout(
        "distilbert",
        "bert",
        "distilbert.",
        blocks="transformer.layer",
        block={
            "attention.inputs": tuple(f"attention.{part}_lin" for part in "qkv"),
            "attention.output": ("attention.out_lin",),
            "attention_norm": ("sa_layer_norm",),
            "feed_forward": ("ffn.lin1",),
            "output": ("ffn.lin2",),
            "output_norm": ("output_layer_norm",),
        },
        decoder="vocab_projector",
        bias="vocab_projector.bias",
    ),
}


def from_huggingface(config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> Model:
    """Convert config.json and weights of the library to a model in float32.

    Raises:
        UserError: The architecture or activation is not supported, a name is missing or unexpected, or a shape is
            wrong.
    """
    kind = next((kind for kind in LAYOUTS if kind == config.get("model_type")), None)
    if kind is None:
        supported = ", ".join(LAYOUTS)
        raise UserError(f"model_type '{config.get('model_type')}' is neither of: {supported}.", where="config.json")
    validate_config(config, kind)
    library_weights = plain_names(weights, LAYOUTS[kind].prefix)
    return read(LAYOUTS[kind], config, _encoder_config(config, kind, library_weights), library_weights)


def to_huggingface(model: Model) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Convert a model to the library's config.json and weights; a tied table is written once.

    A BERT without segments and pooler becomes a DistilBERT.

    Raises:
        UserError: The library has no class for the model.
    """
    encoder = model.encoder
    if not isinstance(encoder, BERT):
        raise UserError("only a BERT can be written as one.")
    described = encoder.config
    if described.num_segments:
        fields = {"model_type": "bert", "type_vocab_size": described.num_segments, **settings(described)}
        return write(LAYOUTS["bert"], model, fields)
    if described.pooler or described.layer_norm_eps != _DISTIL_EPS:
        message = f"a model without segments is a DistilBERT, with no pooler and a layer_norm_eps of {_DISTIL_EPS}."
        raise UserError(message, remedy="Make it with num_segments 2 to write it as a BERT.")
    return write(LAYOUTS["distilbert"], model, _distilbert_fields(described))


def _encoder_config(config: Mapping[str, Any], kind: Kind, weights: Mapping[str, Tensor]) -> BERTConfig:
    with required_settings():
        if kind == "bert":
            pooler = "pooler.dense.weight" in weights
            return BERTConfig(**sizes(config), num_segments=config["type_vocab_size"], pooler=pooler)
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
