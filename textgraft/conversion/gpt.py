"""GPT and GPT-2 language models as Hugging Face's transformers store them, to ours and back, weight by weight.

Theirs are config.json and the weights of GPT2LMHeadModel ("gpt2") or OpenAIGPTLMHeadModel ("openai-gpt"), or of the
models below these heads. Their layers keep matrices as input x output, ours as output x input.
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
"""What transformers calls the tanh approximation; for GPT it goes by the name of "gelu"."""
BUFFERS = re.compile(r"(?:h\.\d+\.attn\.(?:bias|masked_bias)|position_ids)")
"""Masks and counts that older files hold beside the weights."""
PLAIN = {
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "reorder_and_upcast_attn": False,
    "add_cross_attention": False,
}
"""Settings under which a "gpt2" computes what GPT-2 does."""


def _names(model_type: str, num_layers: int) -> dict[str, tuple[str, bool]]:
    """Our name of each weight of the encoder: theirs, and whether it is turned."""
    tokens, positions = TABLES[model_type]
    names = {"embedding.weight": (tokens, False), "positions.weight": (positions, False)}
    linear = {"attention.inputs": "attn.c_attn", "attention.output": "attn.c_proj"}
    linear |= {"widen": "mlp.c_fc", "narrow": "mlp.c_proj"}
    norms = {"attention_norm": "ln_1", "feed_forward_norm": "ln_2"}
    for index in range(num_layers):
        for ours, theirs in (linear | norms).items():
            for part in ("weight", "bias"):
                turned = ours in linear and part == "weight"
                names[f"layers.{index}.{ours}.{part}"] = (f"h.{index}.{theirs}.{part}", turned)
    if NORMS[model_type] == "pre":
        names |= {f"norm.{part}": (f"ln_f.{part}", False) for part in ("weight", "bias")}
    return names


def from_huggingface(config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> Model:
    """The language model whose config.json and weights these are, in float32 and in eval mode, without regularisers.

    An output table that is absent or equal to the token embedding is tied to it. Raises UserError for another model
    type, for a variant that computes something else, where weights are missing or left over, or a shape is not what
    the config says.
    """
    model_type = _model_type(config)
    given = {name.removeprefix(BELOW_HEAD): value for name, value in weights.items()}
    given = {name: value for name, value in given.items() if not BUFFERS.fullmatch(name)}
    encoder = _encoder_config(config, model_type)
    names = _names(model_type, encoder["num_layers"])
    expected = {theirs for theirs, _ in names.values()}
    missing, left_over = sorted(expected - given.keys()), sorted(given.keys() - expected - {LM_HEAD})
    if missing or left_over:
        raise UserError(
            f"these are not the weights of a '{model_type}' (missing: {_listed(missing)}; left over: "
            f"{_listed(left_over)}).",
            remedy="Take the weights of a language model, or of the model below its head, with its own config.json.",
        )
    table = given[TABLES[model_type][0]]
    tied = LM_HEAD not in given or torch.equal(given[LM_HEAD], table)
    head = {"vocab_size": encoder["vocab_size"], "input_dim": encoder["embedding_dim"], "tied": tied, "bias": False}
    head |= {"output_dropout": 0.0, "alpha": 0.0, "beta": 0.0}
    model = build({"encoder": {"name": "gpt", **encoder}, "head": {"name": "language_model", **head}}).float()
    values = {f"encoder.{ours}": given[name].t() if turned else given[name] for ours, (name, turned) in names.items()}
    if not tied:
        values["head.output.weight"] = given[LM_HEAD]
    own = model.values()
    assert own.keys() == values.keys(), own.keys() ^ values.keys()
    for name, target in own.items():
        if values[name].shape != target.shape:
            shapes = f"{tuple(values[name].shape)}, not {tuple(target.shape)}"
            raise UserError(f"the weights for '{name}' are {shapes} as the config says.")
    with torch.no_grad():
        for name, target in own.items():
            target.copy_(values[name])
    return model.eval()


def _model_type(config: Mapping[str, Any]) -> str:
    model_type = str(config.get("model_type"))
    if model_type not in NORMS:
        remedy = did_you_mean(model_type, NORMS)
        raise UserError(f"'{model_type}' is no GPT that can be converted.", where="model_type", remedy=remedy)
    return model_type


def _encoder_config(config: Mapping[str, Any], model_type: str) -> dict[str, Any]:
    """Our config for theirs, whose absent settings have the values that transformers gives them."""
    width = config.get("n_embd", 768)
    wrong = [name for name, value in PLAIN.items() if config.get(name, value) != value]
    activation = "activation_function" if model_type == "gpt2" else "afn"
    if config.get(activation, TANH_GELUS[model_type][0]) not in TANH_GELUS[model_type]:
        wrong.append(activation)
    if config.get("n_inner") not in (None, 4 * width):
        wrong.append("n_inner")
    if wrong:
        settings = ", ".join(f"{name} = {config[name]!r}" for name in wrong)
        raise UserError(f"this model computes something else than GPT ({settings}).", where="config.json")
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
    """The first few of many names, and how many more there are."""
    shown = list(names)
    more = f", … ({len(shown)} in all)" if len(shown) > 8 else ""
    return (", ".join(shown[:8]) + more) or "none"


def to_huggingface(model: Model) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """config.json and the weights that transformers' GPT2LMHeadModel or OpenAIGPTLMHeadModel loads.

    Raises UserError for what these cannot be: banded attention, a bias on the output, or an adaptive output layer.
    """
    encoder, head = model.encoder, model.head
    if not isinstance(encoder, GPT) or not isinstance(head, LanguageModelHead):
        raise UserError("only a GPT language model can be written as one.")
    c = encoder.config
    if c.attention != "dense" or head.config.bias or not isinstance(head.output, FullSoftmax):
        raise UserError(
            "transformers' GPT has no banded attention, no bias on the output and no adaptive output layer.",
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
        BELOW_HEAD + theirs: values[f"encoder.{ours}"].t().contiguous() if turned else values[f"encoder.{ours}"]
        for ours, (theirs, turned) in _names(model_type, c.num_layers).items()
    }
    weights[LM_HEAD] = values["encoder.embedding.weight" if head.config.tied else "head.output.weight"].clone()
    return config, weights
