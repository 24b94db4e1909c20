"""fastai's AWD-LSTM language model to ours and back, weight by weight.

fastai keeps two biases for each layer, which only ever appear as their sum; ours keeps the sum. Its names are those of
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
    """fastai's names of one layer's weights by what they are."""
    layer = f"0.rnns.{index}"
    return {
        "weight_ih": f"{layer}.module.weight_ih_l0",
        "weight_hh": f"{layer}.weight_hh_l0_raw",
        "bias_ih": f"{layer}.module.bias_ih_l0",
        "bias_hh": f"{layer}.module.bias_hh_l0",
    }


def from_fastai(state_dict: Mapping[str, Tensor], *, direction: Direction = "left") -> Model:
    """The language model whose weights these are, in float32, with the dropouts of fastai's `awd_lstm_lm_config`.

    The shape is read off the weights; a decoder equal to the embedding is tied to it. fastai reads a backward
    model's text reversed, ours turns it round itself: say `direction="right"`. Raises UserError where a name is
    missing, unknown or twice there with different values, or a shape does not fit.
    """
    # Saved models of fastai 1 and 2 before 2.1 also hold the last dropped copy of the recurrent weights.
    given = {n: t for n, t in state_dict.items() if not re.fullmatch(r"0\.rnns\.\d+\.module\.weight_hh_l0", n)}
    num_layers = sum(name.endswith(".weight_hh_l0_raw") for name in given)
    optional = {EMBEDDING_AGAIN, DECODER_BIAS}
    expected = {EMBEDDING, DECODER, *(n for i in range(num_layers) for n in _layer_names(i).values())}
    missing, unknown = sorted(expected - given.keys()), sorted(given.keys() - expected - optional)
    if not num_layers or missing or unknown:
        raise UserError(
            f"these are not the weights of fastai's AWD-LSTM language model (missing: {missing}, unknown: {unknown}).",
            remedy="Take `learn.model.state_dict()` of a language_model_learner(dls, AWD_LSTM).",
        )
    embedding = given[EMBEDDING]
    if not torch.equal(given.get(EMBEDDING_AGAIN, embedding), embedding):
        raise UserError(f"'{EMBEDDING}' and '{EMBEDDING_AGAIN}' are one table in fastai, but differ here.")
    vocab_size, embedding_dim = embedding.shape
    config = AWDLSTMConfig(
        vocab_size=vocab_size,
        embedding_dim=embedding_dim,
        hidden_dim=given[_layer_names(0)["weight_hh"]].shape[1],
        num_layers=num_layers,
        direction=direction,
    )
    tied = torch.equal(given[DECODER], embedding)
    head = LanguageModelConfig(vocab_size, embedding_dim, tied=tied)
    model = build(
        {"encoder": {"name": "awd_lstm", **asdict(config)}, "head": {"name": "language_model", **asdict(head)}}
    )
    values = _in_our_names(given, num_layers)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            value = values[name]
            if value.shape != parameter.shape:
                raise UserError(f"the weights for '{name}' are {tuple(value.shape)}, not {tuple(parameter.shape)}.")
            parameter.copy_(value)
    return model


def _in_our_names(given: Mapping[str, Tensor], num_layers: int) -> dict[str, Tensor]:
    values = {"encoder.embedding.weight": given[EMBEDDING], "head.output.weight": given[DECODER]}
    values["head.output.bias"] = given.get(DECODER_BIAS, given[DECODER].new_zeros(len(given[DECODER])))
    for index in range(num_layers):
        theirs = {ours: given[name] for ours, name in _layer_names(index).items()}
        prefix = f"encoder.layers.{index}"
        values[f"{prefix}.weight_ih"], values[f"{prefix}.weight_hh"] = theirs["weight_ih"], theirs["weight_hh"]
        values[f"{prefix}.bias"] = theirs["bias_ih"] + theirs["bias_hh"]
    return values


def to_fastai(model: Model) -> dict[str, Tensor]:
    """The state dict that fastai's `get_language_model(AWD_LSTM, ...)` loads; each bias goes in `bias_ih`.

    Raises UserError for what fastai's AWD-LSTM cannot be: a QRNN, scaled inputs, or an adaptive output layer.
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
