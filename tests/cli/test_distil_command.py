"""`textgraft distil` as people run it: what it prints and leaves, Ctrl-C, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from made_up_reviews import reviews
from programs import Desk, Program, call, interrupt, unchanged, write_csv

from textgraft.models import loading

LANGUAGE_MODEL = """
name = "quick"
description = "For tests"
source = "none"

[stage]
batch_size = 8
bptt = 20

[[stage.phases]]
name = "all"
epochs = {epochs}
lr = 0.01
"""


def recipe(folder: Path, epochs: int = 1) -> Path:
    path = folder / f"lm-{epochs}.toml"
    path.write_text(LANGUAGE_MODEL.format(epochs=epochs))
    return path


@pytest.mark.slow
def test_a_classifier_teaches_a_smaller_one(desk: Desk, tmp_path: Path) -> None:
    out = tmp_path / "small"
    arguments = ["distil", desk.classifier, desk / "pool.txt", "--student", desk.lm, "--recipe", desk / "quick.toml"]
    arguments += ["--labelled", desk / "train.csv", "--test", desk / "test.csv", "--alpha", "0.3", "--finetune"]
    done = call(*arguments, "--out", out, "--json", "--quiet", "--threads", "1")
    assert done.code == 0, done.err
    told = done.json()
    assert told["agreement"]["texts"] == 10
    assert set(told["results"]["methods"]) == {"student", "teacher"}
    assert told["sizes"]["speed_ratio"] > 0
    run = json.loads((out / "run.json").read_text())
    assert run["distillation"] == {"temperature": 2.0, "alpha": 0.3, "finetune": True}
    assert run["verdict"] == told["verdict"]
    assert (out / "report.html").stat().st_size > 10_000
    answered = call("predict", out, desk / "test.csv", "--json")
    assert answered.code == 0, answered.err


@pytest.mark.slow
def test_a_language_model_teaches_half_of_itself(run: Program, desk: Desk, tmp_path: Path) -> None:
    out = tmp_path / "small"
    done = run("distil", desk.lm, desk / "pool.txt", "--recipe", recipe(tmp_path), "--out", out, "-q")
    assert done.code == 0, done.err
    assert "its teacher" in done.out
    assert f"Written: {out}" in done.out
    assert loading.load_network(out).model.encoder.config.num_layers == 2


@pytest.mark.slow
def test_ctrl_c_and_the_same_command_end_with_the_same_bits(run: Program, desk: Desk, tmp_path: Path) -> None:
    out, whole = tmp_path / "small", tmp_path / "whole"
    arguments = ["distil", desk.lm, desk / "pool.txt", "--recipe", recipe(tmp_path, 6), "--precision", "fp32", "-q"]
    stopped = interrupt(*arguments, "--out", out, when=tmp_path / "small.run" / "plan.json")
    assert stopped.code == 130, stopped.err
    assert "the same command resumes it" in stopped.err
    assert not out.exists()
    for folder in (out, whole):
        assert run(*arguments, "--out", folder).code == 0
    assert (out / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_pairs_are_read_where_the_second_text_is_named(run: Program, desk: Desk, tmp_path: Path) -> None:
    rows = list(zip(reviews(24, 1)[0], reviews(24, 4)[0]))
    pool = write_csv(tmp_path / "pairs.csv", rows, head=("premise", "hypothesis"))
    arguments = ["distil", desk.classifier, pool, "--student", desk.lm, "--out", tmp_path / "x", "--text", "premise"]
    run(*arguments, "--text2", "hypothesis").mistake("a single text each, and here is two texts")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["{lm}", "{pool}", "--labelled", "{train}"],
            "language model without labels, so labelled texts cannot be used",
        ),
        (["{lm}", "{pool}", "--alpha", "0.5"], "so alpha cannot be used"),
        (["{classifier}", "{pool}", "--student", "{lm}", "--temperature", "0"], "the temperature is 0.0"),
        (["{classifier}", "{pool}", "--student", "{lm}", "--finetune"], "there are no labelled texts"),
        (["{classifier}", "{pool}", "--student", "nobody"], "no model 'nobody'"),
        (["{classifier}", "nothing.txt"], "nothing.txt"),
        (["{lm}", "{pool}", "--recipe", "ulmfit"], "unknown recipe 'ulmfit'"),
        (["{classifier}"], "Missing argument 'pool'"),
    ],
)
def test_mistakes_are_told_in_a_line_and_leave_nothing(
    arguments: list[str], said: str, run: Program, desk: Desk, tmp_path: Path
) -> None:
    places = {"lm": desk.lm, "classifier": desk.classifier, "pool": desk / "pool.txt", "train": desk / "train.csv"}
    with unchanged(tmp_path):
        run("distil", *(a.format(**places) for a in arguments), "--out", tmp_path / "x").mistake(said)


def test_help_shows_an_example_and_recipes_are_listed(run: Program) -> None:
    assert "Example: textgraft distil sentiment pool.txt" in " ".join(run("distil", "--help").out.split())
    found = run("recipes", "--json").json()["recipes"]
    assert {r["name"] for r in found if r["stages"] == ["distil"]} == {"distilbert", "any-width"}
