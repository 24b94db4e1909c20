"""Folders of the `transformers` library: config.json, and weights in one file or in shards.

Nothing here opens a socket: folders are on disk already. Each family has a module with `from_huggingface(config,
weights)` and `to_huggingface(model)`.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as to_safetensors
from torch import Tensor

from textgraft.core.errors import UserError, did_you_mean
from textgraft.models.hub_cache import WEIGHTS
from textgraft.models.model import Model
from textgraft.models.model_folder import to_json, validate_new_path, write_folder

# model_type in config.json: module
READERS = {
    "bert": "textgraft.conversion.bert",
    "distilbert": "textgraft.conversion.bert",
    "gpt2": "textgraft.conversion.gpt",
    "openai-gpt": "textgraft.conversion.gpt",
    "modernbert": "textgraft.conversion.modernbert",
    "llama": "textgraft.conversion.llama",
    "mistral": "textgraft.conversion.llama",
    "qwen2": "textgraft.conversion.llama",
    "qwen3": "textgraft.conversion.llama",
    "smollm3": "textgraft.conversion.llama",
}
# name in model.ENCODERS: module
WRITERS = {
    "bert": "textgraft.conversion.bert",
    "gpt": "textgraft.conversion.gpt",
    "modernbert": "textgraft.conversion.modernbert",
    "llama": "textgraft.conversion.llama",
}


def load(folder: Path | str) -> Model:
    """Load the model in a folder of the `transformers` library, in float32 and eval mode.

    Raises:
        UserError: The model_type is not supported, a file is missing or damaged, or weights do not match config.json.
    """
    folder = Path(folder)
    config = read_config(folder)
    kind = str(config.get("model_type"))
    if kind not in READERS:
        where = str(folder / "config.json")
        raise UserError(f"model_type '{kind}' is not known.", where=where, remedy=did_you_mean(kind, READERS))
    try:
        model: Model = import_module(READERS[kind]).from_huggingface(config, read_weights(folder))
    except UserError as error:
        where = str(folder / error.where) if error.where in ("", "config.json") else error.where
        raise UserError(error.message, where=where, remedy=error.remedy) from error
    return model.eval()


def save(
    model: Model,
    folder: Path | str,
    *,
    overwrite: bool = False,
    others: Mapping[str, bytes] | None = None,
) -> Path:
    """Write a folder for the `transformers` library; `others` are further files, such as a tokenizer's.

    Raises:
        UserError: The library does not have the family or head, or the folder exists (without `overwrite`) or cannot be
            written.
    """
    folder = Path(folder)
    name = model.describe()["encoder"]["name"]
    if name not in WRITERS:
        remedy = f"Families that can be: {', '.join(WRITERS)}."
        raise UserError(f"a model of the family '{name}' cannot be written for transformers.", remedy=remedy)
    if model.layer_aggregation is not None:
        message = f"transformers has no head with the layer aggregation '{model.head.config.layer_aggregation}'."
        raise UserError(message, remedy="Make the model without a layer aggregation.")
    config, weights = import_module(WRITERS[name]).to_huggingface(model)
    validate_new_path(folder, overwrite)
    data = to_safetensors({n: w.contiguous().cpu() for n, w in weights.items()}, metadata={"format": "pt"})
    return write_folder(folder, {**(others or {}), "config.json": to_json(config), "model.safetensors": data})


def read_config(folder: Path) -> dict[str, Any]:
    """Load config.json. Raises UserError if it is missing or not a JSON object."""
    path = folder / "config.json"
    config = read_json(path)
    if not isinstance(config, dict):
        raise UserError("this is not a JSON object.", where=str(path), remedy="Restore the file from where it came.")
    return config


def read_weights(folder: Path) -> dict[str, Tensor]:
    """All weights of the folder by name, in one file or in shards; floating-point weights in float32.

    Raises:
        UserError: There are none, a file is damaged, or a pickle contains more than tensors.
    """
    path = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    if path is None:
        remedy = f"It should hold one of: {', '.join(WEIGHTS)}."
        raise UserError("there are no weights in this folder.", where=str(folder), remedy=remedy)
    if path.suffix != ".json":
        values = read_tensors(path)
    else:
        content = read_json(path)
        shards = content.get("weight_map") if isinstance(content, dict) else None
        if not isinstance(shards, dict) or not all(isinstance(name, str) for name in shards.values()):
            raise UserError("this index has no weight_map of file names.", where=str(path))
        values = {}
        for name in sorted(set(shards.values())):
            if Path(name).name != name:
                raise UserError(f"the index names '{name}', which is outside this folder.", where=str(path))
            values |= read_tensors(folder / name)
        absent = sorted(shards.keys() - values.keys())
        if absent:
            raise UserError(f"the shards lack {len(absent)} of the index's weights: {absent[:8]}.", where=str(path))
    return {name: value.float() if value.is_floating_point() else value for name, value in values.items()}


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of one file. Raises UserError where it is missing, damaged, or a pickle of more than tensors."""
    again = "Fetch the file again."
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        values = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise UserError(f"missing or unreadable ({error.strerror}).", where=str(path), remedy=again) from error
    except pickle.UnpicklingError as error:
        remedy = "It is not opened, since it could run code. Look for the model as safetensors."
        raise UserError("damaged, or more than weights is in this file.", where=str(path), remedy=remedy) from error
    except (SafetensorError, RuntimeError, EOFError, ValueError) as error:
        raise UserError(f"damaged ({error}).", where=str(path), remedy=again) from error
    if not isinstance(values, dict) or not all(isinstance(value, Tensor) for value in values.values()):
        raise UserError("this file does not contain weights by name.", where=str(path))
    return values


def read_json(path: Path) -> Any:
    """The content of a JSON file. Raises UserError where it is missing or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        remedy = "Use a folder written by the transformers library."
        raise UserError(f"missing or unreadable ({error.strerror}).", where=str(path), remedy=remedy) from error
    except ValueError as error:
        raise UserError(f"damaged ({error}).", where=str(path), remedy="Fetch the file again.") from error
