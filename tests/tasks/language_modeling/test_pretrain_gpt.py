"""A GPT-2 through the stages by recipe alone: pretrained on byte pairs, adapted, fine-tuned, gone on from."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from made_up_reviews import reviews

from textgraft import GenerateOptions, Settings, UserError, adapt, generate, pretrain
from textgraft.core.context import QUIET
from textgraft.data.labels import Labels
from textgraft.models.loading import load_network
from textgraft.tasks.classification.training import Plan, new_classifier
from textgraft.tasks.language_modeling.pretrain import PretrainOptions, load_pretrain_recipe, new_language_model
from textgraft.text.byte_level import BytePairTokenizer
from textgraft.training.recipes import load_recipe

RECIPE = """
name = "tiny-gpt"
description = "For tests"
language = "en"
licence = "none"

[tokenizer]
model = "byte_level"
vocab_size = 300

[model]
name = "gpt"
embedding_dim = 16
num_layers = 2
num_heads = 2
max_length = 24
embedding_dropout = 0.0
hidden_dropout = 0.0
attention_dropout = 0.0

[head]
bias = false
output_dropout = 0.0
alpha = 0.0
beta = 0.0

[stage]
batch_size = 8
bptt = 24

[[stage.phases]]
name = "pretrain"
epochs = 2
lr = 0.01
"""


@pytest.fixture(scope="module")
def gpt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gpt")
    (folder / "gpt.toml").write_text(RECIPE)
    (folder / "pool.txt").write_text("\n".join(reviews(400)[0]))
    return pretrain(
        [folder / "pool.txt"], folder / "lm", options=PretrainOptions(recipe=str(folder / "gpt.toml")), context=QUIET
    )


@pytest.mark.slow
def test_learns_and_goes_on(gpt: Path) -> None:
    made = load_network(gpt)
    assert isinstance(made.tokenizer, BytePairTokenizer)
    assert made.model.describe()["head"]["bias"] is False
    assert made.run["held_out"]["after"]["perplexity"] < 60  # of 300 tokens
    assert generate(made, ["The film"], GenerateOptions(max_tokens=60))[0].ids


@pytest.mark.slow
def test_adapts_with_windows_no_longer_than_its_positions(gpt: Path, tmp_path: Path) -> None:
    out = adapt(reviews(100, 7)[0], out=tmp_path / "domain", model=gpt, recipe="full", context=QUIET)
    scores = load_network(out).run["held_out"]
    assert scores["after"]["perplexity"] < scores["before"]["perplexity"]


def test_an_own_vocabulary_is_one_of_bytes_too(gpt: Path, tmp_path: Path) -> None:
    thai = ["ภาพยนตร์เรื่องนี้สนุกมาก นักแสดงเล่นดี"] * 80
    made = load_network(
        adapt(thai, out=tmp_path / "domain", model=gpt, recipe="full", own_vocabulary=True, context=QUIET)
    )
    assert isinstance(made.tokenizer, BytePairTokenizer)
    assert made.tokenizer.decode(made.tokenizer.encode(thai[0]).ids) == thai[0]
    assert len(made.tokenizer.encode(thai[0]).ids) < len(load_network(gpt).tokenizer.encode(thai[0]).ids) / 4


def test_a_classifier_grows_on_it(gpt: Path) -> None:
    made, stage = load_network(gpt), load_recipe("default").finetune
    labels = Labels("single", ("neg", "pos"))
    plan = Plan(made.model, False, stage, Settings(), labels, None, made.tokenizer.pad_id)
    classifier = new_classifier(plan, seed=0)
    assert torch.equal(classifier.encoder.positions.weight, made.model.encoder.positions.weight)
    assert classifier.head.config.direction == "left"


def test_the_recipe_that_ships_is_gpt2s_smallest() -> None:
    """As many weights as the published file holds, and nothing that GPT-2 did not have."""
    plan = load_pretrain_recipe("gpt2-small")
    with torch.device("meta"):
        model = new_language_model(plan, plan.tokenizer["vocab_size"], seed=0)
    assert sum(p.numel() for p in model.parameters()) == 124_439_808
    head = model.describe()["head"]
    assert (head["alpha"], head["beta"], head["bias"], head["tied"]) == (0.0, 0.0, False, True)


def test_a_head_without_bias_cannot_start_from_counts(gpt: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "counts.toml"
    recipe.write_text(RECIPE.replace("licence =", "start_from_counts = true\nlicence ="))
    assert load_pretrain_recipe(str(recipe)).start_from_counts
    with pytest.raises(UserError, match="no biases to start from"):
        pretrain([gpt.parent / "pool.txt"], tmp_path / "lm", options=PretrainOptions(recipe=str(recipe)), context=QUIET)


@pytest.mark.slow
def test_heads_that_start_near_are_another_model_and_another_run(gpt: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "near.toml"
    recipe.write_text(RECIPE.replace("licence =", "start_near = 2\nlicence ="))
    near = load_network(
        pretrain([gpt.parent / "pool.txt"], tmp_path / "lm", options=PretrainOptions(recipe=str(recipe)), context=QUIET)
    )
    assert near.run["held_out"]["after"] != load_network(gpt).run["held_out"]["after"]
    recipe.write_text(RECIPE.replace("licence =", "start_near = 3\nlicence ="))
    with pytest.raises(UserError, match="the encoder has 2 layers"):
        load_pretrain_recipe(str(recipe))
