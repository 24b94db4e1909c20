"""Language-model heads of the `transformers` library, where they are made of the parts of textgraft's.

A head that is assembled here is compared with the library's on random tokens before it is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from textgraft.data.batch import Batch
from textgraft.data.streams.permutation import PREDICTED
from textgraft.encoders.transformers_bridge import (
    PERMUTED,
    TransformersBridge,
    TransformersBridgeConfig,
    inputs_of,
    library,
    library_config,
)
from textgraft.heads.masked_language_model import MaskedLanguageModelConfig, MaskedLanguageModelHead
from textgraft.heads.replaced_tokens import ReplacedTokensConfig, ReplacedTokensHead
from textgraft.models.model import Model

DENSE = (
    ("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm"),
    ("cls.predictions.transform.dense", "cls.predictions.transform.layer_norm"),
    ("cls.predictions.dense", "cls.predictions.LayerNorm"),
    ("lm_head.dense", "lm_head.layer_norm"),
    ("lm_head.dense", "lm_head.norm"),
    ("predictions.dense", "predictions.LayerNorm"),
    ("generator_predictions.dense", "generator_predictions.LayerNorm"),
    ("lm_predictions.lm_head.dense", "lm_predictions.lm_head.LayerNorm"),
)
"""Dense layer and layer norm of a head, by the library's names."""
TABLES = (
    *("cls.predictions.decoder", "lm_head.decoder", "predictions.decoder", "generator_lm_head", "pred_layer.proj"),
    *("lm_head", "lm_loss", "lm_predictions.lm_head", "decoder"),
)
"""Output layers by the library's names."""
BIASES = ("cls.predictions.bias", "lm_head.bias", "predictions.bias", "lm_predictions.lm_head.bias")
"""Biases of output layers that are kept apart from these."""
DETECTOR = "discriminator_predictions."
"""Beginning of the names of the weights of ELECTRA's discriminator."""
PREFIXES = (
    *("cls.predictions.", "lm_head.", "predictions.", "generator_", "lm_predictions.", "pred_layer.", "lm_loss."),
    DETECTOR,
)
"""Beginnings of the names of a head's weights."""
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
    "relu": "relu",
}
"""Activations by the library's names."""
DIFFERENCE = 1e-3
"""Largest accepted difference of log probabilities."""


@dataclass(frozen=True)
class Found:
    """A head's configuration, and the library's names for each weight, by textgraft's; a bias may have none."""

    config: MaskedLanguageModelConfig | ReplacedTokensConfig
    names: dict[str, tuple[str, ...]]

    @property
    def description(self) -> dict[str, Any]:
        """The head as in a model's description."""
        name = "masked_language_model" if isinstance(self.config, MaskedLanguageModelConfig) else "replaced_tokens"
        return {"name": name, **asdict(self.config)}

    def weights(self, library_model: nn.Module) -> dict[str, Tensor]:
        """The values in the library's model, by textgraft's names."""
        values = library_model.state_dict()
        return {ours: values[theirs[0]] for ours, theirs in self.names.items() if theirs}


def present(weights: Iterable[str]) -> bool:
    """True if there are weights of such a head."""
    return any(name.startswith(PREFIXES) for name in weights)


def class_of(config: Any, weights: Iterable[str] = ()) -> Any:
    """The library's class of a network with the language-model head of these weights; None if it has none."""
    transformers = library()
    if any(name.startswith(DETECTOR) for name in weights):
        return transformers.MODEL_FOR_PRETRAINING_MAPPING.get(type(config), None)
    permuted = config.model_type in PERMUTED
    classes = transformers.MODEL_FOR_CAUSAL_LM_MAPPING if permuted else transformers.MODEL_FOR_MASKED_LM_MAPPING
    return classes.get(type(config), None)


def head_of(masked: Any, config: Any, encoder: TransformersBridgeConfig) -> Found | None:
    """The head of the library's language model; None if it is made of other parts."""
    if hasattr(masked, DETECTOR[:-1]):
        return _detector(config, encoder)
    modules: Mapping[str, nn.Module] = dict(masked.named_modules())
    values = masked.state_dict()
    table = next((n for n in TABLES if getattr(modules.get(n), "weight", None) is not None), None)
    weight = modules[table].weight if table is not None else masked.get_input_embeddings().weight
    if not isinstance(weight, Tensor) or weight.ndim != 2 or len(weight) != encoder.vocab_size:
        return None
    biases = [*([f"{table}.bias"] if table is not None else []), *BIASES]
    names = {"output.bias": tuple(name for name in biases if name in values)}
    tied = weight is masked.get_input_embeddings().weight
    if not tied:
        names["output.weight"] = (f"{table}.weight",)
    width = weight.shape[1]
    pair = next((pair for pair in DENSE if all(name in modules for name in pair)), None)
    if pair is None:
        settings: dict[str, Any] = {"transform": False}
        fits = width == encoder.embedding_dim
    else:
        dense, norm = (modules[name] for name in pair)
        activation = ACTIVATIONS.get(str(getattr(config, "hidden_act", "gelu")), "gelu")
        settings = {"activation": activation, "layer_norm_eps": float(getattr(norm, "eps", 1e-12))}
        names |= {
            f"{ours}.{part}": (f"{name}.{part}",)
            for ours, name in zip(("dense", "norm"), pair, strict=True)
            for part in ("weight", "bias")
            if f"{name}.{part}" in values
        }
        shape = tuple(getattr(dense, "weight", torch.empty(0)).shape)
        fits = shape == (width, encoder.embedding_dim) and len(names) == 5 + (not tied)
    if not fits:
        return None
    if encoder.model_type in PERMUTED:
        settings["masked"] = PREDICTED
    table_dim = None if width == encoder.embedding_dim else width
    made = MaskedLanguageModelConfig(encoder.vocab_size, encoder.embedding_dim, tied, table_dim=table_dim, **settings)
    return Found(made, names)


def _detector(config: Any, encoder: TransformersBridgeConfig) -> Found:
    """ELECTRA's discriminator."""
    layers = {"dense": "dense", "output": "dense_prediction"}
    names: dict[str, tuple[str, ...]] = {
        f"{ours}.{part}": (f"{DETECTOR}{theirs}.{part}",)
        for ours, theirs in layers.items()
        for part in ("weight", "bias")
    }
    activation = ACTIVATIONS.get(str(getattr(config, "hidden_act", "gelu")), "gelu")
    return Found(ReplacedTokensConfig(encoder.embedding_dim, activation), names)


@torch.no_grad()
def to_library(model: Model) -> Any:
    """The library's model of an encoder with its language-model head; None where it has no such head."""
    encoder, head = model.encoder, model.head
    assert isinstance(encoder, TransformersBridge)
    config = library_config(encoder.config.model_type, {**encoder.config.checkpoint, **encoder.config.dropouts})
    detects = isinstance(head, ReplacedTokensHead)
    cls = class_of(config, [DETECTOR] if detects else ())
    if cls is None or not isinstance(head, MaskedLanguageModelHead | ReplacedTokensHead):
        return None
    with torch.random.fork_rng(devices=[]):
        masked = cls(config).float().eval()
    found = head_of(masked, config, encoder.config)
    if found is None:
        return None
    if not _alike(found.config, head.config):
        return None
    getattr(masked, masked.base_model_prefix).load_state_dict(encoder.module.state_dict())
    parameters = dict(masked.named_parameters(remove_duplicate=False))
    ours = dict(head.named_parameters())
    for name, theirs in found.names.items():
        for one in theirs:
            parameters[one].copy_(ours[name])
    return masked if agrees(model, masked) else None


def _alike(found: Any, trained: Any) -> bool:
    """True for two configurations of a head that differ in how it is trained alone."""
    if isinstance(found, MaskedLanguageModelConfig) and isinstance(trained, MaskedLanguageModelConfig):
        found = replace(found, masked=trained.masked, whole_words=trained.whole_words)
    if isinstance(found, ReplacedTokensConfig) and isinstance(trained, ReplacedTokensConfig):
        found = replace(found, replaced=trained.replaced)
    same: bool = found == trained
    return same


@torch.no_grad()
def agrees(model: Model, masked: Any) -> bool:
    """True if the model's log probabilities, or a detector's logits, are the library's on random tokens."""
    encoder = model.encoder
    assert isinstance(encoder, TransformersBridge)
    ids = (torch.arange(16) * 7 % min(encoder.config.vocab_size, 1000)).view(1, -1)
    batch = Batch(ids, torch.ones_like(ids, dtype=torch.bool))
    expected = masked(**inputs_of(encoder.config, batch), return_dict=True).logits
    if isinstance(model.head, MaskedLanguageModelHead):
        expected = expected.log_softmax(dim=-1)
    found = model.eval()(batch)
    return found.shape == expected.shape and float((found - expected).abs().max()) < DIFFERENCE
