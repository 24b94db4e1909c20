"""textgraft recipes: the bundled recipes, and the recipe that each model is trained by when none is named."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_json, print_table
from textgraft.core.errors import UserError, did_you_mean
from textgraft.core.json_text import parse

if TYPE_CHECKING:
    from textgraft.models.default_recipes import RecommendedRecipe

SINGLE_LABEL, OTHER_TASKS = "for texts with one label", "for other tasks"


def recipes(
    model: Annotated[
        str | None,
        typer.Argument(help="A model, by name, or a folder: print only its recipe. Or a recipe: print what uses it."),
    ] = None,
    as_json: o.AsJson = False,
) -> None:
    """List the bundled recipes, for --recipe, and the default recipe of each model.

    The templates for `textgraft prompt --template` are in the list. The file recipes/defaults.toml names the default
    recipes: edit it to change them.
    """
    from textgraft.models.default_recipes import defaults_path

    rows = list(_bundled_recipes())
    if model is not None:
        named = [row for row in rows if row["name"] == model]
        if named and not _is_model(model):
            _print_recipes(named, [row for row in _of_bundled_models() if row["recipe"] == model], as_json)
        else:
            _print_defaults(list(_of_model(model, [row["name"] for row in rows])), as_json)
        return
    defaults = list(_of_bundled_models())
    if as_json:
        print_json({"recipes": rows, "defaults": defaults, "defaults_file": defaults_path()})
        return
    print_table(["recipe", "for", "description"], [[r["name"], ", ".join(r["stages"]), r["description"]] for r in rows])
    print("Without --recipe:")
    _print_defaults(defaults, as_json=False)
    print(f"These lines follow from {defaults_path()}; `textgraft recipes MODEL` shows that of any model.")


def _bundled_recipes() -> Iterator[dict[str, Any]]:
    """Yield the name, stages and description of each bundled recipe, and its source where it has one."""
    from textgraft.distillation.options import load_distil_recipe
    from textgraft.generation.prompting import load_template
    from textgraft.tasks.language_modeling.pretrain import load_pretrain_recipe
    from textgraft.tasks.translation.train import RECIPES, load_translation_recipe
    from textgraft.training.recipes import load_recipe, recipe_names

    for recipe in map(load_recipe, recipe_names()):
        stages = [stage for stage in ("adapt", "finetune") if getattr(recipe, stage).phases]
        yield {"name": recipe.name, "stages": stages, "description": recipe.description, "source": recipe.source}
    loaders: Iterable[tuple[str, str, Any]] = (
        ("pretrain", "pretrain", load_pretrain_recipe),
        ("distil", "distil", load_distil_recipe),
        (RECIPES, "cove train", load_translation_recipe),
        ("prompts", "prompt", load_template),
    )
    for folder, stage, load in loaders:
        for named in map(load, recipe_names(folder)):
            source = {"source": named.source} if hasattr(named, "source") else {}
            yield {"name": named.name, "stages": [stage], "description": named.description, **source}


def _is_model(name: str) -> bool:
    """True for the name of a bundled model or of another library's checkpoint, and for a path that exists."""
    from textgraft.models.model_folder import is_checkpoint_name, names

    return is_checkpoint_name(name) or name in names() or Path(name).exists()


def _of_model(name: str, recipes: Sequence[str]) -> Iterator[dict[str, str]]:
    """Yield the default recipe of a model; two where it depends on the labels.

    Raises:
        UserError: This is no network, or neither a model nor one of `recipes`.
    """
    from textgraft.models.default_recipes import recommended_recipe
    from textgraft.models.loading import load_network
    from textgraft.models.model_folder import bundled_name, find, is_checkpoint_name, names

    if not _is_model(name):
        remedy = did_you_mean(name, [*names(), *recipes])
        raise UserError(f"no model and no recipe '{name}'.", remedy=f"{remedy} Or give the path of a model folder.")
    source = load_network(name)
    about: dict[str, Any] = {"bundled": "" if is_checkpoint_name(name) else bundled_name(find(name))}
    about |= {"compares": source.compares}
    single = recommended_recipe(source.run, source.model.family, kind="single", **about)
    other = recommended_recipe(source.run, source.model.family, **about)
    if single == other:
        yield _row(name, single)
    else:
        yield _row(name, single) | {"task": SINGLE_LABEL}
        yield _row(name, other) | {"task": OTHER_TASKS}


def _of_bundled_models() -> Iterator[dict[str, str]]:
    """Yield the default recipe of each bundled network, without its weights."""
    from textgraft.models.default_recipes import recommended_recipe, with_bundled_recipe
    from textgraft.models.model_folder import find, names, read_config

    for name in names():
        config = read_config(find(name))
        if "encoder" in config:
            run = parse((find(name) / "run.json").read_text(encoding="utf-8"))
            family = config["encoder"]["name"]
            yield _row(name, recommended_recipe(with_bundled_recipe(run, name), family, bundled=name))


def _row(model: str, recommended: RecommendedRecipe) -> dict[str, str]:
    return {"model": model, "recipe": recommended.recipe, "reason": recommended.reason}


def _print_recipes(rows: list[dict[str, Any]], users: list[dict[str, str]], as_json: bool) -> None:
    """Print recipes of one name, and the bundled models that are trained by them where no recipe is named."""
    if as_json:
        print_json({"recipes": rows, "defaults": users})
        return
    for row in rows:
        print(f"{row['name']} (for {', '.join(row['stages'])}): {row['description']}")
        if row.get("source"):
            print(f"Source: {row['source']}")
    models = ", ".join(row["model"] for row in users) or "no bundled model"
    print(f"Without --recipe it is used for: {models}.")


def _print_defaults(rows: list[dict[str, str]], as_json: bool) -> None:
    if as_json:
        print_json({"defaults": rows})
        return
    for row in rows:
        task = f" {row['task']}" if "task" in row else ""
        print(f"{row['model']} -> {row['recipe']}{task}, because {row['reason']}")
