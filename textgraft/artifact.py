"""An artifact is a folder that anyone can read: config.json, model.safetensors, tokenizer.json, labels.json, run.json.

README.md in it is the model card. config.json lists every other file's sha256, so that a missing, truncated or altered
file is an error with a name, not a wrong prediction. Nothing in it is code.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as to_safetensors
from torch import Tensor

from textgraft.data.labels import Labels
from textgraft.errors import UserError, did_you_mean
from textgraft.files import cannot_write, write_atomically
from textgraft.model import Model, build
from textgraft.report.card import model_card
from textgraft.text.tokenizer import Tokenizer

FORMAT = 1
MODEL_FOLDERS = (Path(__file__).parent / "pretrained", Path(__file__).parents[1] / "pretrained")
"""Where the models that ship are: inside an installed package, or beside it in a checkout."""


@dataclass
class Artifact:
    """A model with all it needs to be used again; `run` is what run.json says of how it came to be."""

    model: Model
    tokenizer: Tokenizer
    labels: Labels | None = None
    run: dict[str, Any] = field(default_factory=dict)


def save(artifact: Artifact, folder: Path | str, *, half: bool = False, overwrite: bool = False) -> Path:
    """Write the artifact as a folder, all of it or nothing; `half` stores the weights as float16.

    Raises UserError where `folder` exists (without `overwrite`) or cannot be written.
    """
    folder = Path(folder)
    refuse_existing(folder, overwrite)
    values = artifact.model.values()
    if half:
        values = {n: v.half() if v.is_floating_point() else v for n, v in values.items()}
    files: dict[str, bytes] = {
        "model.safetensors": to_safetensors({n: v.detach().contiguous() for n, v in values.items()}),
        "tokenizer.json": artifact.tokenizer.to_json().encode(),
        "run.json": _json(artifact.run),
    }
    if artifact.labels is not None:
        files["labels.json"] = artifact.labels.to_json().encode()
    return write_folder(folder, artifact.model.describe(), files, model_card(artifact.run))


def refuse_existing(folder: Path, overwrite: bool = False) -> None:
    """Raises UserError if `folder` is there already and may not be replaced."""
    if folder.exists() and not overwrite:
        raise UserError(
            "this path exists already.", where=str(folder), remedy="Name another, or pass --overwrite to replace it."
        )
    if folder.exists() and not (folder / "config.json").exists():
        raise UserError("this is not a model folder, so it is not overwritten.", where=str(folder))


def write_folder(folder: Path, description: Mapping[str, Any], files: Mapping[str, bytes], card: str) -> Path:
    """A folder with `files`, their hashes in config.json and the card, put in place by one rename."""
    beside = folder.with_name(folder.name + ".part")
    shutil.rmtree(beside, ignore_errors=True)
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())}
    try:
        for name, data in files.items():
            write_atomically(beside / name, data)
        write_atomically(beside / "config.json", _json({"format": FORMAT, **description, "files": hashes}))
        write_atomically(beside / "README.md", card.encode())
        if folder.exists():
            old = folder.with_name(folder.name + ".old")
            shutil.rmtree(old, ignore_errors=True)
            os.replace(folder, old)
            os.replace(beside, folder)
            shutil.rmtree(old, ignore_errors=True)
        else:
            os.replace(beside, folder)
    except OSError as error:
        raise cannot_write(folder, error) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return folder


def find(name: str | Path) -> Path:
    """The folder of a model given by path, or by the name of one that ships.

    Raises UserError, with the names there are, if there is none.
    """
    for folder in (Path(name), *(base / str(name) for base in MODEL_FOLDERS)):
        if (folder / "config.json").is_file():
            return folder
    if Path(name).is_dir():
        raise UserError("there is no config.json here, so this is not a model folder.", where=str(name))
    raise UserError(f"no model '{name}'.", remedy=did_you_mean(str(name), names()) + " Or give the path of a folder.")


def names() -> list[str]:
    """The models that ship, by name."""
    return sorted({config.parent.name for base in MODEL_FOLDERS for config in base.glob("*/config.json")})


def read_config(folder: Path) -> dict[str, Any]:
    """config.json, checked for its format version. Raises UserError if it is damaged or from a later textgraft."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        version = config["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"damaged ({type(error).__name__}: {error}).", where=str(path), remedy=_RESTORE) from error
    if version != FORMAT:
        remedy = "Install a newer textgraft." if isinstance(version, int) and version > FORMAT else _RESTORE
        raise UserError(
            f"this is format {version}, and this textgraft reads format {FORMAT}.", where=str(path), remedy=remedy
        )
    return dict(config)


_RESTORE = "Restore the folder from where it came, or make it again."


def read_files(folder: Path, config: Mapping[str, Any]) -> dict[str, bytes]:
    """The artifact's files, each checked against its sha256. Raises UserError naming the one that differs."""
    files: dict[str, bytes] = {}
    for name, expected in config["files"].items():
        path = folder / name
        try:
            files[name] = path.read_bytes()
        except OSError as error:
            raise UserError(f"missing or unreadable ({error.strerror}).", where=str(path), remedy=_RESTORE) from error
        if hashlib.sha256(files[name]).hexdigest() != expected:
            raise UserError("truncated or altered since it was saved.", where=str(path), remedy=_RESTORE)
    return files


def load(name: str | Path) -> Artifact:
    """The artifact at a path, or one that ships by its name; weights in float32, the model in eval mode.

    Raises UserError for a missing, truncated, altered or future file, and lists weights that do not fit.
    """
    folder = find(name)
    config = read_config(folder)
    files = read_files(folder, config)
    model = build({"encoder": config["encoder"], "head": config["head"]})
    weights = folder / "model.safetensors"
    try:
        fill(model, load_file(weights), where=str(weights))
    except SafetensorError as error:
        raise UserError(f"damaged ({error}).", where=str(weights), remedy=_RESTORE) from error
    labels = Labels.from_json(files["labels.json"].decode(), where=str(folder / "labels.json")) if "labels.json" in files else None
    tokenizer = Tokenizer.from_json(files["tokenizer.json"].decode(), where=str(folder / "tokenizer.json"))
    return Artifact(model.eval(), tokenizer, labels, json.loads(files["run.json"]))


def fill(model: Model, values: Mapping[str, Tensor], *, where: str) -> None:
    """Copy saved values into the model; every name and shape must match.

    Raises UserError listing what is missing, left over, or of another shape.
    """
    own = model.values()
    wrong = [f"missing: {n}" for n in own.keys() - values.keys()]
    wrong += [f"left over: {n}" for n in values.keys() - own.keys()]
    wrong += [
        f"{n} is {tuple(values[n].shape)}, not {tuple(own[n].shape)}"
        for n in own.keys() & values.keys()
        if own[n].shape != values[n].shape
    ]
    if wrong:
        raise UserError("the weights do not fit the config (" + "; ".join(sorted(wrong)[:8]) + ").", where=where)
    with torch.no_grad():
        for name, target in own.items():
            target.copy_(values[name])


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True) + "\n").encode()
