"""Conversion of GPT and GPT-2 language models of the `transformers` library, to textgraft and back.

The library's are config.json and the weights of GPT2LMHeadModel ("gpt2") or OpenAIGPTLMHeadModel ("openai-gpt"), or of
the models below these heads. Their layers store matrices as input x output, textgraft's as output x input.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from textgraft.core.errors import UserError, did_you_mean
from textgraft.encoders.gpt import GPT
from textgraft.heads.language_model import LanguageModelHead
from textgraft.models.model import Model, build
from textgraft.nn.softmax import FullSoftmax

NORMS = {"gpt2": "pre", "openai-gpt": "post"}
TABLES = {"gpt2": ("wte.weight", "wpe.weight"), "openai-gpt": ("tokens_embed.weight", "positions_embed.weight")}
CLASSES = {"gpt2": "GPT2LMHeadModel", "openai-gpt": "OpenAIGPTLMHeadModel"}
LM_HEAD, BELOW_HEAD = "lm_head.weight", "transformer."
TANH_GELUS = {"gpt2": ("gelu_new", "gelu_pytorch_tanh"), "openai-gpt": ("gelu", "gelu_new")}
"""Names of the tanh approximation in transformers; for GPT it is called "gelu"."""
BUFFERS = re.compile(r"(?:h\.\d+\.attn\.(?:bias|masked_bias)|position_ids)")
"""Masks and counters that older files have beside the weights."""
PLAIN = {
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "reorder_and_upcast_attn": False,
    "add_cross_attention": False,
}
"""Settings of a "gpt2" that computes the same as GPT-2."""


def _names(model_type: str, num_layers: int) -> dict[str, tuple[str, bool]]:
    """For each textgraft encoder weight, the library's name, and whether it is transposed."""
    tokens, positions = TABLES[model_type]
    names = {"embedding.weight": (tokens, False), "positions.weight": (positions, False)}
    linear = {"attention.inputs": "attn.c_attn", "attention.output": "attn.c_proj"}
    linear |= {"widen": "mlp.c_fc", "narrow": "mlp.c_proj"}
    norms = {"attention_norm": "ln_1", "feed_forward_norm": "ln_2"}
    for index in range(num_layers):
        for ours, theirs in (linear | norms).items():
            for part in ("weight", "bias"):
                transposed = ours in linear and part == "weight"
                names[f"layers.{index}.{ours}.{part}"] = (f"h.{index}.{theirs}.{part}", transposed)
    if NORMS[model_type] == "pre":
        names |= {f"norm.{part}": (f"ln_f.{part}", False) for part in ("weight", "bias")}
    return names


def from_huggingface(config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> Model:
    """Convert config.json and weights to a language model in float32 and eval mode, without regularisers.

    An output table that is absent or equal to the token embedding is tied to it.

    Raises:
        UserError: The model type or a setting is not supported, weights are missing or unexpected, or a shape is wrong.
    """
    model_type = _model_type(config)
    library_weights = {name.removeprefix(BELOW_HEAD): value for name, value in weights.items()}
    library_weights = {name: value for name, value in library_weights.items() if not BUFFERS.fullmatch(name)}
    encoder = _encoder_config(config, model_type)
    names = _names(model_type, encoder["num_layers"])
    expected = {theirs for theirs, _ in names.values()}
    missing, left_over = (
        sorted(expected - library_weights.keys()),
        sorted(library_weights.keys() - expected - {LM_HEAD}),
    )
    if missing or left_over:
        raise UserError(
            f"these are not the weights of a '{model_type}' (missing: {_listed(missing)}; left over: "
            f"{_listed(left_over)}).",
            remedy="Use the weights of a language model, or of the model below its head, with its own config.json.",
        )
    table = library_weights[TABLES[model_type][0]]
    tied = LM_HEAD not in library_weights or torch.equal(library_weights[LM_HEAD], table)
    head = {"vocab_size": encoder["vocab_size"], "input_dim": encoder["embedding_dim"], "tied": tied, "bias": False}
    head |= {"output_dropout": 0.0, "alpha": 0.0, "beta": 0.0}
    model = build({"encoder": {"name": "gpt", **encoder}, "head": {"name": "language_model", **head}}).float()
    values = {
        f"encoder.{ours}": library_weights[name].t() if transposed else library_weights[name]
        for ours, (name, transposed) in names.items()
    }
    if not tied:
        values["head.output.weight"] = library_weights[LM_HEAD]
    model_values = model.values()
    assert model_values.keys() == values.keys(), model_values.keys() ^ values.keys()
    for name, target in model_values.items():
        if values[name].shape != target.shape:
            shapes = f"{tuple(values[name].shape)}, not {tuple(target.shape)}"
            raise UserError(f"the weights for '{name}' are {shapes} as the config says.")
    with torch.no_grad():
        for name, target in model_values.items():
            target.copy_(values[name])
    return model.eval()


def _model_type(config: Mapping[str, Any]) -> str:
    model_type = str(config.get("model_type"))
    if model_type not in NORMS:
        remedy = did_you_mean(model_type, NORMS)
        raise UserError(f"'{model_type}' is not a GPT that can be converted.", where="model_type", remedy=remedy)
    return model_type


def _encoder_config(config: Mapping[str, Any], model_type: str) -> dict[str, Any]:
    """The encoder's configuration; absent settings have the defaults of transformers."""
    width = config.get("n_embd", 768)
    unsupported = [name for name, value in PLAIN.items() if config.get(name, value) != value]
    activation = "activation_function" if model_type == "gpt2" else "afn"
    if config.get(activation, TANH_GELUS[model_type][0]) not in TANH_GELUS[model_type]:
        unsupported.append(activation)
    if config.get("n_inner") not in (None, 4 * width):
        unsupported.append("n_inner")
    if unsupported:
        settings = ", ".join(f"{name} = {config[name]!r}" for name in unsupported)
        raise UserError(f"this model differs from GPT ({settings}).", where="config.json")
    return {
        "vocab_size": config.get("vocab_size", 50257 if model_type == "gpt2" else 40478),
        "embedding_dim": width,
        "num_layers": config.get("n_layer", 12),
        "num_heads": config.get("n_head", 12),
        "max_length": config.get("n_positions", 1024 if model_type == "gpt2" else 512),
        "norm": NORMS[model_type],
        "embedding_dropout": config.get("embd_pdrop", 0.1),
        "hidden_dropout": config.get("resid_pdrop", 0.1),
        "attention_dropout": config.get("attn_pdrop", 0.1),
        "layer_norm_eps": config.get("layer_norm_epsilon", 1e-5),
    }


def _listed(names: Iterable[str]) -> str:
    """The first few of many names, and their number."""
    shown = list(names)
    more = f", … ({len(shown)} in all)" if len(shown) > 8 else ""
    return (", ".join(shown[:8]) + more) or "none"


def to_huggingface(model: Model) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Convert to config.json and weights for transformers' GPT2LMHeadModel or OpenAIGPTLMHeadModel.

    Raises:
        UserError: The library cannot represent the model: an attention that is not dense, a bias on the output, or an
            adaptive output layer.
    """
    encoder, head = model.encoder, model.head
    if not isinstance(encoder, GPT) or not isinstance(head, LanguageModelHead):
        raise UserError("only a GPT language model can be written as one.")
    c = encoder.config
    if c.attention != "dense" or head.config.bias or not isinstance(head.output, FullSoftmax):
        raise UserError(
            "transformers' GPT has dense attention only, no bias on the output and no adaptive output layer.",
            remedy="Train with attention 'dense', bias = false and output layer 'chunked', 'sampled' or 'full'.",
        )
    model_type = next(name for name, norm in NORMS.items() if norm == c.norm)
    config: dict[str, Any] = {"model_type": model_type, "architectures": [CLASSES[model_type]]}
    config |= {"vocab_size": c.vocab_size, "n_positions": c.max_length, "n_embd": c.embedding_dim}
    config |= {"n_layer": c.num_layers, "n_head": c.num_heads, "layer_norm_epsilon": c.layer_norm_eps}
    config |= {"embd_pdrop": c.embedding_dropout, "resid_pdrop": c.hidden_dropout, "attn_pdrop": c.attention_dropout}
    config |= {"tie_word_embeddings": head.config.tied}
    config |= {"activation_function": "gelu_new"} if model_type == "gpt2" else {"afn": "gelu"}
    values = {name: value.detach().clone() for name, value in model.values().items()}
    weights = {
        BELOW_HEAD + theirs: values[f"encoder.{ours}"].t().contiguous() if transposed else values[f"encoder.{ours}"]
        for ours, (theirs, transposed) in _names(model_type, c.num_layers).items()
    }
    weights[LM_HEAD] = values["encoder.embedding.weight" if head.config.tied else "head.output.weight"].clone()
    return config, weights
