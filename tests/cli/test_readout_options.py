"""`--layer-aggregation` and `embed --layers` as their users type them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import made_up_questions
import made_up_tags
import numpy as np
import pytest
from made_up_questions import write_questions, write_recipe
from programs import Desk, Program, spawn

import textgraft
from textgraft.cli import options
from textgraft.data.readers import read
from textgraft.nn.layer_aggregation import LAYER_AGGREGATIONS

COMMANDS = ("finetune", "tag finetune", "qa finetune", "embed")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_names_them_all(command: str, run: Program) -> None:
    told = "".join(character for character in run(*command.split(), "--help").out if character not in " │\n")
    assert options.LAYER_AGGREGATIONS.replace(" ", "") in told
    assert re.split(", | or ", options.LAYER_AGGREGATIONS.split(" (")[0]) == list(LAYER_AGGREGATIONS)


def test_embed_reads_the_layers_asked_for(desk: Desk, tmp_path: Path, run: Program) -> None:
    """The tiny ULMFiT has widths 16, 24, 24, 16."""
    texts = read(desk / "test.csv").texts
    vectors = {}
    for name, width in (("last", 16), ("first", 16), ("second-to-last", 24)):
        out = tmp_path / f"{name}.npz"
        command = ("embed", desk.lm, desk / "test.csv", "--out", out, "--layers", name, "--json")
        result = run(*command)
        assert result.code == 0, result
        assert result.json()["dimensions"] == width
        vectors[name] = np.load(out)["vectors"]
        np.testing.assert_allclose(vectors[name], textgraft.embed(desk.lm, texts, layers=name), rtol=1e-5, atol=1e-6)
    run("embed", desk.lm, desk / "test.csv", "--out", tmp_path / "default.npz")
    assert (np.load(tmp_path / "default.npz")["vectors"] == vectors["last"]).all()
    assert not np.allclose(vectors["first"], vectors["last"])
    assert textgraft.embed(desk.lm, [], layers="second-to-last", pooling="concat").shape == (0, 72)


def test_embed_of_a_classifier_reads_what_its_head_reads(desk: Desk, tmp_path: Path, run: Program) -> None:
    out = tmp_path / "v.npz"
    assert run("embed", desk.classifier, desk / "test.csv", "--out", out, "--layers", "second-to-last").code == 0
    assert np.load(out)["vectors"].shape == (20, 24)


def test_mistakes_with_layers(desk: Desk, tmp_path: Path, run: Program) -> None:
    common = ("embed", desk.lm, desk / "test.csv", "--out", tmp_path / "v.npz", "--layers")
    run(*common, "lats").mistake("unknown layer aggregation 'lats'", "Did you mean 'last'?")
    run(*common, "sum").mistake("'sum' adds layers up", "24, 24, 16", "Possible with this model: first, last")
    run(*common, "mix").mistake("the layer aggregation 'mix' adds layers up")
    assert not (tmp_path / "v.npz").exists()


@pytest.mark.slow
def test_a_classifier_by_the_second_to_last_layer(desk: Desk, tmp_path: Path, run: Program) -> None:
    out, quick = tmp_path / "out", ("--recipe", desk / "quick.toml", "--no-baselines", "--quiet", "--json")
    files = (desk / "train.csv", "--test", desk / "test.csv", "--model", desk.lm)
    made = spawn("finetune", *files, *quick, "--layer-aggregation", "second-to-last", "--out", out)
    assert made.code == 0, made
    assert json.loads((out / "config.json").read_text())["head"]["layer_aggregation"] == "second-to-last"
    scores = run("evaluate", out, desk / "test.csv", "--json").json()
    assert scores["metrics"]["accuracy"] == pytest.approx(made.json()["methods"]["ulmfit"]["accuracy"]["mean"])
    assert len(run("predict", out, desk / "test.csv").out.splitlines()) == 20


def test_what_cannot_be_read_is_refused_before_the_model_adapts(desk: Desk, tmp_path: Path, run: Program) -> None:
    files = (desk / "train.csv", "--test", desk / "test.csv", "--unlabelled", desk / "pool.txt", "--model", desk.lm)
    done = run("finetune", *files, "--layer-aggregation", "concat-last-4", "--out", tmp_path / "out", "--quiet")
    done.mistake("'concat-last-4' needs 4 layers above the embeddings; this model has 3")
    assert list(tmp_path.iterdir()) == []


def test_taggers_and_readers_of_four_layers_at_once(tmp_path: Path, run: Program) -> None:
    """What is saved says the same as what was made."""
    bert = made_up_tags.write_encoder(tmp_path / "tags", "bert", num_layers=4)
    for name, count, seed in (("train", 30, 1), ("test", 10, 2)):
        made_up_tags.write_sentences(tmp_path / f"{name}.conll", count, seed, names=True)
        write_questions(tmp_path / f"{name}.json", count, seed)
    common = (
        "--recipe",
        write_recipe(tmp_path, 2),
        "--precision",
        "fp32",
        "--layer-aggregation",
        "concat-last-4",
        "--quiet",
    )
    files = (tmp_path / "train.conll", "--test", tmp_path / "test.conll", "--model", bert)
    made = run("tag", "finetune", *files, *common, "--json", "--out", tmp_path / "tagger")
    assert made.code == 0, made
    asked = ("tag", "evaluate", tmp_path / "tagger", tmp_path / "test.conll", "--precision", "fp32", "--json")
    assert run(*asked).json()["f1"] == made.json()["methods"]["tagger"]["f1"]
    bert = made_up_questions.write_encoder(tmp_path / "questions", "bert", num_layers=4)
    files = (tmp_path / "train.json", "--test", tmp_path / "test.json", "--model", bert, "--max-tokens", "30")
    made = run("qa", "finetune", *files, *common, "--json", "--stride", "6", "--out", tmp_path / "reader")
    assert made.code == 0, made
    asked = ("qa", "evaluate", tmp_path / "reader", tmp_path / "test.json", "--precision", "fp32", "--json")
    assert run(*asked).json()["f1"] == made.json()["methods"]["QA model"]["f1"]
    assert json.loads((tmp_path / "reader" / "config.json").read_text())["head"]["input_dim"] == 64
    theirs = run("convert", tmp_path / "reader", "--to", "huggingface", "--out", tmp_path / "theirs")
    theirs.mistake("transformers has no head with the layer aggregation 'concat-last-4'")
