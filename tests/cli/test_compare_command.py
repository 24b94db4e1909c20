"""`textgraft compare` as its users run it, and get it wrong."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest
from programs import Desk, Program, call, interrupt, spawn, write_csv
from small_comparisons import write_family, write_vectors

from textgraft.comparison.methods import METHODS
from textgraft.models import model_folder

pytestmark = pytest.mark.slow

SECTIONS = ["results", "efficiency", "tests", "data", "run"]


def test_compare_from_files_to_report(desk: Desk, tmp_path: Path) -> None:
    out = tmp_path / "curve"
    data = [desk / "train.csv", "--test", desk / "test.csv", "--unlabelled", desk / "pool.txt"]
    chosen = ["--methods", "lsa,ulmfit", "--labels", "8,all", "--seeds", "2", "--seed", "3"]
    chosen += ["--model", desk.lm, "--recipe", desk / "quick.toml", "--max-tokens", "32", "--threads", "1"]
    result = call("compare", *data, *chosen, "--out", out, "--json")
    assert result.code == 0, result
    shown = result.json()
    assert sorted(path.name for path in tmp_path.rglob("*")) == [
        "answers.safetensors",
        "curve",
        "report.html",
        "results.json",
    ]
    assert {k: v for k, v in shown.items() if k not in ("out", "report")} == json.loads(
        (out / "results.json").read_text(encoding="utf-8")
    )
    assert (shown["test_n"], shown["seeds"], shown["metric"]) == (20, 2, "accuracy")
    assert [budget["labels"] for budget in shown["budgets"]] == [8, 24]
    for budget in shown["budgets"]:
        assert list(budget["methods"]) == ["lsa", "ulmfit"]
        for row in budget["methods"].values():
            score = row["accuracy"]
            assert 0 <= score["low"] <= score["mean"] <= score["high"] <= 1
            assert score["spread"] >= 0
            assert 0 <= row["macro_f1"]["mean"] <= 1
            assert min(row["peak_mb"] - 50, row["model_mb"]) > 0
            assert row["minutes"] >= 0  # a thousandth at a time: a latent space of so few texts may take none
    first, last = (budget["methods"] for budget in shown["budgets"])
    assert first["ulmfit"]["model_mb"] == last["ulmfit"]["model_mb"] > 0.01
    assert len(shown["label_efficiency"]) == 2 * 2
    assert result.err.count(" labels  ") == 4
    page = (out / "report.html").read_text(encoding="utf-8")
    assert re.findall(r'<section id="(\w+)">', page) == SECTIONS
    assert page.count("<svg") == 1
    for told in (*map(html.escape, shown["verdict"]), "2 seeds", "not reached", "sha256", "quick.toml", "macro F1"):
        assert told in page, told
    assert not re.search(r"(?:src|href)=\"(?!#)|<script", page)  # nothing is fetched or run


@pytest.mark.slow
def test_families_by_name_and_features_of_several_models(desk: Desk, tmp_path: Path, run: Program) -> None:
    flair, vectors = write_family(tmp_path / "models", "flair"), write_vectors(tmp_path / "models")
    names = [f"flair@{flair}", f"features@{vectors}+{desk.lm}", f"vectors@{vectors}", "features"]
    asked = [desk / "train.csv", "--test", desk / "test.csv", "--unlabelled", desk / "pool.txt", "--labels", "8,all"]
    asked += ["--methods", ",".join(names), "--model", desk.lm, "--seeds", "1", "--threads", "1", "--json"]
    results = [program("compare", *asked, "--out", tmp_path / out) for program, out in ((spawn, "one"), (run, "two"))]
    assert [result.code for result in results] == [0, 0], results
    one, two = ([budget["methods"] for budget in result.json()["budgets"]] for result in results)
    assert list(one[1]) == names
    for name in names[1:3]:  # the given vectors know which words praise
        assert one[1][name]["accuracy"]["mean"] > 0.8
    for name in names:
        assert one[0][name]["log_loss"] == two[0][name]["log_loss"]
    assert "(flair-forward + flair-backward)" in one[0][names[0]]["about"]
    assert "flair@flair-forward+flair-b…" in (tmp_path / "one" / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.model])
def test_a_familys_model_is_asked_for_before_any_work(
    desk: Desk, tmp_path: Path, run: Program, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(model_folder, "MODEL_FOLDERS", ())
    asked = ["--methods", name, "--unlabelled", desk / "pool.txt", "--quiet", "--out", tmp_path / "curve"]
    run("compare", desk / "train.csv", *asked).mistake(
        f"method '{name}'", "is not installed", "--out", f"{name}@FOLDER"
    )
    assert list(tmp_path.iterdir()) == []


def test_help_names_every_method(run: Program) -> None:
    shown = " ".join(run("compare", "--help").out.split())
    assert f"Methods: {', '.join(METHODS)}." in shown


def test_compare_prints_a_table(desk: Desk, tmp_path: Path, run: Program) -> None:
    out = tmp_path / "curve"
    result = run("compare", desk / "train.csv", "--methods", "linear", "--seeds", "1", "--out", out, "--quiet")
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[0].split()[:3] == ["labels", "method", "accuracy"]
    assert lines[1].split()[:2] == ["19", "linear"]
    assert "no other method was run" in result.out
    assert lines[-1] == f"Written: {out / 'report.html'}, {out / 'results.json'}, {out / 'answers.safetensors'}"
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "held-out " in page
    assert "one seed" in page
    asked = [desk / "train.csv", "--methods", "linear", "--seeds", "2", "--reuse", out, "--out", tmp_path / "grown"]
    grown = run("compare", *asked)
    assert grown.code == 0, grown
    assert f"1 of 2 trainings are reused from {out}" in grown.err


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--methods", "linaer"], ["unknown method 'linaer'", "Did you mean 'linear'?"]),
        (["--methods", "linear,ulmfit"], ["'ulmfit' needs unlabelled texts", "--unlabelled"]),
        (["--methods", ","], ["there are no methods to compare"]),
        (["--labels", "8,25"], ["train.csv: 25 labels are more than the 24 to train on", "or all"]),
        (["--labels", "0"], ["0 is too few labels for 2 classes"]),
        (["--labels", "8,1"], ["1 is too few labels for 2 classes"]),
        (["--labels", "8;all"], ["'8;all' is not a number of labels"]),
        (["--seeds", "0"], ["--seeds"]),
        (["--label", "labels"], ["labels"]),
        (["--model", "nowhere", "--methods", "scratch"], ["nowhere"]),
    ],
)
def test_comparisons_that_cannot_be_made(
    desk: Desk, tmp_path: Path, run: Program, options: list[str], parts: list[str]
) -> None:
    asked = ["--methods", "linear", "--test", desk / "test.csv", "--quiet", *options]
    run("compare", desk / "train.csv", "--out", tmp_path / "curve", *asked).mistake(*parts)
    assert list(tmp_path.iterdir()) == []


def test_test_sets_that_cannot_be_measured_on(desk: Desk, tmp_path: Path, run: Program) -> None:
    bare = write_csv(tmp_path / "bare.csv", [["A fine film."], ["A dull film."]], ["text"])
    odd = write_csv(tmp_path / "odd.csv", [["A fine film.", "good"], ["A dull film.", "bad"]])
    for path, parts in ((bare, ["bare.csv", "no labels"]), (odd, ["odd.csv", "'bad'"])):
        asked = ["--test", path, "--methods", "linear", "--out", tmp_path / "curve", "--quiet"]
        result = run("compare", desk / "train.csv", *asked)
        assert result.code == 2
        for part in parts:
            assert part in result.err
        assert not (tmp_path / "curve.run").exists()


def test_a_label_that_training_lacks_is_a_mistake_of_every_method(desk: Desk, tmp_path: Path, run: Program) -> None:
    odd = write_csv(tmp_path / "odd.csv", [["A fine film.", "pos"], ["A dull film.", "nge"]])
    asked = ["--test", odd, "--methods", "linear", "--out", tmp_path / "curve", "--quiet"]
    done = run("compare", desk / "train.csv", *asked)
    assert done.code == 0
    assert "1 text has a label that training lacked ('nge') and counts as a mistake" in done.out


def test_a_place_that_is_taken(desk: Desk, tmp_path: Path, run: Program) -> None:
    (tmp_path / "curve").mkdir()
    asked = ["--methods", "linear", "--out", tmp_path / "curve"]
    run("compare", desk / "train.csv", *asked).mistake("exists already", "Name another path, or remove it.")


@pytest.mark.slow
def test_ctrl_c_keeps_the_finished_cells(desk: Desk, tmp_path: Path) -> None:
    out = tmp_path / "curve"
    asked = [desk / "train.csv", "--methods", "linear,no-adapt", "--labels", "8,all", "--model", desk.lm, "--out", out]
    asked += ["--recipe", desk / "quick.toml", "--seeds", "2"]
    stopped = interrupt("compare", *asked, when=tmp_path / "curve.run" / "cells" / "linear-8-0.safetensors")
    assert stopped.code == 130, stopped
    assert "the same command resumes it" in stopped.err
    kept = {path.name for path in (tmp_path / "curve.run" / "cells").iterdir()}
    assert "linear-8-0.safetensors" in kept
    assert not out.exists()
    assert spawn("compare", *asked, "--json").json()["seeds"] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["curve"]
