"""`textgraft finetune` as most will run it: no recipe, some unlabelled text; and what it leaves in use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from programs import Desk, Program, call

from textgraft.tasks.classification.finetune_options import METHODS


@pytest.mark.slow
def test_without_a_recipe_it_says_what_it_chose_and_the_result_is_of_use(
    desk: Desk, tmp_path: Path, run: Program
) -> None:
    out = tmp_path / "clf"
    command = ["finetune", desk / "train.csv", "--out", out, "--model", desk.lm, "--test", desk / "test.csv"]
    command += ["-u", desk / "pool.txt", "--no-adapt", "--folds", "2", "--precision", "fp32"]
    done = call(*command)
    assert done.code == 0, done
    assert done.out.splitlines()[1].startswith("ensemble ")
    assert "Chosen on 24 labels by 2-fold cross-validation: " in done.out
    assert "candidate co-training: " in done.err
    results = json.loads((out / "run.json").read_text())["results"]
    assert results["chosen"] in done.out
    assert {"ensemble", "co-training", "linear"} <= set(results["methods"])

    evaluated = run("evaluate", out, desk / "test.csv", "--json", "--precision", "fp32").json()
    assert evaluated["metrics"]["accuracy"] == results["methods"]["ensemble"]["accuracy"]["mean"]
    rows = run("predict", out, "--input-text", "great superb", "--input-text", "awful poor", "--json").json()[
        "predictions"
    ]
    assert [row["label"] for row in rows] == ["pos", "neg"]
    run("adapt", desk / "pool.txt", "--model", out, "--out", tmp_path / "lm").mistake(str(out))


@pytest.mark.slow
def test_the_language_model_reads_the_unlabelled_text_or_it_says_why_not(desk: Desk, tmp_path: Path) -> None:
    out = tmp_path / "clf"
    command = ["finetune", desk / "train.csv", "--out", out, "--model", desk.lm, "--test", desk / "test.csv"]
    pool = tmp_path / "pool.txt"
    pool.write_text((desk / "pool.txt").read_text() * 20)  # to be worth a fold
    done = call(*command, "-u", pool, "--folds", "2", "--precision", "fp32", "--json")
    assert done.code == 0, done
    assert "as it is, fold 1 of 2: " in done.err
    told, read = json.loads(done.out), tmp_path / "clf.lm"
    unread = "rejected before adaptation to the unlabelled texts, after 1 of 2 folds" in told["chosen"]
    assert unread != read.is_dir()
    assert told["language_models"]["ulmfit"] == str(desk.lm if unread else read)
    assert {path.name for path in tmp_path.iterdir()} <= {"pool.txt", "clf", "clf.lm"}


def test_minutes_are_for_a_language_model_that_may_be_left_out(desk: Desk, tmp_path: Path, run: Program) -> None:
    command = ["finetune", desk / "train.csv", "--out", tmp_path / "clf", "--minutes", "5"]
    run(*command, "--recipe", desk / "quick.toml").mistake("it is the only candidate", "Leave out the minutes")
    assert not list(tmp_path.iterdir())


def test_help_names_the_methods(run: Program) -> None:
    text = " ".join(run("finetune", "--help").out.replace("│", " ").split())
    ensemble, *alone = METHODS
    assert f"{ensemble}, or one of its candidates alone: {', '.join(alone[:-1])} or {alone[-1]}." in text


def test_help_says_what_naming_no_recipe_means(run: Program) -> None:
    text = " ".join(run("finetune", "--help").out.replace("│", " ").split())
    assert (
        "Without --recipe it is the best weighted ensemble of a fine-tuned language model and linear classifiers"
        in text
    )
