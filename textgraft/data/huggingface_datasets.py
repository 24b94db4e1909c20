"""Data sets of the Hugging Face library as rows: folders that it saved, and what its cache on this machine holds.

Nothing is fetched: the library works offline while it is asked. It comes with the extra `[hub]`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from textgraft.core.errors import UserError, did_you_mean

PREFIX = "hf:"
_WITHOUT = "or save the texts where it is installed (dataset.to_parquet('texts.parquet')) and name that file"


class Spec(NamedTuple):
    """The parts of hf:NAME[:config][:split][:column]; None: the only configuration, and a guessed column."""

    name: str
    config: str | None
    split: str
    column: str | None


def is_dataset(path: Path) -> bool:
    """Whether `path` is hf:… or a folder that `Dataset.save_to_disk` or `DatasetDict.save_to_disk` wrote."""
    return _is_spec(path) or (path / "state.json").is_file() or (path / "dataset_dict.json").is_file()


def dataset_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each row, numbered from 1, as {column: value}; only the column that the name says, if it says one.

    Raises UserError where the library is missing, for a data set that is not on this machine, and for a
    configuration, split or column that it does not have.
    """
    found = _opened(path)
    column = _parsed(path).column if _is_spec(path) else None
    if column is not None:
        names = list(found.column_names)
        if column not in names:
            raise UserError(f"there is no column '{column}'.", where=str(path), remedy=did_you_mean(column, names))
        found = found.select_columns([column])
    with _offline():
        rows = iter(found)
    number = 0
    while True:
        with _offline():
            row = next(rows, None)
        if row is None:
            return
        number += 1
        yield number, row


def dataset_files(path: Path) -> list[Path]:
    """The files that hold the data set, sorted. Raises UserError as `dataset_rows` does."""
    folder = path
    if _is_spec(path):
        spec = _parsed(path)
        with _told(path), _offline() as library:
            folder = Path(library.load_dataset_builder(spec.name, spec.config).cache_dir)
    return sorted(file for file in folder.rglob("*") if file.is_file() and not file.name.endswith(".lock"))


def _is_spec(path: Path) -> bool:
    return str(path).startswith(PREFIX) and not path.exists()


def _parsed(path: Path) -> Spec:
    name, *rest = str(path).removeprefix(PREFIX).split(":")
    if not name or len(rest) > 3:
        raise UserError("this names no data set.", where=str(path), remedy="Write hf:NAME[:config][:split][:column].")
    config, split, column = [part or None for part in rest] + [None] * (3 - len(rest))
    return Spec(name, config, split or "train", column)


def _opened(path: Path) -> Any:
    if (path / "dataset_dict.json").is_file():
        parts = sorted(str(file.parent) for file in path.glob("*/state.json"))
        raise UserError("this folder holds several splits.", where=str(path), remedy=f"Name one: {', '.join(parts)}.")
    with _told(path), _offline() as library:
        if not _is_spec(path):
            return library.load_from_disk(str(path))
        spec = _parsed(path)
        return library.load_dataset(spec.name, spec.config, split=spec.split, streaming=True)


@contextmanager
def _offline() -> Iterator[Any]:
    """The library, which opens no socket inside; what the process wants of it otherwise is as before afterwards."""
    try:
        library = import_module("datasets")
        constants = import_module("huggingface_hub.constants")
    except ImportError as error:
        remedy = f"Install it (pip install 'textgraft[hub]'), {_WITHOUT}."
        raise UserError("reading a Hugging Face data set needs the package 'datasets'.", remedy=remedy) from error
    places: tuple[Any, Any] = (library.config, constants)
    before = [place.HF_HUB_OFFLINE for place in places]
    for place in places:
        place.HF_HUB_OFFLINE = True
    try:
        yield library
    finally:
        for place, value in zip(places, before, strict=True):
            place.HF_HUB_OFFLINE = value


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Whatever the library says against `path` as a UserError."""
    try:
        yield
    except UserError as error:
        raise UserError(error.message, where=error.where or str(path), remedy=error.remedy) from error
    except Exception as error:  # of many kinds, and new ones with every version
        said = (str(error).strip() or type(error).__name__).splitlines()[0]
        remedy = "Delete it and save it again."
        if _is_spec(path):
            name = _parsed(path).name
            remedy = (
                "Nothing is fetched here: let the library fetch it first where there is a network "
                f"(python -c \"import datasets; datasets.load_dataset('{name}')\"), {_WITHOUT}."
            )
        raise UserError(f"cannot be read from this machine ({said}).", where=str(path), remedy=remedy) from error
