"""Folders of the `transformers` library: config.json, and weights in one file or in shards.

Nothing here opens a socket: folders are on disk already. Each family has a module with `from_huggingface(config,
weights)` and `to_huggingface(model)`.
"""

from __future__ import annotations

import json
import math
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

from textgraft.core.errors import UserError
from textgraft.core.memory import validate_memory
from textgraft.models.hub_cache import WEIGHTS
from textgraft.models.model import Model
from textgraft.models.model_folder import to_json, validate_new_path, write_folder
from textgraft.text.tokenizer import Tokenizer

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
    "roberta": "textgraft.conversion.roberta",
    "xlm-roberta": "textgraft.conversion.roberta",
    "camembert": "textgraft.conversion.roberta",
    "mpnet": "textgraft.conversion.mpnet",
}
BRIDGE = "textgraft.conversion.bridge"
"""The module for every other model_type, which runs through the `transformers` library."""
# name in model.ENCODERS: module
WRITERS = {
    "bert": "textgraft.conversion.bert",
    "gpt": "textgraft.conversion.gpt",
    "modernbert": "textgraft.conversion.modernbert",
    "llama": "textgraft.conversion.llama",
    "roberta": "textgraft.conversion.roberta",
    "mpnet": "textgraft.conversion.mpnet",
    "transformers": BRIDGE,
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
        return load_bridged(folder)[0]
    try:
        model: Model = import_module(READERS[kind]).from_huggingface(config, read_weights(folder))
    except UserError as error:
        where = str(folder / error.where) if error.where in ("", "config.json") else error.where
        raise UserError(error.message, where=where, remedy=error.remedy) from error
    return model.eval()


def load_bridged(folder: Path) -> tuple[Model, Tokenizer]:
    """Load the model and tokenizer of a folder whose model_type is not in READERS, through the `transformers` library.

    Raises:
        UserError: As `load`; the library is missing, or the model needs code of its own.
    """
    config = read_config(folder)
    validate_type(config, str(folder / "config.json"))
    model, tokenizer = import_module(BRIDGE).from_folder(folder, config, read_weights(folder))
    return model, tokenizer


def validate_type(config: Mapping[str, Any], where: str) -> None:
    """Raise UserError where the architecture of a config.json can be read neither here nor through `transformers`."""
    kind = config.get("model_type")
    if kind is None:
        message = "this config.json does not name its architecture (model_type)."
        raise UserError(message, where=where, remedy=f"Architectures of textgraft itself: {', '.join(READERS)}.")
    if kind not in READERS:
        import_module(BRIDGE).validate(config, where)


def save(
    model: Model,
    folder: Path | str,
    *,
    overwrite: bool = False,
    others: Mapping[str, bytes] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Path:
    """Write a folder for the `transformers` library.

    Args:
        model: The model.
        folder: Folder to write.
        overwrite: Replace an existing folder.
        others: Further files, such as a tokenizer's.
        settings: Further entries of config.json, such as ids of special tokens.

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
    config |= settings or {}
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
        UserError: There are none, a file is missing or damaged, a pickle contains more than tensors, or they do not fit
            into the memory.
    """
    path = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    if path is None:
        remedy = f"It should hold one of: {', '.join(WEIGHTS)}."
        raise UserError("there are no weights in this folder.", where=str(folder), remedy=remedy)
    names = _shards(path) if path.suffix == ".json" else {}
    files = sorted({folder / name for name in names.values()}) or [path]
    validate_memory(sum(map(loading_bytes, files)), str(folder))
    values: dict[str, Tensor] = {}
    for file in files:
        read = read_tensors(file)
        for name in list(read):  # one after the other, so that no weight is there in both formats for long
            value = read.pop(name)
            values[name] = value.float() if value.is_floating_point() else value
    absent = sorted(names.keys() - values.keys())
    if absent:
        message = f"the shards lack {len(absent)} of the index's weights: {absent[:8]}."
        raise UserError(message, where=str(path), remedy="Fetch the folder again.")
    return values


def loading_bytes(file: Path) -> int:
    """Bytes of memory that loading a file of weights takes, read off its header; 0 for a damaged one.

    These are a model in float32 and, where the file is in another format, the weights converted to it.
    """
    try:
        if file.suffix != ".safetensors":
            return 2 * file.stat().st_size  # the format is not known without reading it all: float32 takes least
        with file.open("rb") as stream:
            header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
        tensors = [value for name, value in header.items() if name != "__metadata__"]
        return sum(math.prod(t["shape"]) * (4 if t["dtype"] == "F32" else 8) for t in tensors)
    except (OSError, ValueError, OverflowError, MemoryError, AttributeError, KeyError, TypeError):
        return 0  # reading the file says what is wrong


def _shards(path: Path) -> dict[str, str]:
    """Files of an index, by weight. Raises UserError for a damaged index, and where a file is missing or elsewhere."""
    content = read_json(path)
    shards = content.get("weight_map") if isinstance(content, dict) else None
    again = "Fetch the folder again."
    if not isinstance(shards, dict) or not shards or not all(isinstance(name, str) for name in shards.values()):
        raise UserError("this index has no weight_map of file names.", where=str(path), remedy=again)
    names = sorted(set(shards.values()))
    if outside := [name for name in names if Path(name).name != name]:
        message = f"the index names '{outside[0]}', which is outside this folder."
        remedy = "Do not use this folder, or fetch it again from a source that you trust."
        raise UserError(message, where=str(path), remedy=remedy)
    if missing := [name for name in names if not (path.parent / name).is_file()]:
        message = f"files with weights are missing ({len(missing)} of {len(names)}): {', '.join(missing[:8])}."
        raise UserError(message, where=str(path.parent), remedy=again)
    return shards


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
    except (ValueError, RecursionError) as error:
        raise UserError(f"damaged ({error}).", where=str(path), remedy="Fetch the file again.") from error
