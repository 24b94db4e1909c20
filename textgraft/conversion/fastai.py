"""Conversion of fastai's AWD-LSTM language model, to textgraft and back.

fastai keeps two biases for each layer, which only appear as their sum; textgraft keeps the sum. Names are those of
`get_language_model(AWD_LSTM, ...).state_dict()`, fastai 2.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict

import torch
from torch import Tensor

from textgraft.core.errors import UserError
from textgraft.data.sequences import Direction
from textgraft.encoders.awd_lstm import AWDLSTM, AWDLSTMConfig
from textgraft.heads.language_model import LanguageModelConfig, LanguageModelHead
from textgraft.models.model import Model, build
from textgraft.nn.softmax import FullSoftmax

EMBEDDING = "0.encoder.weight"
EMBEDDING_AGAIN = "0.encoder_dp.emb.weight"
DECODER = "1.decoder.weight"
DECODER_BIAS = "1.decoder.bias"


def _layer_names(index: int) -> dict[str, str]:
    """fastai's names of one layer's weights."""
    layer = f"0.rnns.{index}"
    return {
        "weight_ih": f"{layer}.module.weight_ih_l0",
        "weight_hh": f"{layer}.weight_hh_l0_raw",
        "bias_ih": f"{layer}.module.bias_ih_l0",
        "bias_hh": f"{layer}.module.bias_hh_l0",
    }


def from_fastai(state_dict: Mapping[str, Tensor], *, direction: Direction = "left") -> Model:
    """Convert a fastai state dict to a language model in float32, with the dropouts of fastai's `awd_lstm_lm_config`.

    The shape is inferred from the weights; a decoder equal to the embedding is tied to it. fastai reverses the text of
    a backward model beforehand; here the model does: set `direction="right"`.

    Raises:
        UserError: A name is missing, unknown or duplicated with different values, or a shape is wrong.
    """
    # Models saved by fastai 1, and 2 before 2.1, also contain the last copy of the recurrent weights with dropout.
    weights = {n: t for n, t in state_dict.items() if not re.fullmatch(r"0\.rnns\.\d+\.module\.weight_hh_l0", n)}
    num_layers = sum(name.endswith(".weight_hh_l0_raw") for name in weights)
    optional = {EMBEDDING_AGAIN, DECODER_BIAS}
    expected = {EMBEDDING, DECODER, *(n for i in range(num_layers) for n in _layer_names(i).values())}
    missing, unknown = sorted(expected - weights.keys()), sorted(weights.keys() - expected - optional)
    if not num_layers or missing or unknown:
        raise UserError(
            f"these are not the weights of fastai's AWD-LSTM language model (missing: {missing}, unknown: {unknown}).",
            remedy="Use `learn.model.state_dict()` of a language_model_learner(dls, AWD_LSTM).",
        )
    embedding = weights[EMBEDDING]
    if not torch.equal(weights.get(EMBEDDING_AGAIN, embedding), embedding):
        raise UserError(f"'{EMBEDDING}' and '{EMBEDDING_AGAIN}' are one table in fastai, but differ here.")
    vocab_size, embedding_dim = embedding.shape
    config = AWDLSTMConfig(
        vocab_size=vocab_size,
        embedding_dim=embedding_dim,
        hidden_dim=weights[_layer_names(0)["weight_hh"]].shape[1],
        num_layers=num_layers,
        direction=direction,
    )
    tied = torch.equal(weights[DECODER], embedding)
    head = LanguageModelConfig(vocab_size, embedding_dim, tied=tied)
    model = build(
        {"encoder": {"name": "awd_lstm", **asdict(config)}, "head": {"name": "language_model", **asdict(head)}}
    )
    values = _in_our_names(weights, num_layers)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            value = values[name]
            if value.shape != parameter.shape:
                raise UserError(f"the weights for '{name}' are {tuple(value.shape)}, not {tuple(parameter.shape)}.")
            parameter.copy_(value)
    return model


def _in_our_names(weights: Mapping[str, Tensor], num_layers: int) -> dict[str, Tensor]:
    values = {"encoder.embedding.weight": weights[EMBEDDING], "head.output.weight": weights[DECODER]}
    values["head.output.bias"] = weights.get(DECODER_BIAS, weights[DECODER].new_zeros(len(weights[DECODER])))
    for index in range(num_layers):
        layer_weights = {part: weights[name] for part, name in _layer_names(index).items()}
        prefix = f"encoder.layers.{index}"
        values[f"{prefix}.weight_ih"], values[f"{prefix}.weight_hh"] = (
            layer_weights["weight_ih"],
            layer_weights["weight_hh"],
        )
        values[f"{prefix}.bias"] = layer_weights["bias_ih"] + layer_weights["bias_hh"]
    return values


def to_fastai(model: Model) -> dict[str, Tensor]:
    """Convert to a state dict for fastai's `get_language_model(AWD_LSTM, ...)`; each bias is stored in `bias_ih`.

    Raises:
        UserError: fastai's AWD-LSTM cannot represent the model: a QRNN, scaled inputs, or an adaptive output layer.
    """
    encoder, head = model.encoder, model.head
    if not isinstance(encoder, AWDLSTM) or not isinstance(head, LanguageModelHead):
        raise UserError("only an AWD-LSTM language model can be written for fastai.")
    if encoder.config.cell != "lstm" or encoder.config.input_scale != 1 or not isinstance(head.output, FullSoftmax):
        raise UserError(
            "fastai's AWD-LSTM has no QRNN cell, no input_scale and no adaptive output layer.",
            remedy="Train with cell 'lstm', input_scale 1 and output layer 'chunked', 'sampled' or 'full'.",
        )
    values = {name: value.detach().clone() for name, value in model.values().items()}
    table = values["encoder.embedding.weight"]
    state = {EMBEDDING: table, EMBEDDING_AGAIN: table}
    for index in range(encoder.config.num_layers):
        names, prefix = _layer_names(index), f"encoder.layers.{index}"
        state |= {names[n]: values[f"{prefix}.{n}"] for n in ("weight_ih", "weight_hh")}
        bias = values[f"{prefix}.bias"]
        state |= {names["bias_ih"]: bias, names["bias_hh"]: torch.zeros_like(bias)}
    state[DECODER] = table if head.config.tied else values["head.output.weight"]
    state[DECODER_BIAS] = values.get("head.output.bias", table.new_zeros(len(table)))
    return state
