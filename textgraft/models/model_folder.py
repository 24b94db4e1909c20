"""Model folders of all kinds: finding, hashing, writing and reading them.

config.json has the SHA-256 of every other file, so that a missing, truncated or altered file is an error that names it,
and not a wrong prediction. A folder contains no code.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

from textgraft.core.errors import UserError, did_you_mean
from textgraft.core.files import cannot_write, write_atomically
from textgraft.core.json_text import encode, parse
from textgraft.data.examples import InputKind
from textgraft.models import catalogue, shared_files
from textgraft.models.upgrade import upgraded_config, upgraded_run

FORMAT = 1
MODEL_FOLDERS = (Path(__file__).parents[1] / "pretrained", Path(__file__).parents[2] / "pretrained")
"""The folders of bundled models: inside an installed package, or beside it in a checkout."""
TRANSFORMERS, TENSORFLOW, ELMO = "hf:", "tf:", "elmo:"
"""Prefixes of other libraries' checkpoints: transformers, TensorFlow, ELMo."""
FLAIR = "flair:"
"""Prefix of Flair's files, which only `convert` opens, since they are pickles (conversion.legacy.flair)."""
RUN_VALUES: Mapping[str, Callable[[Any], bool]] = {
    "max_tokens": lambda value: type(value) is int and value > 0,
    "temperature": lambda value: value is None or (isinstance(value, int | float) and 0 < value < 1e300),
    "reads": lambda value: value in get_args(InputKind),
    "name": lambda value: isinstance(value, str),
}
"""Tests of the values of run.json that predictions depend on."""
T = TypeVar("T")
RESTORE = "Restore the folder from its source, or create it again."


def config(description: Mapping[str, Any], files: Mapping[str, bytes]) -> bytes:
    """The content of config.json: `description`, the SHA-256 of each of `files`, and its own."""
    return config_of(description, {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())})


def config_of(description: Mapping[str, Any], hashes: Mapping[str, str]) -> bytes:
    """`config` for files whose SHA-256 has been computed, such as one too large for memory."""
    content = {"format": FORMAT, **description, "files": dict(hashes)}
    return to_json(content | {"sha256": _digest(content)})


def validate_new_path(folder: Path, overwrite: bool | None = False) -> None:
    """Raise UserError if a path exists and may not be replaced.

    Args:
        folder: The path of a new model folder.
        overwrite: True if a model folder may be replaced; None: False, for commands without --overwrite.
    """
    if folder.exists() and not overwrite:
        remedy = "Name another, or pass overwrite=True to replace it."
        remedy = "Name another." if overwrite is None else remedy
        raise UserError("this path exists already.", where=str(folder), remedy=remedy)
    if folder.exists() and not (folder / "config.json").exists():
        raise UserError(
            "this is not a model folder, so it is not overwritten.", where=str(folder), remedy="Name another path."
        )


def write_folder(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Write a folder with `files` by name, atomically by a rename.

    Raises:
        UserError: It cannot be written; an earlier folder is then unchanged.
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
    """Rename `beside` to `folder`; an existing one is renamed first, and restored if that fails."""
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
    """The folder of a model.

    Args:
        name: Its path, or the name of a bundled model.

    Raises:
        UserError: There is no such model.
    """
    for folder in (Path(name), *(base / str(name) for base in MODEL_FOLDERS)):
        if (folder / "config.json").is_file():
            return folder
    if str(name).startswith(FLAIR):
        remedy = f"Convert it first: textgraft convert {name} --out FOLDER; then name FOLDER."
        raise UserError("Flair's files are pickles, which only convert opens.", where=str(name), remedy=remedy)
    if is_known(name):
        message = f"'{name}' is a checkpoint of the transformers library, which is not expected here."
        raise UserError(message, remedy="Name a textgraft folder or a bundled model.")
    if Path(name).is_dir():
        raise UserError(
            "there is no config.json here, so this is not a model folder.",
            where=str(name),
            remedy="Name the folder that textgraft wrote, or restore the missing file.",
        )
    published = [entry.name for entry in catalogue.CATALOGUE]
    installed = [entry.name for entry in catalogue.CATALOGUE if catalogue.in_package(entry)]
    close = [one for one in difflib.get_close_matches(str(name), published, n=1) if one not in installed]
    remedy = did_you_mean(str(name), [*names(), *installed, *close])
    remedy = f"{remedy} Give the path of a model folder, or a name of `textgraft models`."
    raise UserError(f"no model '{name}'.", remedy=remedy.strip())


def bundled_name(folder: Path) -> str:
    """The name of the bundled model in `folder`; empty for any other model."""
    return folder.name if folder.resolve().parent in [base.resolve() for base in MODEL_FOLDERS] else ""


def is_known(name: str | Path) -> bool:
    """True for a name of the catalogue of published models; a path and a bundled model of that name come first."""
    return catalogue.find(str(name)) is not None and not Path(name).exists() and str(name) not in names()


def is_checkpoint_name(name: str | Path) -> bool:
    """True for the name of another library's checkpoint (conversion.hub), in a package or not.

    Raises UserError for other types.
    """
    if not isinstance(name, str | os.PathLike):
        remedy = "Give the path of a model folder, or the name of a bundled model."
        message = f"this is of type {type(name).__name__}, not the name of a model."
        raise UserError(message, where="model", remedy=remedy)
    return str(name).startswith((TRANSFORMERS, TENSORFLOW, ELMO)) or is_known(name)


def names() -> list[str]:
    """Names of the bundled models."""
    return sorted({config.parent.name for base in MODEL_FOLDERS for config in base.glob("*/config.json")})


def read_config(folder: Path) -> dict[str, Any]:
    """Read config.json and verify its hash and format version.

    Raises:
        UserError: It is damaged, altered or of a later textgraft.
    """
    path = folder / "config.json"
    try:
        config = dict(parse(path.read_text(encoding="utf-8")))
        is_transformers = "format" not in config and "model_type" in config
        version = FORMAT if is_transformers else config["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"damaged ({type(error).__name__}: {error}).", where=str(path), remedy=RESTORE) from error
    if is_transformers:
        message = "this is a checkpoint of the transformers library."
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
    """Read the files of a model folder, each verified by its SHA-256; a member of an ensemble has those that it shares.

    Raises:
        UserError: A file is missing or differs.
    """
    files: dict[str, bytes] = {}
    for name, expected in config["files"].items():
        path = folder / name
        try:
            files[name] = path.read_bytes()
        except OSError as error:
            raise UserError(f"missing or unreadable ({error.strerror}).", where=str(path), remedy=RESTORE) from error
        if hashlib.sha256(files[name]).hexdigest() != expected:
            raise UserError("truncated or altered since it was saved.", where=str(path), remedy=RESTORE)
    if shared_files.SHARED not in config:
        return files
    try:
        return shared_files.with_shared(files, config)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        path = folder / "config.json"
        raise UserError(f"damaged (shared parts: {error}).", where=str(path), remedy=RESTORE) from error


def run_record(files: Mapping[str, bytes]) -> dict[str, Any]:
    """The content of run.json, with the current names of its keys. Raises UserError if it is damaged."""
    try:
        run = parse(files["run.json"])
        if not isinstance(run, dict):
            raise ValueError("no object")
        run = upgraded_run(run)
    except ValueError as error:
        raise UserError(f"damaged ({error}).", where="run.json", remedy=RESTORE) from error
    wrong = next((name for name, is_valid in RUN_VALUES.items() if name in run and not is_valid(run[name])), None)
    if wrong is not None:
        message = f"damaged ({wrong!r} is {str(run[wrong])[:40]!r})."
        raise UserError(message, where="run.json", remedy=RESTORE)
    return run


def settings_from(kind: type[T], values: Any, name: str) -> T:
    """A dataclass of settings from an object of run.json. Raises UserError for unknown names or values of other types.

    Args:
        kind: The dataclass, whose defaults show the types of its fields.
        values: The object.
        name: Its name in run.json.
    """
    defaults = kind()
    try:
        if not isinstance(values, dict):
            raise TypeError(f"{str(values)[:40]!r} is no object")
        wrong = [key for key, value in values.items() if type(value) not in _types_like(getattr(defaults, key))]
    except (AttributeError, TypeError) as error:
        raise UserError(f"damaged ('{name}': {error}).", where="run.json", remedy=RESTORE) from error
    if wrong:
        raise UserError(f"damaged ('{wrong[0]}' in '{name}').", where="run.json", remedy=RESTORE)
    return kind(**values)


def _types_like(value: Any) -> tuple[type, ...]:
    return (int, float) if isinstance(value, float) else (type(value),)


def to_json(value: Any) -> bytes:
    """JSON in the format of a model folder's files, the same bytes for the same value."""
    return encode(value, indent=1, sort_keys=True) + b"\n"


def models_of(model: str | Path) -> list[str]:
    """The names or folders in MODEL or MODEL+MODEL; an existing path may contain a +.

    Raises:
        UserError: A name is missing or repeated.
    """
    whole = str(model)
    names = [whole] if Path(whole).exists() else [name.strip() for name in whole.split("+")]
    if not all(names):
        raise UserError("a model's name is missing.", where=whole, remedy="Write MODEL, or MODEL+MODEL.")
    if len(set(names)) < len(names):
        raise UserError("a model is named twice.", where=whole, remedy="Name each once.")
    return names
