"""Conversion of the original Transformer-XL language models, to textgraft and back.

There are two versions with different names. "tensorflow": names such as transformer/layer_0/rel_attn/qkv/kernel,
matrices as input x output, norms with an epsilon of 1e-12, an output layer that shares the input's tables. "pytorch":
names such as layers.0.dec_attn.qkv_net.weight, matrices as output x input, and the clusters in the head's rows from the
last to the first. A config has the names of their flags (n_layer, d_model, …).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from textgraft.core.errors import UserError
from textgraft.encoders.transformer_xl import TransformerXL
from textgraft.heads.language_model import LanguageModelHead
from textgraft.models.model import Model, build
from textgraft.nn.embedding import AdaptiveEmbedding
from textgraft.nn.softmax import AdaptiveSoftmax, FullSoftmax

Layout = Literal["tensorflow", "pytorch"]
EPSILON = {"tensorflow": 1e-12, "pytorch": 1e-5}
TABLE_NAMES = {"tensorflow": "transformer/adaptive_embed", "pytorch": "word_emb.emb_layers.0.weight"}
BUFFER = "pos_emb.inv_freq"
"""A buffer of the PyTorch code without weights."""


def _identity(value: Tensor) -> Tensor:
    return value


def _transposed(value: Tensor) -> Tensor:
    return value.t()


def _reversed(value: Tensor) -> Tensor:
    return value.flip(0)


SIZES = ("n_layer", "d_model", "n_head", "d_head", "d_inner", "vocab_size", "n_token")
FLAGS: Mapping[type, tuple[str, tuple[str, ...]]] = {
    int: (
        "a whole number",
        (*SIZES, "d_embed", "mem_len", "test_mem_len", "clamp_len", "test_clamp_len", "cutoffs"),
    ),
    float: ("a number", ("dropout", "dropatt", "div_val")),
    bool: ("true or false", ("same_length", "untie_r", "pre_lnorm", "proj_same_dim", "tie_projs", "share_proj")),
}
"""Flags of each type, and its name."""
LISTED = ("cutoffs", "tie_projs", "share_proj")
"""Flags that may be a list of such values."""


@dataclass(frozen=True)
class Stored:
    """One original weight: views into textgraft weights, concatenated (or stacked), then transformed by a self-inverse
    function.
    """

    views: tuple[Tensor, ...]
    transform: Callable[[Tensor], Tensor] = _identity
    stacked: bool = False

    def value(self) -> Tensor:
        joined = torch.stack(self.views) if self.stacked else torch.cat(self.views)
        return self.transform(joined).contiguous()

    @torch.no_grad()
    def fill(self, value: Tensor) -> None:
        transformed = self.transform(value)
        parts = transformed.unbind() if self.stacked else transformed.split([len(view) for view in self.views])
        for view, part in zip(self.views, parts, strict=True):
            view.copy_(part)


def from_original(config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> Model:
    """Convert flags and weights to a language model, in float32 and eval mode.

    The layout is detected from the names. `cutoffs` may have 0 and the size of the vocabulary at its ends.

    Raises:
        UserError: The layout is unknown, an option is not supported, weights are missing or unexpected, or a shape is
            wrong.
    """
    layout = _layout(weights)
    config = {name: value for name, value in config.items() if value is not None}
    _validate_flags(config, sum(value.numel() for value in weights.values()))
    original_weights = {name: value for name, value in weights.items() if name != BUFFER}
    model = build(_description(config, original_weights, layout)).float()
    stored = _stored(model, layout)
    missing, left_over = (
        sorted(stored.keys() - original_weights.keys()),
        sorted(original_weights.keys() - stored.keys()),
    )
    if missing or left_over:
        raise UserError(
            f"these are not the weights of this Transformer-XL (missing: {_listed(missing)}; left over: "
            f"{_listed(left_over)}).",
            remedy="Give the flags that it was trained with, and its weights without the optimizer's.",
        )
    for name, target in stored.items():
        expected = tuple(target.value().shape)
        if tuple(original_weights[name].shape) != expected:
            raise UserError(f"'{name}' is {tuple(original_weights[name].shape)}, not {expected} as the config says.")
    filled = {(v.data_ptr(), v.shape): v.numel() for target in stored.values() for v in target.views}
    assert sum(filled.values()) == sum(value.numel() for value in model.values().values())
    for name, target in stored.items():
        target.fill(original_weights[name])
    return model.eval()


def to_original(model: Model, layout: Layout = "tensorflow") -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Flags and weights of the original code for a model.

    Raises:
        UserError: The layout cannot represent the model; see `from_original`.
    """
    encoder, head = model.encoder, model.head
    if not isinstance(encoder, TransformerXL) or not isinstance(head, LanguageModelHead):
        raise UserError("only a Transformer-XL language model can be written as one.")
    c, adaptive = encoder.config, isinstance(encoder.embedding, AdaptiveEmbedding)
    tied_tables = head.config.tied or (layout == "pytorch" and not adaptive)
    plain = isinstance(head.output, FullSoftmax) and not adaptive
    projected = layout == "tensorflow" or not adaptive or c.project_first == (c.div_value > 1)
    if not (tied_tables and head.config.bias and (plain or adaptive) and projected):
        remedy = (
            "It has biases on its output, whose clusters and tables are the input's; PyTorch's multiplies the first."
        )
        raise UserError(f"the {layout} code has no such model.", remedy=remedy)
    if c.layer_norm_eps != EPSILON[layout] or (layout == "tensorflow" and c.norm == "pre"):
        raise UserError(f"the {layout} code has other norms.", where="layer_norm_eps", remedy="Take the other layout.")
    heads = {"n_head": c.num_heads, "d_head": c.head_dim or c.embedding_dim // c.num_heads}
    config: dict[str, Any] = {"n_layer": c.num_layers, "d_model": c.embedding_dim, "d_embed": c.embedding_dim, **heads}
    config |= {"d_inner": c.hidden_dim, "dropout": c.hidden_dropout, "dropatt": c.attention_dropout}
    config |= {"mem_len": c.memory_length, "same_length": c.same_length, "clamp_len": c.clamp_length or -1}
    config |= {"vocab_size": c.vocab_size, "untie_r": not c.shared_biases, "pre_lnorm": c.norm == "pre"}
    if c.eval_memory_length is not None:
        config["test_mem_len"] = c.eval_memory_length
    if adaptive:
        config |= {"cutoffs": c.cutoffs, "div_val": c.div_value, "proj_same_dim": c.project_first}
        config["tie_projs"] = [False, *[head.config.tied_projections] * len(c.cutoffs)]
    return config, {name: target.value().detach().clone() for name, target in _stored(model, layout).items()}


def _validate_flags(config: Mapping[str, Any], numbers: int) -> None:
    """Raise UserError for a flag of another type, or a size above the `numbers` of all weights."""

    def is_of(kind: type, value: Any) -> bool:
        if kind is float:
            return isinstance(value, int | float) and not isinstance(value, bool)
        return isinstance(value, kind) and isinstance(value, bool) == (kind is bool)

    for kind, (what, names) in FLAGS.items():
        for name in (name for name in names if name in config):
            value = config[name]
            values = value if isinstance(value, list) and name in LISTED else [value]
            if (not values and name != "cutoffs") or not all(is_of(kind, item) for item in values):
                raise UserError(f"{value!r} is not {what}.", where=name, remedy="Correct the flag.")
            if kind is int and max(values, default=0) > numbers and name in SIZES:
                message = f"{value:,} is more than the {numbers:,} numbers of all weights."
                raise UserError(message, where=name, remedy="Give the flags that it was trained with.")


def _layout(weights: Mapping[str, Tensor]) -> Layout:
    for layout, name in TABLE_NAMES.items():
        if any(weight.startswith(name) for weight in weights):
            return layout  # type: ignore[return-value]
    raise UserError("these are not weights of the original Transformer-XL code.", remedy=f"It has {TABLE_NAMES}.")


def _description(config: Mapping[str, Any], weights: Mapping[str, Tensor], layout: Layout) -> dict[str, Any]:
    """Descriptions of encoder and head for the flags; absent flags have the defaults of the original code."""
    vocab_size, width = config.get("vocab_size", config.get("n_token")), config["d_model"]
    if config.get("d_embed", -1) not in (-1, width):
        raise UserError(
            f"embeddings of {config['d_embed']} and layers of {width}.", remedy="Only equal widths are supported."
        )
    cutoffs = [cutoff for cutoff in config.get("cutoffs", []) if cutoff not in (0, vocab_size)]
    div_value = float(config.get("div_val", 1)) if cutoffs else 1.0
    encoder = {
        "name": "transformer_xl",
        "vocab_size": vocab_size,
        "embedding_dim": width,
        "hidden_dim": config["d_inner"],
        "num_layers": config["n_layer"],
        "num_heads": config["n_head"],
        "head_dim": config["d_head"],
        "memory_length": config.get("mem_len", 0),
        "eval_memory_length": config.get("test_mem_len"),
        "same_length": config.get("same_length", False),
        "clamp_length": max(0, config.get("clamp_len", config.get("test_clamp_len", 0))),
        "norm": "pre" if config.get("pre_lnorm", False) else "post",
        "shared_biases": not config.get("untie_r", False),
        "cutoffs": cutoffs,
        "div_value": div_value,
        "project_first": div_value > 1 and (layout == "pytorch" or config.get("proj_same_dim", True)),
        "embedding_dropout": config.get("dropout", 0.1),
        "hidden_dropout": config.get("dropout", 0.1),
        "attention_dropout": config.get("dropatt", 0.0),
        "layer_norm_eps": EPSILON[layout],
    }
    head = {"name": "language_model", "vocab_size": vocab_size, "input_dim": width, "alpha": 0.0, "beta": 0.0}
    head |= {"output_dropout": config.get("dropout", 0.1), "tied": _is_tied(weights, layout, cutoffs)}
    if cutoffs:
        shares = _shared_projections(config.get("tie_projs", config.get("share_proj", False)), len(cutoffs))
        if div_value > 1 and encoder["project_first"] and shares[0]:
            raise UserError(
                "the first cluster shares its matrix.",
                where="tie_projs",
                remedy="Only an unshared matrix is supported.",
            )
        if len(set(shares[1:])) > 1:
            raise UserError("some clusters share their matrices, and others do not.", where="tie_projs")
        head |= {"output_layer": "adaptive", "tied_projections": bool(shares[1])}
    return {"encoder": encoder, "head": head}


def _shared_projections(flags: bool | Sequence[bool], clusters: int) -> list[bool]:
    """For each cluster whether it shares its matrix; a single flag, or the last of a short list, applies
    to the rest.
    """
    values = [flags] if isinstance(flags, bool) else list(flags)
    return (values + values[-1:] * (1 + clusters))[: 1 + clusters]


def _is_tied(weights: Mapping[str, Tensor], layout: Layout, cutoffs: Sequence[int]) -> bool:
    if layout == "tensorflow":
        return True
    outputs = sorted(name for name in weights if name.startswith("crit.out_layers.") and name.endswith(".weight"))
    inputs = [name.replace("crit.out_layers", "word_emb.emb_layers") for name in outputs]
    tied = all(a in weights and torch.equal(weights[a], weights[b]) for a, b in zip(inputs, outputs, strict=True))
    if not tied and cutoffs:
        raise UserError("clusters with output tables of their own.", remedy="Only a tied adaptive softmax is known.")
    return tied


def _stored(model: Model, layout: Layout) -> dict[str, Stored]:
    """Original name of every weight, and its place in the model."""
    return _of_tensorflow(model) if layout == "tensorflow" else _of_pytorch(model)


def _linear(name: str, module: nn.Linear, layout: Layout) -> dict[str, Stored]:
    if layout == "tensorflow":
        stored = {f"{name}/kernel": Stored((module.weight,), _transposed)}
        return stored | ({} if module.bias is None else {f"{name}/bias": Stored((module.bias,))})
    stored = {f"{name}.weight": Stored((module.weight,))}
    return stored | ({} if module.bias is None else {f"{name}.bias": Stored((module.bias,))})


def _of_layers(encoder: Any, layout: Layout) -> dict[str, Stored]:
    if layout == "tensorflow":
        layer, weight, bias = "transformer/layer_{}/", "LayerNorm/gamma", "LayerNorm/beta"
        linear = {"inputs": "rel_attn/qkv", "distances": "rel_attn/r", "output": "rel_attn/o"}
        widen, narrow, norms = "ff/layer_1", "ff/layer_2", ("rel_attn/", "ff/")
    else:
        layer, weight, bias = "layers.{}.", "layer_norm.weight", "layer_norm.bias"
        linear = {"inputs": "dec_attn.qkv_net", "distances": "dec_attn.r_net", "output": "dec_attn.o_net"}
        widen, narrow, norms = "pos_ff.CoreNet.0", "pos_ff.CoreNet.3", ("dec_attn.", "pos_ff.")
    stored: dict[str, Stored] = {}
    for index, block in enumerate(encoder.layers):
        prefix = layer.format(index)
        for ours, theirs in linear.items():
            stored |= _linear(prefix + theirs, getattr(block.attention, ours), layout)
        stored |= _linear(prefix + widen, block.widen, layout) | _linear(prefix + narrow, block.narrow, layout)
        for part, norm in zip(norms, (block.attention_norm, block.feed_forward_norm), strict=True):
            stored |= {prefix + part + weight: Stored((norm.weight,)), prefix + part + bias: Stored((norm.bias,))}
    return stored


def _of_tensorflow(model: Model) -> dict[str, Stored]:
    encoder: Any = model.encoder
    head: Any = model.head
    stored = _of_layers(encoder, "tensorflow")
    for name, ours in (("r_w_bias", "u"), ("r_r_bias", "v")):
        if encoder.config.shared_biases:
            stored[f"transformer/{name}"] = Stored((getattr(encoder, ours),))
        else:
            views = tuple(getattr(block.attention, ours) for block in encoder.layers)
            stored[f"transformer/{name}"] = Stored(views, stacked=True)
    below, above = "transformer/adaptive_embed/", "transformer/adaptive_softmax/"
    if not encoder.config.cutoffs:
        return stored | {
            f"{below}lookup_table": Stored((encoder.embedding.weight,)),
            f"{above}bias": Stored((head.output.bias,)),
        }
    output: AdaptiveSoftmax = head.output
    assert output.bias is not None
    assert output.cluster_bias is not None
    parts = encoder.embedding.parts()
    if encoder.config.div_value == 1:
        stored[f"{below}lookup_table"] = Stored(tuple(table for table, _ in parts))
    for i, ((table, projection), bias) in enumerate(zip(parts, output.bias.split(output.sizes), strict=True)):
        stored[f"{above}cutoff_{i}/b"] = Stored((bias,))
        if encoder.config.div_value > 1:
            stored[f"{below}cutoff_{i}/lookup_table"] = Stored((table,))
        if projection is not None:
            stored[f"{below}cutoff_{i}/proj_W"] = Stored((projection,))
            output_projection = output.first_projection if i == 0 else output.projections[i - 1]
            if output_projection is not None and output_projection is not projection:
                stored[f"{above}cutoff_{i}/proj"] = Stored((output_projection,))
    stored[f"{above}cutoff_0/cluster_W"] = Stored((output.cluster_weight,))
    stored[f"{above}cutoff_0/cluster_b"] = Stored((output.cluster_bias,))
    return stored


def _of_pytorch(model: Model) -> dict[str, Stored]:
    encoder: Any = model.encoder
    head: Any = model.head
    stored = _of_layers(encoder, "pytorch")
    for name, ours in (("r_w_bias", "u"), ("r_r_bias", "v")):
        if encoder.config.shared_biases:
            stored[name] = Stored((getattr(encoder, ours),))
        else:  # not in the original code, but in derived versions
            for index, block in enumerate(encoder.layers):
                stored[f"layers.{index}.dec_attn.{name}"] = Stored((getattr(block.attention, ours),))
    table_name, output_name = "word_emb.emb_layers.{}.weight", "crit.out_layers.{}.{}"
    if not encoder.config.cutoffs:
        return stored | {
            table_name.format(0): Stored((encoder.embedding.weight,)),
            output_name.format(0, "weight"): Stored((head.output.weight,)),
            output_name.format(0, "bias"): Stored((head.output.bias,)),
        }
    output: AdaptiveSoftmax = head.output
    assert output.bias is not None
    assert output.cluster_bias is not None
    parts = encoder.embedding.parts()
    stored["crit.cluster_weight"] = Stored((output.cluster_weight,), _reversed)
    stored["crit.cluster_bias"] = Stored((output.cluster_bias,), _reversed)
    if encoder.config.div_value == 1:
        tables = Stored(tuple(table for table, _ in parts))
        stored |= {table_name.format(0): tables, output_name.format(0, "weight"): tables}
        return stored | {output_name.format(0, "bias"): Stored((output.bias,))}
    for i, ((table, projection), bias) in enumerate(zip(parts, output.bias.split(output.sizes), strict=True)):
        stored |= {table_name.format(i): Stored((table,)), output_name.format(i, "weight"): Stored((table,))}
        stored[output_name.format(i, "bias")] = Stored((bias,))
        stored[f"word_emb.emb_projs.{i}"] = Stored((projection,), _transposed)
        output_projection = output.first_projection if i == 0 else output.projections[i - 1]
        assert output_projection is not None
        stored[f"crit.out_projs.{i}"] = Stored((output_projection,), _transposed)
    return stored


def _listed(names: Sequence[str]) -> str:
    """The first few of many names, and their number."""
    more = f", … ({len(names)} in all)" if len(names) > 8 else ""
    return (", ".join(names[:8]) + more) or "none"
