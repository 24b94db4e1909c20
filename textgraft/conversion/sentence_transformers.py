"""Folders of the sentence-transformers library: how a text becomes one vector, read and written.

modules.json lists the steps. The first is the encoder, in the folder itself; then pooling, dense layers, and a scaling
to length 1. sentence_bert_config.json has the maximum length, config_sentence_transformers.json the prompts. A step
that is none of these is refused by name: without it the vectors would be others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors.torch import save as to_safetensors
from torch import Tensor

from textgraft.conversion.huggingface import WEIGHTS, read_json, read_tensors
from textgraft.core.errors import UserError
from textgraft.models.model_folder import to_json
from textgraft.models.sentence_embedding import KEY, SentenceEmbedding, sentence_embedding
from textgraft.nn.dense import ACTIVATIONS, DenseConfig
from textgraft.nn.pooling import JOIN

MODULES, PROMPTS = "modules.json", "config_sentence_transformers.json"
LIBRARY = "sentence_transformers."
"""The beginning of the library's own classes; other classes are code that comes with a model."""
TRANSFORMER, POOLING, DENSE, NORMALIZE, DROPOUT = "Transformer", "Pooling", "Dense", "Normalize", "Dropout"
MODES = {
    "cls": "first",
    "max": "max",
    "mean": "mean",
    "mean_sqrt_len_tokens": "mean_sqrt",
    "weightedmean": "weighted_mean",
    "lasttoken": "last",
}
"""nn.pooling's names for the library's, in the order in which it concatenates several."""
OLD_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""Switches of earlier versions, in the same order."""
CLASSES = {
    "identity": "torch.nn.modules.linear.Identity",
    "gelu": "torch.nn.modules.activation.GELU",
    "relu": "torch.nn.modules.activation.ReLU",
    "sigmoid": "torch.nn.modules.activation.Sigmoid",
    "silu": "torch.nn.modules.activation.SiLU",
    "tanh": "torch.nn.modules.activation.Tanh",
}
"""torch's classes for nn.dense.ACTIVATIONS."""
CONCAT = ("last", "max", "mean")
"""The parts of nn.pooling.concat."""
NO_LIMIT = 1_000_000
"""Longer maximum lengths stand for none."""


def read(folder: Path, width: int) -> SentenceEmbedding | None:
    """How the model in `folder`, with an encoder of this width, represents a text; None where it does not say.

    Raises:
        UserError: A step or setting is unknown, or a file is missing or damaged.
    """
    if not (folder / MODULES).is_file():
        lone = folder / "1_Pooling" / "config.json"
        return SentenceEmbedding(**_pooling(lone)) if lone.is_file() else None
    steps = _steps(folder / MODULES)
    settings: dict[str, Any] = {}
    shapes: list[DenseConfig] = []
    values: dict[str, Tensor] = {}
    for index, (kind, path) in enumerate(steps):
        where = folder / path / "config.json"
        if kind == TRANSFORMER and index == 0 and not path:
            continue
        if kind == POOLING and index == 1:
            settings |= _pooling(where)
        elif kind == DENSE and "pooling" in settings and "normalize" not in settings:
            shapes.append(_dense(where))
            begin = f"{KEY}.dense.{len(shapes) - 1}."
            tensors = _weights(folder / path)
            values |= {begin + name.removeprefix("linear."): value for name, value in tensors.items()}
        elif kind == NORMALIZE and "pooling" in settings and "normalize" not in settings:
            settings["normalize"] = True
        elif kind != DROPOUT or "pooling" not in settings:
            message = f"the step '{kind}' cannot stand at place {index + 1} of {len(steps)}."
            remedy = "What is read: Transformer (in this folder), Pooling, any Dense, Normalize."
            raise UserError(message, where=str(folder / MODULES), remedy=remedy)
    if "pooling" not in settings:
        return None
    described = {**settings, **_lengths(folder), **_prompts(folder), "dense": [asdict(shape) for shape in shapes]}
    try:
        return sentence_embedding(described, values, width)
    except UserError as error:
        raise UserError(error.message, where=str(folder), remedy=error.remedy) from error


def _steps(path: Path) -> list[tuple[str, str]]:
    """The class of each step without its module, and its folder. Raises UserError for other code than the library's."""
    steps = read_json(path)
    try:
        listed = [(str(step["type"]), str(step["path"])) for step in sorted(steps, key=lambda step: step["idx"])]
    except (TypeError, KeyError) as error:
        raise UserError(f"this is not a list of steps ({error}).", where=str(path)) from error
    for name, folder in listed:
        kind = name.rpartition(".")[2]
        if not name.startswith(LIBRARY):
            remedy = "It is not run. Take a model that needs no code of its own."
            raise UserError(f"the step '{name}' is code that comes with the model.", where=str(path), remedy=remedy)
        if kind not in (TRANSFORMER, POOLING, DENSE, NORMALIZE, DROPOUT):
            known = ", ".join((TRANSFORMER, POOLING, DENSE, NORMALIZE, DROPOUT))
            raise UserError(f"the step '{kind}' is not known.", where=str(path), remedy=f"Known: {known}.")
        if Path(folder).name != folder:
            raise UserError(f"the step '{kind}' is outside this folder ('{folder}').", where=str(path))
    return [(name.rpartition(".")[2], folder) for name, folder in listed]


def _pooling(path: Path) -> dict[str, Any]:
    settings = _object(path)
    if "pooling_mode" in settings:
        given = settings["pooling_mode"]
        modes = [given] if isinstance(given, str) else given
    else:
        modes = [mode for key, mode in OLD_MODES.items() if settings.get(key)]
        unknown = [
            key for key, on in settings.items() if on and key.startswith("pooling_mode") and key not in OLD_MODES
        ]
        modes = [*modes, *unknown] or ["mean"]
    if not isinstance(modes, list) or not modes or not all(mode in MODES for mode in modes):
        raise UserError(f"pooling {modes!r} is not known.", where=str(path), remedy=f"Known: {', '.join(MODES)}.")
    return {
        "pooling": JOIN.join(MODES[mode] for mode in modes),
        "pools_prompt": bool(settings.get("include_prompt", True)),
    }


def _dense(path: Path) -> DenseConfig:
    settings = _object(path)
    name = str(settings.get("activation_function", CLASSES["tanh"]))
    activation = next(
        (ours for ours, library in CLASSES.items() if library.rpartition(".")[2] == name.rpartition(".")[2]), ""
    )
    if not name.startswith("torch.") or not activation:
        raise UserError(
            f"the activation '{name}' is not known.", where=str(path), remedy=f"Known: {', '.join(ACTIVATIONS)}."
        )
    source = settings.get("module_input_name") or "sentence_embedding"
    if settings.get("use_residual") or {source, settings.get("module_output_name") or source} != {"sentence_embedding"}:
        raise UserError("this layer is not one from a text's vector to the next.", where=str(path))
    if not isinstance(settings.get("out_features"), int):
        raise UserError("the width of this layer (out_features) is missing.", where=str(path))
    return DenseConfig(settings["out_features"], bool(settings.get("bias", True)), activation)


def _weights(folder: Path) -> Mapping[str, Tensor]:
    single = [folder / name for name in WEIGHTS if not name.endswith(".json") and (folder / name).is_file()]
    if not single:
        raise UserError("the weights of this layer are missing.", where=str(folder), remedy="Fetch the folder again.")
    return read_tensors(single[0])


def _lengths(folder: Path) -> dict[str, Any]:
    """Maximum length and lower-casing; the length may be the tokenizer's, which later versions of the library set."""
    paths = sorted(folder.glob("sentence_*_config.json"))
    settings = _object(paths[0]) if paths else {}
    length = settings.get("max_seq_length")
    if length is None and (folder / "tokenizer_config.json").is_file():
        length = _object(folder / "tokenizer_config.json").get("model_max_length")
    known = isinstance(length, int) and 0 < length < NO_LIMIT
    return {"max_length": length if known else None, "lowercase": bool(settings.get("do_lower_case"))}


def _prompts(folder: Path) -> dict[str, Any]:
    settings = _object(folder / PROMPTS) if (folder / PROMPTS).is_file() else {}
    prompts = {str(name): str(text) for name, text in (settings.get("prompts") or {}).items() if text}
    default = settings.get("default_prompt_name")
    return {"prompts": prompts, "default_prompt": default if default in prompts else None}


def _object(path: Path) -> dict[str, Any]:
    value = read_json(path)
    if not isinstance(value, dict):
        raise UserError("this is not a JSON object.", where=str(path), remedy="Fetch the file again.")
    return value


def files(embedding: SentenceEmbedding, width: int, length: int | None) -> dict[str, bytes]:
    """The files that make a folder of the transformers library one of sentence-transformers.

    Args:
        embedding: How a text becomes a vector.
        width: Width of the encoder.
        length: Maximum number of tokens of the encoder.
    """
    pooling = _pooling_settings(embedding.pooling) | {
        "word_embedding_dimension": width,
        "include_prompt": embedding.pools_prompt,
    }
    steps = [("", "models.Transformer"), ("1_Pooling", "models.Pooling")]
    written = {"1_Pooling/config.json": to_json(pooling)}
    for layer in embedding.dense:
        path = f"{len(steps)}_{DENSE}"
        shape = layer.config
        settings = {"in_features": layer.in_features, "out_features": shape.output_dim, "bias": shape.bias}
        written[f"{path}/config.json"] = to_json(settings | {"activation_function": CLASSES[shape.activation]})
        tensors = {f"linear.{name}": value.detach().contiguous() for name, value in layer.state_dict().items()}
        written[f"{path}/model.safetensors"] = to_safetensors(tensors, metadata={"format": "pt"})
        steps.append((path, f"models.{DENSE}"))
    if embedding.normalize:
        steps.append((f"{len(steps)}_{NORMALIZE}", f"models.{NORMALIZE}"))
    listed = [{"idx": i, "name": str(i), "path": p, "type": LIBRARY + kind} for i, (p, kind) in enumerate(steps)]
    prompts = {"prompts": dict(embedding.prompts), "default_prompt_name": embedding.default_prompt}
    lengths = {"max_seq_length": embedding.limit(length), "do_lower_case": embedding.lowercase}
    return written | {
        MODULES: to_json(listed),
        PROMPTS: to_json(prompts),
        "sentence_bert_config.json": to_json(lengths),
    }


def _pooling_settings(pooling: str) -> dict[str, Any]:
    """The switches of all versions of the library; the list of later ones where only it can say the order."""
    names = {ours: library for library, ours in MODES.items()}
    parts = [part for name in pooling.split(JOIN) for part in (CONCAT if name == "concat" else (name,))]
    modes = [names[part] for part in parts]
    switches = {key: mode in modes for key, mode in OLD_MODES.items()}
    in_order = [mode for mode in MODES if mode in modes] == modes
    return switches if in_order else {"pooling_mode": modes}
