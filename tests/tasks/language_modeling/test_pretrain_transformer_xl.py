"""A Transformer-XL through the stages by recipe alone: pretrained, gone on from, adapted, fine-tuned, resumed."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from made_up_reviews import reviews

from textgraft import GenerateOptions, Settings, TextClassifier, UserError, adapt, generate, pretrain
from textgraft.core.context import QUIET
from textgraft.data.streams.base import LanguageModelStream
from textgraft.generation.generation import score
from textgraft.models.loading import load_network
from textgraft.models.model import build
from textgraft.tasks.language_modeling.adapt import held_out, move_to_vocabulary
from textgraft.tasks.language_modeling.pretrain import PretrainOptions, load_pretrain_recipe, new_language_model
from textgraft.text.tokenizer import Tokenizer
from textgraft.training.loop import Run
from textgraft.training.phases import Phase

pytestmark = pytest.mark.slow

RECIPE = """
name = "tiny-xl"
description = "For tests"
language = "en"
licence = "none"
start_from_counts = true

[tokenizer]
kind = "word"
vocab_size = 200
min_frequency = 1

[model]
name = "transformer_xl"
embedding_dim = 16
hidden_dim = 32
num_layers = 2
num_heads = 2
memory_length = 12
eval_memory_length = 20
embedding_dropout = 0.0
hidden_dropout = 0.0

[head]
output_dropout = 0.0
alpha = 0.0
beta = 0.0

[stage]
batch_size = 8
bptt = 12

[[stage.phases]]
name = "pretrain"
epochs = 3
lr = 0.01
"""
ADAPTIVE = RECIPE.replace("eval_mem", "cutoffs = [10, 20]\ndiv_value = 2.0\neval_mem").replace(
    "[head]", '[head]\noutput_layer = "adaptive"'
)


@pytest.fixture(scope="module", params=[RECIPE, ADAPTIVE], ids=["plain", "adaptive"])
def xl(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("xl")
    (folder / "xl.toml").write_text(request.param)
    (folder / "pool.txt").write_text("\n".join(reviews(400)[0]))
    return pretrain(
        [folder / "pool.txt"], folder / "lm", options=PretrainOptions(recipe=str(folder / "xl.toml")), context=QUIET
    )


def test_learns_goes_on_and_scores(xl: Path) -> None:
    made = load_network(xl)
    after = made.run["held_out"]["after"]
    assert after["perplexity"] < 0.3 * made.tokenizer.vocab_size
    long = GenerateOptions(max_tokens=60)  # three times what it remembers
    alone = [generate(made, [prompt], long)[0] for prompt in ("the film", "i saw this one and")]
    together = generate(made, ["the film", "i saw this one and"], long)
    assert [g.ids for g in together] == [g.ids for g in alone]
    assert all(g.ids for g in together)
    likely, garbled = score(made, ["the"] * 2, [" film was very good", " was the good very film"])
    assert likely.log_probability > garbled.log_probability


def test_adapts_and_a_classifier_grows_on_it(xl: Path, tmp_path: Path) -> None:
    texts, labels = reviews(60, 7)
    praise = [f"{text} and the sequel was the best of all" for text in reviews(200, 8)[0]]
    out = adapt(praise, out=tmp_path / "domain", model=xl, recipe="full", context=QUIET)
    scores = load_network(out).run["held_out"]
    assert scores["after"]["perplexity"] < scores["before"]["perplexity"]
    classifier = TextClassifier(model=str(out), adapt=False).fit(texts, labels)
    assert classifier.predict_proba(texts).shape == (60, 2)


def test_another_vocabulary_moves_one_table_and_not_several(xl: Path) -> None:
    made = load_network(xl)
    other = Tokenizer.train(["the film was good and new words came"], kind="word", min_frequency=1)
    if made.model.describe()["encoder"]["cutoffs"]:
        with pytest.raises(UserError, match="has an adaptive embedding"):
            move_to_vocabulary(made, other)
        return
    moved = move_to_vocabulary(made, other)
    table, before = (m.model.values()["encoder.embedding.weight"] for m in (moved, made))
    assert torch.equal(table[other.encode("film").ids[0]], before[made.tokenizer.encode("film").ids[0]])


def test_word_vectors_start_no_adaptive_embedding(xl: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "vectors.toml"
    recipe.write_text(ADAPTIVE.replace("licence =", "token_vectors = 1000\nlicence ="))
    with pytest.raises(UserError, match="several tables"):
        pretrain([xl.parent / "pool.txt"], tmp_path / "lm", options=PretrainOptions(recipe=str(recipe)), context=QUIET)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("num_heads = 2", "num_heads = 3", "3 heads do not divide"),
        ("memory_length = 12", "memory_length = 12\ncutoffs = [50, 20]", "does not rise"),
        ("memory_length = 12", "memory_length = 12\ncutoffs = [20]", "several tables"),
        ("memory_length = 12", "memory = 12", "unknown setting"),
    ],
)
def test_recipes_that_describe_no_model(old: str, new: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "wrong.toml").write_text(RECIPE.replace(old, new))
    with pytest.raises(UserError, match=complaint) as raised:
        load_pretrain_recipe(str(tmp_path / "wrong.toml"))
    assert raised.value.where


def test_resumed_in_the_midst_of_a_text_with_its_memory(tmp_path: Path) -> None:
    """Saved after a few windows, a run goes on with what it remembered and ends bit-equal."""
    texts = reviews(100)[0]
    tokenizer = Tokenizer.train(texts, kind="word", min_frequency=1)
    train, _ = held_out(texts, tokenizer)

    def new_run() -> Run:
        torch.manual_seed(0)
        plan = {"name": "transformer_xl", "vocab_size": tokenizer.vocab_size, "embedding_dim": 8, "hidden_dim": 8}
        plan |= {"num_layers": 1, "num_heads": 2, "memory_length": 9}
        head = {"name": "language_model", "vocab_size": tokenizer.vocab_size, "input_dim": 8}
        stream = LanguageModelStream(train, rows=4, bptt=10)
        return Run(
            build({"encoder": plan, "head": head}), [Phase("all", 0.2, 0.01)], stream, Settings(precision="fp32")
        )

    whole = new_run()
    total = sum(1 for _ in whole.steps())
    assert total > 6
    begun = new_run()
    for _ in islice(begun.steps(), 4):
        pass
    begun.save(tmp_path / "checkpoint.safetensors")
    resumed = new_run()
    assert resumed.resume(tmp_path / "checkpoint.safetensors")
    assert resumed.state is not None
    assert resumed.state[0][0].dtype == torch.bool
    assert sum(1 for _ in resumed.steps()) == total - 4
    assert all(torch.equal(value, whole.model.values()[name]) for name, value in resumed.model.values().items())


def test_the_recipe_that_ships_has_five_million_parameters_and_runs(tmp_path: Path) -> None:
    plan = load_pretrain_recipe("en-xl-small")
    with torch.device("meta"):
        model = new_language_model(plan, plan.tokenizer["vocab_size"], seed=0)
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(5.5e6, rel=0.01)
    encoder: Any = model.encoder
    train_reach = plan.stage.bptt + encoder.config.remembered(training=True)
    assert encoder.config.remembered(training=False) > encoder.config.remembered(training=True)
    assert encoder.config.clamp_length == train_reach - 1
    (tmp_path / "pool.txt").write_text("\n".join(reviews(300)[0]))
    out = pretrain(
        [tmp_path / "pool.txt"],
        tmp_path / "lm",
        options=PretrainOptions(recipe="en-xl-small", tokens=600),
        context=QUIET,
    )
    assert load_network(out).model.describe()["encoder"] == replace(encoder.config, vocab_size=0).__dict__ | {
        "name": "transformer_xl",
        "vocab_size": load_network(out).tokenizer.vocab_size,
    }
