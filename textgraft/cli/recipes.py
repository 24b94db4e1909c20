"""textgraft recipes: the bundled recipes, and the recipe that each model is trained by when none is named."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_json, print_table

if TYPE_CHECKING:
    from textgraft.models.default_recipes import RecommendedRecipe

SINGLE_LABEL, OTHER_TASKS = "for texts with one label", "for other tasks"


def recipes(
    model: Annotated[
        str | None, typer.Argument(help="A model, by name, or a folder: print only the recipe of this model.")
    ] = None,
    as_json: o.AsJson = False,
) -> None:
    """List the bundled recipes, for --recipe, and the default recipe of each model.

    The templates for `textgraft prompt --template` are in the list. The file recipes/defaults.toml names the default
    recipes: edit it to change them.
    """
    from textgraft.models.default_recipes import defaults_path

    if model is not None:
        _print_defaults(list(_of_model(model)), as_json)
        return
    rows = list(_bundled_recipes())
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


def _of_model(name: str) -> Iterator[dict[str, str]]:
    """Yield the default recipe of a model; two where it depends on the labels. Raises UserError for no network."""
    from textgraft.models.default_recipes import recommended_recipe
    from textgraft.models.loading import load_network
    from textgraft.models.model_folder import bundled_name, find, is_checkpoint_name

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
            run = json.loads((find(name) / "run.json").read_text(encoding="utf-8"))
            family = config["encoder"]["name"]
            yield _row(name, recommended_recipe(with_bundled_recipe(run, name), family, bundled=name))


def _row(model: str, recommended: RecommendedRecipe) -> dict[str, str]:
    return {"model": model, "recipe": recommended.recipe, "reason": recommended.reason}


def _print_defaults(rows: list[dict[str, str]], as_json: bool) -> None:
    if as_json:
        print_json({"defaults": rows})
        return
    for row in rows:
        task = f" {row['task']}" if "task" in row else ""
        print(f"{row['model']} -> {row['recipe']}{task}, because {row['reason']}")
