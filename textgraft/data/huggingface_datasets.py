"""Data sets of the Hugging Face library as rows: saved folders, and data sets in the local cache.

Nothing is downloaded: the library runs offline. It is installed with the extra `[hub]`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from textgraft.core.errors import UserError, did_you_mean

PREFIX = "hf:"
_WITHOUT = "or save the texts where it is installed (dataset.to_parquet('texts.parquet')) and name that file"


class Spec(NamedTuple):
    """Parts of hf:NAME[:config][:split][:column]; None for the only configuration, and for a guessed column."""

    name: str
    config: str | None
    split: str
    column: str | None


def is_dataset(path: Path) -> bool:
    """True for hf:… and for a folder written by `Dataset.save_to_disk` or `DatasetDict.save_to_disk`."""
    return _is_spec(path) or (path / "state.json").is_file() or (path / "dataset_dict.json").is_file()


def dataset_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Rows of a data set, numbered from 1, as {column: value}.

    Args:
        path: A saved folder, or hf:…; with a column in its name, rows hold only that one.

    Raises:
        UserError: The library is missing, the data set is not on this machine, or it lacks the configuration, split or
            column.
    """
    data = _opened(path)
    column = _parsed(path).column if _is_spec(path) else None
    if column is not None:
        names = list(data.column_names)
        if column not in names:
            raise UserError(f"there is no column '{column}'.", where=str(path), remedy=did_you_mean(column, names))
        data = data.select_columns([column])
    with _offline():
        rows = iter(data)
    number = 0
    while True:
        with _offline():
            row = next(rows, None)
        if row is None:
            return
        number += 1
        yield number, row


def class_names(path: Path) -> dict[str, list[str]]:
    """Names of the classes, in the order of their numbers, by column, of a data set or a Parquet file that was written
    from one; also of columns that are lists of classes.
    """
    if not is_dataset(path):
        return _class_names_of_parquet(path) if path.suffix == ".parquet" else {}
    with _offline():
        features = dict(_opened(path).features or {})
    names = {column: getattr(getattr(of, "feature", of), "names", None) for column, of in features.items()}
    return {column: list(of) for column, of in names.items() if of}


def _class_names_of_parquet(path: Path) -> dict[str, list[str]]:
    import duckdb

    query = "SELECT value FROM parquet_kv_metadata(?) WHERE key = 'huggingface'"
    with duckdb.connect(config={"autoinstall_known_extensions": False}) as connection:
        try:
            found = connection.execute(query, [str(path)]).fetchone()
            features = json.loads(found[0])["info"]["features"] if found else {}
        except (duckdb.Error, ValueError, KeyError, TypeError):
            return {}  # the reader of the rows says what is wrong with the file
    names = {column: (of.get("feature") or of).get("names") for column, of in features.items() if isinstance(of, dict)}
    return {column: list(of) for column, of in names.items() if of}


def dataset_files(path: Path) -> list[Path]:
    """The files of a data set, sorted. Raises UserError as `dataset_rows` does."""
    folder = path
    if _is_spec(path):
        spec = _parsed(path)
        with _as_user_errors(path), _offline() as library:
            folder = Path(library.load_dataset_builder(spec.name, spec.config).cache_dir)
    return sorted(file for file in folder.rglob("*") if file.is_file() and not file.name.endswith(".lock"))


def _is_spec(path: Path) -> bool:
    return str(path).startswith(PREFIX) and not path.exists()


def _parsed(path: Path) -> Spec:
    name, *rest = str(path).removeprefix(PREFIX).split(":")
    if not name or len(rest) > 3:
        raise UserError(
            "not the name of a data set.", where=str(path), remedy="Write hf:NAME[:config][:split][:column]."
        )
    config, split, column = [part or None for part in rest] + [None] * (3 - len(rest))
    return Spec(name, config, split or "train", column)


def _opened(path: Path) -> Any:
    if (path / "dataset_dict.json").is_file():
        parts = sorted(str(file.parent) for file in path.glob("*/state.json"))
        raise UserError("this folder holds several splits.", where=str(path), remedy=f"Name one: {', '.join(parts)}.")
    with _as_user_errors(path), _offline() as library:
        if not _is_spec(path):
            return library.load_from_disk(str(path))
        spec = _parsed(path)
        return library.load_dataset(spec.name, spec.config, split=spec.split, streaming=True)


@contextmanager
def _offline() -> Iterator[Any]:
    """The library in offline mode, which opens no socket; the process's own setting is restored afterwards."""
    try:
        library = import_module("datasets")
        constants = import_module("huggingface_hub.constants")
    except ImportError as error:
        remedy = f"Install it (pip install 'textgraft[hub]'), {_WITHOUT}."
        raise UserError("reading a Hugging Face data set needs the package 'datasets'.", remedy=remedy) from error
    modules: tuple[Any, Any] = (library.config, constants)
    before = [module.HF_HUB_OFFLINE for module in modules]
    for module in modules:
        module.HF_HUB_OFFLINE = True
    try:
        yield library
    finally:
        for module, value in zip(modules, before, strict=True):
            module.HF_HUB_OFFLINE = value


@contextmanager
def _as_user_errors(path: Path) -> Iterator[None]:
    """Convert the library's errors about `path` to UserError."""
    try:
        yield
    except UserError as error:
        raise UserError(error.message, where=error.where or str(path), remedy=error.remedy) from error
    except Exception as error:  # the library raises many types, and new ones with each version
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        remedy = "Delete it and save it again."
        if _is_spec(path):
            name = _parsed(path).name
            remedy = (
                "Nothing is fetched here: let the library fetch it first where there is a network "
                f"(python -c \"import datasets; datasets.load_dataset('{name}')\"), {_WITHOUT}."
            )
        raise UserError(f"cannot be read from this machine ({reason}).", where=str(path), remedy=remedy) from error
