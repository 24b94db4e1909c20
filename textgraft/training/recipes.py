"""Recipes: how a network is fine-tuned, and where the files lie that say so, or how one is pretrained or distilled."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from textgraft.core.errors import UserError, did_you_mean
from textgraft.training.phases import STRICT, Anneal, Phase, Stage

T = TypeVar("T")
RECIPE_FOLDERS = (Path(__file__).parents[1] / "recipes", Path(__file__).parents[2] / "recipes")
"""Where the recipes that ship are: inside an installed package, or beside it in a checkout."""
OWN = ("name", "description")
"""What a recipe says of itself, however like another it is."""


@dataclass(frozen=True)
class Recipe:
    """A published way to fine-tune: what to do with unlabelled text (`adapt`) and what with labels."""

    name: str
    description: str
    source: str
    finetune: Stage
    adapt: Stage = field(default_factory=Stage)

    __pydantic_config__: ClassVar[Any] = STRICT

    def __post_init__(self) -> None:
        if self.finetune.batch_size < 2:
            raise UserError("finetune.batch_size is 1.", remedy="Batch normalisation needs 2 texts or more in a batch.")
        self.adapt.refuse_for_classifiers("adapt")


def recipe_names(kind: str = "") -> list[str]:
    """The names of the recipes that ship with textgraft, sorted; `kind` "pretrain" for those of language models."""
    return sorted({path.stem for folder in RECIPE_FOLDERS for path in (folder / kind).glob("*.toml")})


def find_recipe(name: str, kind: str = "") -> Path:
    """The file of the recipe `name`, which is one that ships (see `recipe_names`) or a path to a .toml file.

    Raises UserError for a name or path that does not exist.
    """
    if name.endswith(".toml"):
        if not Path(name).is_file():
            raise UserError("there is no such recipe file.", where=name, remedy="Check the path.")
        return Path(name)
    for folder in RECIPE_FOLDERS:
        if (folder / kind / f"{name}.toml").is_file():
            return folder / kind / f"{name}.toml"
    raise UserError(f"unknown recipe '{name}'.", remedy=did_you_mean(name, recipe_names(kind)))


def load_recipe(name: str) -> Recipe:
    """Read the recipe `name` (see `find_recipe`); unknown keys and wrong values raise UserError."""
    return read_toml(find_recipe(name), Recipe)


def read_toml(path: Path, kind: type[T], folder: str = "") -> T:
    """The dataclass `kind` from a TOML file; unknown keys and wrong values raise UserError with their place.

    A file that begins with `like = "NAME"` says only where it differs from that recipe, which is found as
    `find_recipe(NAME, folder)` finds it, or, being a .toml file, from where this one lies. Tables are laid over its
    tables, all else replaces what it has, lists of phases too. Its name and description are never taken.
    """
    from pydantic import TypeAdapter, ValidationError

    table = _table(path, folder, ())
    try:
        # By way of JSON, where pydantic's strict mode takes a list for a tuple, and is lax in nothing else.
        return TypeAdapter(kind).validate_json(json.dumps(table, default=str))
    except ValidationError as error:
        raise _explained(error, path, kind) from error


def _table(path: Path, folder: str, above: tuple[Path, ...]) -> dict[str, Any]:
    """What the file says, laid over what it is like; `above` are the files that are like this one."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"this is not a TOML file: {error}.", where=str(path)) from error
    like, above = table.pop("like", None), (*above, path.resolve())
    if like is None:
        return table
    where, remedy = f"{path}, like", "Name a recipe that ships, or another .toml file."
    if not isinstance(like, str):
        raise UserError(f"this is {like!r}, and not a recipe's name.", where=where, remedy=remedy)
    try:
        base = find_recipe(str(path.parent / like) if like.endswith(".toml") else like, folder)
    except UserError as error:
        raise UserError(error.message, where=where, remedy=error.remedy) from error
    if base.resolve() in above:
        raise UserError("this recipe is like itself.", where=where, remedy=remedy)
    below = {key: value for key, value in _table(base, folder, above).items() if key not in OWN}
    return _laid_over(below, table)


def _laid_over(below: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """`table`, and what only `below` has."""
    pairs = {key: (below.get(key), value) for key, value in table.items()}
    inside = {k: _laid_over(b, v) if isinstance(b, dict) and isinstance(v, dict) else v for k, (b, v) in pairs.items()}
    return {**below, **inside}


def _explained(error: Any, path: Path, kind: Any) -> UserError:
    """Pydantic's first complaint in our own words: which key of which phase, and what to write."""
    first = error.errors()[0]
    loc = first["loc"]
    place = ".".join(str(part + 1) if isinstance(part, int) else part for part in loc)
    where = f"{path}, {place}" if place else str(path)
    inner = first.get("ctx", {}).get("error")
    if isinstance(inner, UserError):
        return UserError(inner.message, where=where, remedy=inner.remedy)
    if first["type"] == "unexpected_keyword_argument":
        inside: Any = Anneal if "anneal" in loc else Phase if "phases" in loc else Stage
        table = kind if len(loc) == 1 else inside
        known = [f.name for f in fields(table)]
        return UserError(f"unknown key '{loc[-1]}'.", where=where, remedy=did_you_mean(loc[-1], known))
    if first["type"] == "missing":
        return UserError(f"the key '{loc[-1]}' is missing.", where=where, remedy="Add it.")
    return UserError(f"{first['msg']}, not {first['input']!r}.", where=where, remedy="Correct the value.")
