"""textgraft recipes: the bundled recipes."""

from __future__ import annotations

from typing import Any

from textgraft.cli import options as o
from textgraft.cli.console import print_json, print_table


def recipes(as_json: o.AsJson = False) -> None:
    """List the recipes that ship, for --recipe, and the templates for `textgraft prompt --template`."""
    from textgraft.distillation.options import load_distil_recipe
    from textgraft.generation.prompting import load_template
    from textgraft.tasks.language_modeling.pretrain import load_pretrain_recipe
    from textgraft.tasks.translation.train import RECIPES, load_translation_recipe
    from textgraft.training.recipes import load_recipe, recipe_names

    found: list[dict[str, Any]] = []
    for recipe in map(load_recipe, recipe_names()):
        stages = [stage for stage in ("adapt", "finetune") if getattr(recipe, stage).phases]
        about = {"description": recipe.description, "source": recipe.source}
        found.append({"name": recipe.name, "stages": stages, **about})
    for made in map(load_pretrain_recipe, recipe_names("pretrain")):
        found.append({"name": made.name, "stages": ["pretrain"], "description": made.description})
    for taught in map(load_distil_recipe, recipe_names("distil")):
        about = {"description": taught.description, "source": taught.source}
        found.append({"name": taught.name, "stages": ["distil"], **about})
    for translated in map(load_translation_recipe, recipe_names(RECIPES)):
        about = {"description": translated.description, "source": translated.source}
        found.append({"name": translated.name, "stages": ["cove train"], **about})
    for template in map(load_template, recipe_names("prompts")):
        found.append({"name": template.name, "stages": ["prompt"], "description": template.description})
    if as_json:
        print_json({"recipes": found})
    else:
        rows = [[r["name"], ", ".join(r["stages"]), r["description"]] for r in found]
        print_table(["recipe", "for", "what it does"], rows)
