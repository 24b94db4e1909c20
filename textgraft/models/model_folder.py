"""The folder that every model lies in, whatever it is: how it is found, vouched for, written whole and read again.

config.json lists every other file's sha256, so that a missing, truncated or altered file is an error with a name, not a
wrong prediction. Nothing in it is code.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from textgraft.core.errors import UserError, did_you_mean
from textgraft.core.files import cannot_write, write_atomically
from textgraft.models.upgrade import upgraded_config, upgraded_run

FORMAT = 1
MODEL_FOLDERS = (Path(__file__).parents[1] / "pretrained", Path(__file__).parents[2] / "pretrained")
"""Where the models that ship are: inside an installed package, or beside it in a checkout."""
TRANSFORMERS, TENSORFLOW, ELMO = "hf:", "tf:", "elmo:"
"""How the names of other programs' models begin: the transformers library's, TensorFlow checkpoints, ELMo's files."""
FLAIR = "flair:"
"""How Flair's files are named, which only `convert` opens, since they are pickles (conversion.legacy.flair)."""
RESTORE = "Restore the folder from where it came, or make it again."


def config(description: Mapping[str, Any], files: Mapping[str, bytes]) -> bytes:
    """config.json: what `description` says, the sha256 of each of `files`, and its own."""
    return config_of(description, {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())})


def config_of(description: Mapping[str, Any], hashes: Mapping[str, str]) -> bytes:
    """The same of files whose sha256 is known already, such as one too large for memory."""
    content = {"format": FORMAT, **description, "files": dict(hashes)}
    return to_json(content | {"sha256": _digest(content)})


def validate_new_path(folder: Path, overwrite: bool | None = False) -> None:
    """Raises UserError if `folder` is there already and may not be replaced; None: nor could it be."""
    if folder.exists() and not overwrite:
        remedy = "Name another." if overwrite is None else "Name another, or pass --overwrite to replace it."
        raise UserError("this path exists already.", where=str(folder), remedy=remedy)
    if folder.exists() and not (folder / "config.json").exists():
        raise UserError(
            "this is not a model folder, so it is not overwritten.", where=str(folder), remedy="Name another path."
        )


def write_folder(folder: Path, files: Mapping[str, bytes]) -> Path:
    """A folder with `files`, put in place by one rename.

    Raises UserError where it cannot be written; a folder that was there before is then there still.
    """
    beside = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(beside, ignore_errors=True)
    try:
        for name, data in files.items():
            write_atomically(beside / name, data)
        put_in_place(beside, folder)
    except UserError as error:
        raise UserError(error.message, where=str(folder), remedy=error.remedy) from error
    except OSError as error:
        raise cannot_write(folder, error) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return folder


def put_in_place(beside: Path, folder: Path) -> None:
    """Rename `beside` to `folder`, which is set aside first if it is there, and put back if that fails."""
    old = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    replaces = folder.exists()
    if replaces:
        os.replace(folder, old)
    try:
        os.replace(beside, folder)
    except OSError:
        if replaces:
            os.replace(old, folder)
        raise
    shutil.rmtree(old, ignore_errors=True)


def find(name: str | Path) -> Path:
    """The folder of a model given by path, or by the name of one that ships.

    Raises UserError, with the names there are, if there is none.
    """
    for folder in (Path(name), *(base / str(name) for base in MODEL_FOLDERS)):
        if (folder / "config.json").is_file():
            return folder
    if str(name).startswith(FLAIR):
        remedy = f"Convert it first: textgraft convert {name} --out FOLDER; then name FOLDER."
        raise UserError("a file of Flair's is a pickle, which only convert opens.", where=str(name), remedy=remedy)
    if Path(name).is_dir():
        raise UserError(
            "there is no config.json here, so this is not a model folder.",
            where=str(name),
            remedy="Name the folder that textgraft wrote, or restore what is missing.",
        )
    remedy = f"{did_you_mean(str(name), names())} Give the path of a model's folder, or the name of one that ships."
    raise UserError(f"no model '{name}'.", remedy=remedy.strip())


def bundled_name(folder: Path) -> str:
    """The name of the bundled model in `folder`; empty for any other model."""
    return folder.name if folder.resolve().parent in [base.resolve() for base in MODEL_FOLDERS] else ""


def is_checkpoint_name(name: str | Path) -> bool:
    """Whether a name is of another library's checkpoint (conversion.hub). Raises UserError for what is no name."""
    if not isinstance(name, str | os.PathLike):
        remedy = "Give the path of a model's folder, or the name of one that ships."
        message = f"this is of type {type(name).__name__}, not the name of a model."
        raise UserError(message, where="model", remedy=remedy)
    return str(name).startswith((TRANSFORMERS, TENSORFLOW, ELMO))


def names() -> list[str]:
    """The models that ship, by name."""
    return sorted({config.parent.name for base in MODEL_FOLDERS for config in base.glob("*/config.json")})


def read_config(folder: Path) -> dict[str, Any]:
    """config.json, checked against its own hash and for its format version.

    Raises UserError if it is damaged, altered or from a later textgraft.
    """
    path = folder / "config.json"
    try:
        config = dict(json.loads(path.read_text(encoding="utf-8")))
        theirs = "format" not in config and "model_type" in config
        version = FORMAT if theirs else config["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"damaged ({type(error).__name__}: {error}).", where=str(path), remedy=RESTORE) from error
    if theirs:
        message = "this is a model of the transformers library."
        raise UserError(message, where=str(folder), remedy=f"Name it {TRANSFORMERS}{folder}.")
    if version != FORMAT:
        remedy = "Install a newer textgraft." if isinstance(version, int) and version > FORMAT else RESTORE
        raise UserError(
            f"this is format {version}, and this textgraft reads format {FORMAT}.", where=str(path), remedy=remedy
        )
    expected = config.pop("sha256", None)
    if expected is not None and expected != _digest(config):
        raise UserError("altered since it was saved.", where=str(path), remedy=RESTORE)
    if not isinstance(config.get("files"), dict):
        raise UserError("damaged (the list of files is missing).", where=str(path), remedy=RESTORE)
    return upgraded_config(config)


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(to_json(content)).hexdigest()


def read_files(folder: Path, config: Mapping[str, Any]) -> dict[str, bytes]:
    """The artifact's files, each checked against its sha256. Raises UserError naming the one that differs."""
    files: dict[str, bytes] = {}
    for name, expected in config["files"].items():
        path = folder / name
        try:
            files[name] = path.read_bytes()
        except OSError as error:
            raise UserError(f"missing or unreadable ({error.strerror}).", where=str(path), remedy=RESTORE) from error
        if hashlib.sha256(files[name]).hexdigest() != expected:
            raise UserError("truncated or altered since it was saved.", where=str(path), remedy=RESTORE)
    return files


def run_record(files: Mapping[str, bytes]) -> dict[str, Any]:
    """run.json of a folder's files: how the model came to be."""
    return upgraded_run(json.loads(files["run.json"]))


def to_json(value: Any) -> bytes:
    """JSON as every artifact's files have it: the same value, the same bytes."""
    return (json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True) + "\n").encode()


def models_of(named: str | Path) -> list[str]:
    """The names or folders in MODEL or MODEL+MODEL; a path that is there may have a + in it.

    Raises UserError where a name is missing, or comes twice.
    """
    whole = str(named)
    names = [whole] if Path(whole).exists() else [name.strip() for name in whole.split("+")]
    if not all(names):
        raise UserError("a model's name is missing.", where=whole, remedy="Write MODEL, or MODEL+MODEL.")
    if len(set(names)) < len(names):
        raise UserError("a model comes twice.", where=whole, remedy="Name each once.")
    return names
