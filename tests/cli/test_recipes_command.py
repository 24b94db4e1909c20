"""textgraft recipes: the bundled recipes, and which one stands for "default" with a model, and why."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from made_up_questions import encoder
from programs import Desk, Program, spawn

from textgraft.models import artifact
from textgraft.models import default_recipes as module
from textgraft.models.default_recipes import defaults_path
from textgraft.models.model import build
from textgraft.models.sentence_embedding import SentenceEmbedding

FROM_FILE = "because recipes/defaults.toml names it for"


@pytest.mark.slow
def test_the_list_shows_the_default_of_each_bundled_model(run: Program) -> None:
    lines = run("recipes").out.splitlines()
    assert f"en-gpt-small -> transformer-small, {FROM_FILE} this model" in lines
    assert str(defaults_path()) in lines[-1]
    shown = run("recipes", "--json").json()
    assert {"en-gpt-small": "transformer-small", "en-ulmfit": "lstm-gentle"}.items() <= {
        row["model"]: row["recipe"] for row in shown["defaults"]
    }.items()
    assert shown["defaults_file"] == str(defaults_path())


@pytest.mark.slow
def test_one_model(desk: Desk, run: Program, tmp_path: Path) -> None:
    assert spawn("recipes", "en-gpt-small").out == (f"en-gpt-small -> transformer-small, {FROM_FILE} this model\n")
    made = encoder("bert")
    artifact.save(replace(made, run={**made.run, "recommended_recipe": "full"}), tmp_path / "mine")
    assert run("recipes", tmp_path / "mine").out == (
        f"{tmp_path / 'mine'} -> full, because recommended_recipe in its run.json names it\n"
    )
    (row,) = run("recipes", desk.classifier, "--json").json()["defaults"]
    assert row == {
        "model": str(desk.classifier),
        "recipe": "default",
        "reason": "recipes/defaults.toml names it for the architecture awd_lstm",
    }


def test_a_model_that_compares_texts_has_two(run: Program, tmp_path: Path) -> None:
    made = encoder("bert")
    description = made.model.describe()
    description["encoder"]["pooler"] = False
    artifact.save(replace(made, model=build(description), embedding=SentenceEmbedding()), tmp_path / "mine")
    single, other = run("recipes", tmp_path / "mine").out.splitlines()
    assert single.endswith(f"-> contrastive for texts with one label, {FROM_FILE} models that compare texts")
    assert other.endswith(f"-> transformer for other tasks, {FROM_FILE} the architecture bert")


@pytest.mark.slow
def test_an_edit_shows(run: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(defaults_path(), tmp_path)
    path = tmp_path / "defaults.toml"
    path.write_text(path.read_text().replace('en-gpt-small = "transformer-small"', 'en-gpt-small = "full"'))
    monkeypatch.setattr(module, "RECIPE_FOLDERS", (tmp_path,))
    assert run("recipes", "en-gpt-small").out.startswith("en-gpt-small -> full, ")
    path.write_text("models")
    run("recipes", "en-gpt-small").mistake(str(path), "this is not a TOML file")


@pytest.mark.slow
def test_what_is_no_network_is_refused(run: Program) -> None:
    run("recipes", "en-vectors").mistake("en-vectors", "word vectors")
    run("recipes", "nobody").mistake("no model and no recipe 'nobody'")
    run("recipes", "lstm-gentel").mistake("Did you mean 'lstm-gentle'?")
    run("recipes", "en-gtp-small").mistake("Did you mean 'en-gpt-small'?")


@pytest.mark.slow
def test_a_recipe_is_shown_with_what_uses_it(run: Program) -> None:
    about, source, users = run("recipes", "ulmfit").out.splitlines()
    assert about.startswith("ulmfit (for adapt, finetune): ")
    assert "Howard" in source
    assert users == "Without --recipe it is used for: no bundled model."
    assert "used for: en-bert-small, en-gpt-small." in run("recipes", "transformer-small").out
    shown = run("recipes", "transformer-small", "--json").json()
    assert [row["name"] for row in shown["recipes"]] == ["transformer-small"]
    assert [row["model"] for row in shown["defaults"]] == ["en-bert-small", "en-gpt-small"]
    assert run("recipes", "sentiment").out.startswith("sentiment (for prompt): ")
