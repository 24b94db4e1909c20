"""Default recipes of models, from recipes/defaults.toml."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from textgraft.core.errors import UserError, did_you_mean
from textgraft.core.toml_text import read_toml_table
from textgraft.data.examples import TargetKind

RECIPE_FOLDERS = (Path(__file__).parents[1] / "recipes", Path(__file__).parents[2] / "recipes")
"""The folders of bundled recipes: inside an installed package, or beside it in a checkout."""
DEFAULTS = "defaults.toml"
SECTIONS = ("comparison", "models", "families", "gradual")
DEFAULT = "default"
"""The name that stands for the recommended recipe, and the recipe of families that the file does not list."""
RUN_KEY = "recommended_recipe"
"""The key of run.json with the recipe that a model's pretraining recipe recommends."""
NAMED_BY = f"recipes/{DEFAULTS} names it for"


class RecommendedRecipe(NamedTuple):
    """The name of a recipe, and the rule that recommends it."""

    recipe: str
    reason: str


def defaults_path() -> Path:
    """Return the path of defaults.toml. Raises UserError if it is missing."""
    for folder in RECIPE_FOLDERS:
        if (folder / DEFAULTS).is_file():
            return folder / DEFAULTS
    remedy = "Install textgraft again, or restore the file."
    raise UserError("the default recipes are missing.", where=str(RECIPE_FOLDERS[0] / DEFAULTS), remedy=remedy)


def default_recipes() -> dict[str, dict[str, str]]:
    """Return the sections of defaults.toml, each a mapping to names of recipes.

    Raises UserError for a file that is not TOML, for unknown sections, and for values that are not names.
    """
    path = defaults_path()
    try:
        table = read_toml_table(path)
    except ValueError as error:
        raise UserError(f"this is not a TOML file: {error}.", where=str(path)) from error
    for section, entries in table.items():
        if section not in SECTIONS:
            remedy = did_you_mean(section, SECTIONS)
            raise UserError(f"unknown section '{section}'.", where=str(path), remedy=remedy)
        for name, recipe in entries.items() if isinstance(entries, dict) else [("", entries)]:
            if not isinstance(recipe, str):
                where = f"{path}, {section}.{name}".rstrip(".")
                raise UserError(f"{recipe!r} is not the name of a recipe.", where=where, remedy="Write a name.")
    return {section: table.get(section, {}) for section in SECTIONS}


def with_bundled_recipe(run: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the run.json of the bundled model `name` with the recipe of defaults.toml in place of its own."""
    recipe = default_recipes()["models"].get(name)
    others = {key: value for key, value in run.items() if key != RUN_KEY}
    return others if recipe is None else others | {RUN_KEY: recipe}


def recommended_recipe(
    run: Mapping[str, Any], family: str, *, compares: bool = False, kind: TargetKind | None = None, bundled: str = ""
) -> RecommendedRecipe:
    """Return the recipe for a model.

    Args:
        run: its run.json, in the case of a bundled model with defaults.toml's recipe (`with_bundled_recipe`).
        family: the name of its encoder's architecture.
        compares: True for a model whose weights were trained to compare whole texts.
        kind: the kind of labels in the classification of single texts; None for any other task.
        bundled: the name of a bundled model, for the reason; empty for another.
    """
    defaults = default_recipes()
    if compares and kind in defaults["comparison"]:
        reason = f"{NAMED_BY} models that compare texts"
        return RecommendedRecipe(defaults["comparison"][kind], reason)
    if run.get(RUN_KEY):
        reason = f"{NAMED_BY} this model" if bundled else f"{RUN_KEY} in its run.json names it"
        return RecommendedRecipe(str(run[RUN_KEY]), reason)
    if family in defaults["families"]:
        return RecommendedRecipe(defaults["families"][family], f"{NAMED_BY} the architecture {family}")
    return RecommendedRecipe(DEFAULT, f"recipes/{DEFAULTS} names none for the architecture {family}")
