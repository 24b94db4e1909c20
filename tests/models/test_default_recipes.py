"""Which recipe stands for "default" with each bundled model and each family of encoders, and the file that says so."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from made_up_questions import encoder

from textgraft.core.errors import UserError
from textgraft.models import default_recipes as module
from textgraft.models.default_recipes import default_recipes, defaults_path, recommended_recipe
from textgraft.models.loading import load_network
from textgraft.models.model import ENCODERS
from textgraft.models.model_folder import find, names
from textgraft.training.provenance import provenance
from textgraft.training.recipes import load_recipe, recipe_names
from textgraft.training.settings import Settings

BUNDLED = {
    "en-bert-small": "transformer-small",
    "en-elmo-small": "default",
    "en-flair-small-backward": "default",
    "en-flair-small-forward": "default",
    "en-gpt-small": "transformer-small",
    "en-ulmfit": "lstm-gentle",
    "en-ulmfit-backward": "lstm-gentle",
    "th-flair-small-backward": "default",
    "th-flair-small-forward": "default",
    "th-ulmfit": "lstm-small",
}
FAMILIES = {
    "awd_lstm": "default",
    "bert": "transformer",
    "cove": "default",
    "elmo": "default",
    "flair": "default",
    "gpt": "transformer",
    "transformer_xl": "transformer",
    "word_lstm": "tagger",
}


@pytest.mark.parametrize("name", [name for name in names() if name in BUNDLED])
def test_bundled_models(name: str) -> None:
    source = load_network(name)
    assert {source.recommended_recipe("default", kind) for kind in ("single", None)} == {BUNDLED[name]}
    assert source.recommended_recipe("frozen") == "frozen"


def test_every_bundled_network_is_in_the_table_and_no_unknown_family() -> None:
    assert {name for name in names() if (find(name) / "tokenizer.json").is_file()} <= BUNDLED.keys()
    assert FAMILIES.keys() <= ENCODERS.keys()  # one without a line has the recipe "default"


@pytest.mark.parametrize("family", FAMILIES)
def test_families(family: str) -> None:
    assert recommended_recipe({}, family).recipe == FAMILIES[family]
    assert recommended_recipe({}, family, kind="single").recipe == FAMILIES[family]
    assert recommended_recipe({"recommended_recipe": "full"}, family).recipe == "full"


@pytest.mark.parametrize("family", ["bert", "gpt", "xl", "lstm"])
def test_a_network_has_the_recipe_of_its_family(family: str) -> None:
    made = encoder(family)
    assert made.recommended_recipe("default") == FAMILIES[made.model.family]


def test_models_that_compare_texts() -> None:
    asked = {"compares": True, "kind": "single"}
    assert recommended_recipe({"recommended_recipe": "full"}, "bert", **asked).recipe == "contrastive"  # type: ignore[arg-type]
    for kind in ("multi", "numeric", "choice", None):
        assert recommended_recipe({}, "bert", compares=True, kind=kind).recipe == "transformer"  # type: ignore[arg-type]


def test_an_architecture_without_a_line_has_the_recipe_default() -> None:
    found = recommended_recipe({}, "new_family")
    assert found == ("default", "recipes/defaults.toml names none for the architecture new_family")


def test_every_recipe_that_the_file_names_exists() -> None:
    for section in default_recipes().values():
        for recipe in section.values():
            load_recipe(recipe)


def test_the_file_is_no_recipe() -> None:
    assert "defaults" not in recipe_names()
    with pytest.raises(UserError, match="unknown recipe 'defaults'"):
        load_recipe("defaults")


@pytest.fixture
def edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """A copy of the file in place of it, and a way to edit that."""
    (tmp_path / "defaults.toml").write_text(defaults_path().read_text())
    monkeypatch.setattr(module, "RECIPE_FOLDERS", (tmp_path,))

    def edit(old: str, new: str) -> None:
        text = (tmp_path / "defaults.toml").read_text()
        assert old in text
        (tmp_path / "defaults.toml").write_text(text.replace(old, new))

    return edit


def test_an_edit_counts(edited: Callable[[str, str], None], tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(find("en-gpt-small"), copy)
    edited('en-gpt-small = "transformer-small"', 'en-gpt-small = "full"')
    source = load_network("en-gpt-small")
    assert source.recommended_recipe("default") == "full"
    about = {"stage": "adapt", "name": "mine", "data": {}, "recipe": "full", "settings": Settings()}
    assert provenance(base=source.run, **about)["recommended_recipe"] == "full"  # type: ignore[arg-type]
    assert load_network(copy).recommended_recipe("default") == "transformer-small", "its own run.json counts"
    edited('en-gpt-small = "full"\n', "")
    assert load_network(find("en-gpt-small")).recommended_recipe("default") == "transformer"
    edited('gpt = "transformer"', 'gpt = "frozen"')
    assert (
        load_network("en-gpt-small").recommended_recipe("default")
        == encoder("gpt").recommended_recipe("default")
        == "frozen"
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[models]", "[model]", "unknown section 'model'.*Did you mean 'models'"),
        ('gpt = "transformer"', "gpt = 3", r"families\.gpt: 3 is not the name of a recipe"),
        ("[gradual]", "gradual", "not a TOML file"),
    ],
)
def test_a_broken_file_is_named(edited: Callable[[str, str], None], old: str, new: str, message: str) -> None:
    edited(old, new)
    with pytest.raises(UserError, match=message):
        default_recipes()


def test_a_missing_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RECIPE_FOLDERS", (tmp_path,))
    with pytest.raises(UserError, match=r"defaults\.toml: the default recipes are missing"):
        default_recipes()
