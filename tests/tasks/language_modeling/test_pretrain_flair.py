"""Character language models through the stages by recipe alone: pretrained, adapted, tagging, generating, converted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from made_up_questions import write_recipe
from made_up_reviews import reviews
from made_up_tags import sentences

from textgraft import (
    GenerateOptions,
    Settings,
    Tagger,
    TagOptions,
    UserError,
    adapt,
    convert,
    embed,
    generate,
    pretrain,
    tag_finetune,
)
from textgraft.conversion.legacy import flair
from textgraft.core.context import QUIET
from textgraft.models.loading import load_network
from textgraft.tasks.language_modeling.pretrain import PretrainOptions, load_pretrain_recipe, new_language_model
from textgraft.text.characters import CharacterTokenizer
from textgraft.word_embeddings.contextual import word_vectors

RECIPE = """
name = "tiny-flair"
description = "For tests"
language = "en"
licence = "none"
start_from_counts = true

[tokenizer]
kind = "character"
vocab_size = 60

[model]
name = "flair"
direction = "DIRECTION"
embedding_dim = 8
hidden_dim = 24
input_dropout = 0.0
truncate = 20

[head]
input_dim = 24
tied = false
output_dropout = 0.0
alpha = 0.0
beta = 0.0

[stage]
batch_size = 8
bptt = 40

[[stage.phases]]
name = "pretrain"
epochs = 1
lr = 0.02
"""


@pytest.fixture(scope="module", params=["left", "right"])
def lm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("flair")
    (folder / "flair.toml").write_text(RECIPE.replace("DIRECTION", request.param))
    (folder / "pool.txt").write_text("\n".join(reviews(200)[0]))
    return pretrain(
        [folder / "pool.txt"], folder / "lm", options=PretrainOptions(recipe=str(folder / "flair.toml")), context=QUIET
    )


@pytest.mark.slow
def test_learns_its_characters(lm: Path) -> None:
    made = load_network(lm)
    assert isinstance(made.tokenizer, CharacterTokenizer)
    held = made.run["held_out"]["after"]
    assert held["perplexity"] < 8  # of some forty characters
    assert held["bits_per_character"] == pytest.approx(np.log2(held["perplexity"]), rel=0.05)
    if made.model.encoder.direction == "left":
        (said,) = generate(made, ["The f"], GenerateOptions(max_tokens=20))
        assert said.ids


@pytest.mark.slow
def test_adapts_and_keeps_its_vocabulary(lm: Path, tmp_path: Path) -> None:
    texts = [text.upper() for text in reviews(60, 7)[0]]
    made = load_network(adapt(texts, out=tmp_path / "domain", model=lm, recipe="full", context=QUIET))
    scores = made.run["held_out"]
    assert scores["after"]["perplexity"] < scores["before"]["perplexity"]
    assert made.tokenizer.tokens == load_network(lm).tokenizer.tokens


@pytest.mark.slow
def test_an_own_vocabulary_is_one_of_characters_too(lm: Path, tmp_path: Path) -> None:
    thai = ["ภาพยนตร์เรื่องนี้สนุกมาก นักแสดงเล่นดี"] * 60
    made = load_network(
        adapt(thai, out=tmp_path / "domain", model=lm, recipe="full", own_vocabulary=True, context=QUIET)
    )
    assert isinstance(made.tokenizer, CharacterTokenizer)
    assert made.tokenizer.decode(made.tokenizer.encode(thai[0]).ids) == thai[0]
    old, new = (a.model.encoder.embedding.weight for a in (load_network(lm), made))
    assert len(new) != len(old)


@pytest.mark.slow
def test_a_tagger_on_it_reads_the_space_beside_a_word(lm: Path, tmp_path: Path) -> None:
    options = TagOptions(recipe=str(write_recipe(tmp_path, 10)), settings=Settings(precision="fp32"))
    train, test = sentences(120, 1), sentences(20, 2)
    done = tag_finetune(train, tmp_path / "tagger", model=lm, test=test, options=options, context=QUIET)
    right = load_network(lm).model.encoder.direction == "right"
    assert done.record["subword_pooling"] == ("first" if right else "last")
    assert done.record["results"]["methods"]["tagger"]["accuracy"]["mean"] > 0.8
    assert [r.tags for r in Tagger(done.folder, precision="fp32").tag(test.sentences)] == [
        r.tags for r in done.predictions
    ]


def test_vectors_and_flairs_file(lm: Path, tmp_path: Path) -> None:
    words = [["The", "film", "is", "fine"], ["Bad", "."]]
    again = convert(f"flair:{convert(lm, tmp_path / 'lm.pt', to='flair')}", tmp_path / "again")
    for ours, theirs in zip(*(word_vectors(load_network(folder), words) for folder in (lm, again)), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert embed(lm, ["The film is fine", "Bad."]).shape == (2, 24)
    with pytest.raises(UserError, match="convert"):
        embed(f"flair:{tmp_path / 'lm.pt'}", ["x"])
    assert flair.read(tmp_path / "lm.pt")["nout"] is None


@pytest.mark.parametrize(("name", "direction"), [("forward", "left"), ("backward", "right")])
def test_the_recipes_that_ship(name: str, direction: str) -> None:
    plan = load_pretrain_recipe(f"en-flair-small-{name}")
    with torch.device("meta"):
        model = new_language_model(plan, plan.tokenizer["vocab_size"], seed=0)
    assert model.encoder.direction == direction
    assert sum(p.numel() for p in model.parameters()) < 6_000_000
    assert len(model.layer_groups()) == 3


def test_a_table_that_cannot_be_tied(tmp_path: Path) -> None:
    (tmp_path / "flair.toml").write_text(RECIPE.replace("DIRECTION", "left").replace("tied = false", "tied = true"))
    with pytest.raises(UserError, match=r"tied table is \(60, 8\), not \(60, 24\)"):
        load_pretrain_recipe(str(tmp_path / "flair.toml"))
