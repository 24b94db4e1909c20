"""Recipes: TOML files with the phases and settings of a training (fine-tuning, pretraining, distillation)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from textgraft.core.errors import UserError, did_you_mean
from textgraft.core.toml_text import read_toml_table
from textgraft.models.default_recipes import DEFAULTS, RECIPE_FOLDERS
from textgraft.training.phases import STRICT, Anneal, Phase, Stage

T = TypeVar("T")
NOT_INHERITED = ("name", "description")
"""The keys that a recipe does not take from the one that it is `like`."""


@dataclass(frozen=True)
class Recipe:
    """A published way to fine-tune.

    Attributes:
        name: Of the recipe.
        description: A sentence.
        source: The paper.
        finetune: Training on labels.
        adapt: Continued pretraining on unlabelled text; no phases: none.
    """

    name: str
    description: str
    source: str
    finetune: Stage
    adapt: Stage = field(default_factory=Stage)

    __pydantic_config__: ClassVar[Any] = STRICT

    def __post_init__(self) -> None:
        if self.finetune.batch_size < 2:
            raise UserError("finetune.batch_size is 1.", remedy="Give 2 or more: batch normalisation needs them.")
        self.adapt.validate_no_classifier_settings("adapt")


def recipe_names(kind: str = "") -> list[str]:
    """Names of the bundled recipes, sorted; `kind` is the folder below recipes/, such as "pretrain"."""
    paths = (path for folder in RECIPE_FOLDERS for path in (folder / kind).glob("*.toml"))
    return sorted({path.stem for path in paths if path.name != DEFAULTS})


LONGEST_NAME = 200
"""Characters of a recipe's name; files of longer names do not exist."""


def find_recipe(name: str, kind: str = "") -> Path:
    """The file of a recipe.

    Args:
        name: A bundled recipe (see `recipe_names`), or the path of a .toml file.
        kind: The folder below recipes/, such as "pretrain".

    Raises:
        UserError: There is no such recipe.
    """
    if name.endswith(".toml"):
        if not Path(name).is_file():
            raise UserError("there is no such recipe file.", where=name, remedy="Check the path.")
        return Path(name)
    for folder in RECIPE_FOLDERS if f"{name}.toml" != DEFAULTS and len(name) < LONGEST_NAME else ():
        if (folder / kind / f"{name}.toml").is_file():
            return folder / kind / f"{name}.toml"
    raise UserError(f"unknown recipe '{name[:LONGEST_NAME]}'.", remedy=did_you_mean(name, recipe_names(kind)))


def load_recipe(name: str) -> Recipe:
    """Read the recipe `name` (see `find_recipe`).

    Raises:
        UserError: It does not exist, or has unknown keys or wrong values.
    """
    return read_toml(find_recipe(name), Recipe)


def read_toml(path: Path, kind: type[T], folder: str = "") -> T:
    """Read a dataclass from a TOML file.

    A file that begins with `like = "NAME"` contains only the differences from that recipe, which is
    `find_recipe(NAME, folder)` or a .toml file relative to this one. Tables are merged into its tables, all other
    values, lists of phases too, replace its values. Its name and description are not inherited.

    Args:
        path: The file.
        kind: The dataclass.
        folder: The folder below recipes/ of the recipe that it is `like`.

    Raises:
        UserError: The file is not TOML, or has unknown keys or wrong values; `where` names the key.
    """
    return as_kind(_table(path, folder, ()), kind, str(path))


def as_kind(table: Mapping[str, Any], kind: type[T], where: str) -> T:
    """A dataclass of plain values, as TOML has them; `where` is their place, for errors.

    Raises:
        UserError: They have unknown keys or wrong values.
    """
    from pydantic import TypeAdapter, ValidationError

    try:
        # By way of JSON, where pydantic's strict mode takes a list for a tuple, and is lax in nothing else.
        return TypeAdapter(kind).validate_json(json.dumps(table, default=str))
    except ValidationError as error:
        raise _explained(error, where, kind) from error


def _table(path: Path, folder: str, above: tuple[Path, ...]) -> dict[str, Any]:
    """The file's table, merged into that of the recipe it is `like`; `above` are the files that inherit from it."""
    try:
        table = read_toml_table(path)
    except ValueError as error:
        raise UserError(f"this is not a TOML file: {error}.", where=str(path)) from error
    like, above = table.pop("like", None), (*above, path.resolve())
    if like is None:
        return table
    where, remedy = f"{path}, like", "Name a bundled recipe, or another .toml file."
    if not isinstance(like, str):
        raise UserError(f"{like!r} is not the name of a recipe.", where=where, remedy=remedy)
    try:
        base = find_recipe(str(path.parent / like) if like.endswith(".toml") else like, folder)
    except UserError as error:
        raise UserError(error.message, where=where, remedy=error.remedy) from error
    if base.resolve() in above:
        raise UserError("this recipe inherits from itself.", where=where, remedy=remedy)
    below = {key: value for key, value in _table(base, folder, above).items() if key not in NOT_INHERITED}
    return _merged(below, table)


def _merged(below: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """`table`, and the entries that only `below` has, in nested tables too."""
    pairs = {key: (below.get(key), value) for key, value in table.items()}
    nested = {k: _merged(b, v) if isinstance(b, dict) and isinstance(v, dict) else v for k, (b, v) in pairs.items()}
    return {**below, **nested}


def _explained(error: Any, where: str, kind: Any) -> UserError:
    """Pydantic's first error as a UserError that names the key and its phase."""
    first = error.errors()[0]
    loc = first["loc"]
    place = ".".join(str(part + 1) if isinstance(part, int) else part for part in loc)
    where = f"{where}, {place}" if place else where
    inner = first.get("ctx", {}).get("error")
    if isinstance(inner, UserError):
        return UserError(inner.message, where=where, remedy=inner.remedy)
    if first["type"] == "unexpected_keyword_argument":
        nested: Any = Anneal if "anneal" in loc else Phase if "phases" in loc else Stage
        table = kind if len(loc) == 1 else nested
        names = [f.name for f in fields(table)]
        return UserError(f"unknown key '{loc[-1]}'.", where=where, remedy=did_you_mean(loc[-1], names))
    if first["type"] == "missing":
        return UserError(f"the key '{loc[-1]}' is missing.", where=where, remedy="Add it.")
    return UserError(f"{first['msg']}, not {first['input']!r}.", where=where, remedy="Correct the value.")
