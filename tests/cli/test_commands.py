"""Every command as a process of its own, on models that take a second: what it prints, writes and returns."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from made_up_reviews import reviews
from programs import Desk, Program, Result, call, environment, spawn

from textgraft import predict
from textgraft.cli.app import COMMANDS
from textgraft.models.loading import load_network

pytestmark = pytest.mark.slow

HEAVY = ("torch", "duckdb", "sklearn", "matplotlib", "pandas", "scipy", "tokenizers")


def test_help_imports_nothing_heavy() -> None:
    code = "import sys; from textgraft.cli import main\ntry: main(sys.argv[1:])\nexcept SystemExit: pass\n"
    code += f"print([name for name in {HEAVY} if name in sys.modules])"
    for arguments in (["--help"], ["finetune", "--help"], ["--version"]):
        command = [sys.executable, "-c", code, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=True)
        assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("name", [name for name, _, _ in COMMANDS])
def test_every_command_has_an_example_in_its_help(run: Program, name: str) -> None:
    shown = run(name, "--help")
    assert shown.code == 0
    assert f"Example: textgraft {name} " in " ".join(shown.out.split()) + " "
    assert f"{name} " in run("--help").out


def test_no_arguments_show_the_help(run: Program) -> None:
    assert run() == run("--help")


@pytest.fixture(scope="module")
def pretrained(desk: Desk, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """The folder of a backward language model, and what the command that made it said."""
    out = tmp_path_factory.mktemp("pretrained") / "backward"
    return out, call("pretrain", desk / "pool.txt", "--out", out, "--recipe", desk / "backward.toml", "--json")


def test_pretrain(pretrained: tuple[Path, Result]) -> None:
    out, result = pretrained
    assert result.code == 0, result
    shown = result.json()
    assert (shown["out"], shown["stage"]) == (str(out), "pretrain")
    assert shown["held_out"]["after"]["perplexity"] > 1
    assert "pretrain" in result.err  # the progress
    assert load_network(out).model.encoder.direction == "right"
    assert [path.name for path in out.parent.iterdir()] == ["backward"]


def test_adapt(desk: Desk, tmp_path: Path) -> None:
    out = tmp_path / "domain"
    arguments = ["--model", desk.lm, "--recipe", desk / "quick.toml", "--own-vocabulary", "--quiet", "--seed", "3"]
    result = call("adapt", desk / "pool.txt", "--out", out, *arguments)
    assert (result.code, result.err) == (0, "")
    assert "perplexity per word" in result.out
    assert f"Written: {out}" in result.out
    assert load_network(out).run["settings"]["seed"] == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["domain"]


def test_finetune_with_a_pool_and_a_backward_model(
    desk: Desk, pretrained: tuple[Path, Result], tmp_path: Path, run: Program
) -> None:
    out, recipe = tmp_path / "clf", ["--recipe", desk / "quick.toml"]
    arguments = ["--model", f"{desk.lm}+{pretrained[0]}", "--unlabelled", desk / "pool.txt", *recipe]
    result = call("finetune", desk / "train.csv", "--out", out, *arguments, "--test", desk / "test.csv", "--json")
    assert result.code == 0, result
    shown = result.json()
    assert list(shown["methods"]) == ["ulmfit + ulmfit-backward", "ulmfit", "ulmfit-backward", "linear", "lsa"]
    assert (shown["labels"], shown["test_n"], shown["seeds"]) == (24, 20, 1)
    adapted = {name: f"{out}.{name}.lm" for name in ("ulmfit", "ulmfit-backward")}
    assert shown["language_models"] == adapted
    assert [load_network(path).run["stage"] for path in adapted.values()] == ["adapt", "adapt"]
    assert "ulmfit-backward seed 0" in result.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clf", "clf.ulmfit-backward.lm", "clf.ulmfit.lm"]
    predicted = run("predict", out, "--input-text", "a great film", "--json")
    assert predicted.json()["predictions"][0]["label"] in ("neg", "pos")
    run("adapt", desk / "pool.txt", "--model", out, "--out", tmp_path / "x").mistake(
        "this is an ensemble of ", "Name a member that is a network: "
    )


def test_finetune_prints_a_table_the_verdict_and_what_was_written(desk: Desk, tmp_path: Path, run: Program) -> None:
    out = tmp_path / "clf"
    arguments = ["--model", desk.lm, "--recipe", desk / "quick.toml", "--folds", "2", "--seeds", "2", "--no-adapt"]
    result = run("finetune", desk / "train.csv", "--out", out, *arguments, "-u", desk / "pool.txt", "--quiet")
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[0].split()[:2] == ["method", "accuracy"]
    assert [line.split()[0] for line in lines[1:4]] == ["ulmfit", "linear", "lsa"]
    assert "on 24 texts" in result.out
    assert lines[-1] == f"Written: {out}, {out / 'report.html'}"
    assert load_network(out).run["seeds"] == 2


def test_an_interrupted_finetune_that_was_done_but_for_tidying_up_goes_on(
    desk: Desk, tmp_path: Path, run: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "clf"
    command = ["finetune", desk / "train.csv", "--out", out, "--model", desk.lm, "--recipe", desk / "quick.toml"]
    command += ["--test", desk / "test.csv", "--no-baselines", "-q"]

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("textgraft.training.driver.remove_work", killed)
        assert run(*command).code == 130
    weights = (out / "model.safetensors").read_bytes()
    assert run(*command).code == 0
    assert (out / "model.safetensors").read_bytes() == weights
    assert [path.name for path in tmp_path.iterdir()] == ["clf"]
    run(*command).mistake(str(out), "exists already", "--overwrite")
    assert run(*command, "--overwrite").code == 0


def test_a_second_finetune_takes_the_adapted_model_and_another_pool_does_not(
    desk: Desk, tmp_path: Path, run: Program
) -> None:
    out = tmp_path / "clf"
    command = ["finetune", desk / "train.csv", "--out", out, "--model", desk.lm, "--recipe", desk / "quick.toml"]
    command += ["--test", desk / "test.csv", "--no-baselines", "-q"]
    assert run(*command, "-u", desk / "pool.txt").code == 0
    adapted = tmp_path / "clf.lm"
    first = adapted.stat().st_mtime_ns
    assert run(*command, "-u", desk / "pool.txt", "--overwrite").code == 0
    assert adapted.stat().st_mtime_ns == first
    (tmp_path / "other.txt").write_text("\n".join(reviews(150, 9)[0]))
    other = ["-u", tmp_path / "other.txt"]
    run(*command[:2], "--out", out, *command[4:], *other).mistake(str(out), "exists already")
    assert run(*command, *other, "--overwrite").code == 0
    assert adapted.stat().st_mtime_ns != first


def test_evaluate(desk: Desk, run: Program) -> None:
    result = spawn("evaluate", desk.classifier, desk / "test.csv", "--json")
    assert (result.code, result.err) == (0, "")
    shown = result.json()
    assert shown["texts"] == 20
    assert {row["name"] for row in shown["classes"]} == {"neg", "pos"}
    assert shown["accuracy"]["low"] <= shown["metrics"]["accuracy"] <= shown["accuracy"]["high"]
    table = run("evaluate", desk.classifier, desk / "test.csv").out
    for part in ("calibration error", "95 % interval", "recall", "--abstain-below"):
        assert part in table


def test_predict_from_stdin_keeps_the_order(desk: Desk) -> None:
    texts, _ = reviews(40, 5)
    texts = [f"{text} {'more ' * (17 * i % 40)}" for i, text in enumerate(texts)]
    arguments = ["--precision", "fp32"]  # bfloat16 answers a little differently in another batch
    result = spawn("predict", desk.classifier, "-", *arguments, stdin="\n".join(texts).encode())
    assert (result.code, result.err) == (0, "")
    rows = [json.loads(line) for line in result.out.splitlines()]
    assert [row["line"] for row in rows] == [*range(1, 41)]
    alone = [next(predict(desk.classifier, [text], precision="fp32")) for text in texts]
    assert [row["label"] for row in rows] == [one.label for one in alone]
    assert [row["confidence"] for row in rows] == pytest.approx([one.confidence for one in alone], abs=6e-5)


def test_empty_texts_are_answered_with_a_warning(desk: Desk, tmp_path: Path, run: Program) -> None:
    result = call("predict", desk.classifier, "-", stdin=b"great\n\n \nawful\n")
    assert len(result.out.splitlines()) == 4
    assert "2 of 4 texts are empty (line 2, line 3): predictions for empty texts are meaningless." in result.err
    (tmp_path / "some.csv").write_text('text,label\n"",pos\ngreat,pos\nawful,neg\n')
    assert "1 of 3 texts are empty (line 2)" in run("evaluate", desk.classifier, tmp_path / "some.csv").err


def test_predict_texts_with_probabilities(desk: Desk, run: Program) -> None:
    rows = run(
        "predict", desk.classifier, "--input-text", "great", "--input-text", "awful", "--probabilities", "--json"
    ).json()
    for row in rows["predictions"]:
        assert sum(row["probabilities"].values()) == pytest.approx(1, abs=5e-5 * len(row["probabilities"]))
        assert row["confidence"] == max(row["probabilities"].values())


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_predict_writes_a_file_known_by_id(desk: Desk, tmp_path: Path, run: Program, suffix: str) -> None:
    texts, _ = reviews(6, 7)
    with (tmp_path / "in.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["id", "review"], *([f"r{i}", text] for i, text in enumerate(texts))])
    out = tmp_path / f"out{suffix}"
    result = run("predict", desk.classifier, tmp_path / "in.csv", "--out", out, "--json")
    assert result.json() == {"out": str(out), "texts": 6}
    written = out.read_text()
    rows = [*csv.DictReader(written.splitlines())] if suffix == ".csv" else [*map(json.loads, written.splitlines())]
    assert [row["id"] for row in rows] == [f"r{i}" for i in range(6)]
    assert all(row["label"] in ("neg", "pos") for row in rows)


def test_abstain_below(desk: Desk, run: Program) -> None:
    rows = run("predict", desk.classifier, desk / "test.csv", "--json").json()["predictions"]
    ordered = sorted(row["confidence"] for row in rows)  # of four digits, so the bar is in a gap between two of them
    below = max(range(5, 15), key=lambda i: ordered[i] - ordered[i - 1])
    bar = (ordered[below - 1] + ordered[below]) / 2
    kept = run("predict", desk.classifier, desk / "test.csv", "--json", "--abstain-below", bar).json()["predictions"]
    assert [row["label"] for row in kept] == [r["label"] if r["confidence"] >= bar else None for r in rows]
    assert sum(row["label"] is None for row in kept) == below


def test_a_reader_that_has_seen_enough_is_no_error(desk: Desk) -> None:
    command = [sys.executable, "-m", "textgraft", "check", str(desk / "train.csv")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_embed(desk: Desk, tmp_path: Path) -> None:
    out = tmp_path / "v.npz"
    result = call("embed", desk.lm, desk / "test.csv", "--out", out, "--pooling", "concat", "--json")
    assert (result.code, result.err) == (0, "")
    assert result.json() == {"out": str(out), "texts": 20, "dimensions": 48}
    vectors = np.load(out)["vectors"]
    assert (vectors.shape, vectors.dtype) == ((20, 48), np.float32)


def test_lr_find(desk: Desk, tmp_path: Path, run: Program) -> None:
    plot = tmp_path / "lr.svg"
    arguments = ["--model", desk.lm, "--recipe", desk / "quick.toml", "--steps", "30"]
    result = call("lr-find", desk / "train.csv", *arguments, "--plot", plot, "--json")
    assert result.code == 0, result
    shown = result.json()
    assert plot.read_text().lstrip().startswith("<?xml")
    rates = [step["lr"] for step in shown["steps"]]
    assert rates == sorted(rates)
    assert len(rates) > 10
    assert "suggestion" in run("lr-find", desk / "pool.txt", "--adapt", *arguments).out


def test_schedule(desk: Desk, tmp_path: Path, run: Program) -> None:
    plot = tmp_path / "ulmfit.png"
    result = call("schedule", "ulmfit", "--steps-per-epoch", "50", "--json")
    assert (result.code, result.err) == (0, "")
    rows = result.json()["rows"]
    assert run("schedule", "ulmfit", "--plot", plot).out.endswith(f"Written: {plot}\n")
    assert plot.read_bytes().startswith(b"\x89PNG")
    last = [row for row in rows if row["epoch"] == rows[-1]["epoch"]]
    assert all(below["peak"] == pytest.approx(above["peak"] / 2.6) for below, above in pairwise(last))
    assert "frozen" in run("schedule", desk / "quick.toml", "--model", desk.lm).out
    assert "layer 1" in run("schedule", "ulmfit", "--stage", "adapt").out


def test_check(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "leak.csv").write_text((desk / "train.csv").read_text())
    clean = call("check", desk / "train.csv", "--test", desk / "test.csv", "--unlabelled", desk / "pool.txt", "--json")
    assert (clean.code, clean.err) == (0, "")
    said = clean.json()
    assert {name: said[name] for name in ("texts", "ok", "problems")} == {"texts": 24, "ok": True, "problems": []}
    assert {name: part["texts"] for name, part in said["parts"].items()}["training"] == 24
    assert list(said["parts"]) == ["training", "test", "unlabelled"]
    leaking = call("check", desk / "train.csv", "--test", tmp_path / "leak.csv")
    assert (leaking.code, leaking.err) == (1, "")
    assert "are in the training texts too" in leaking.out
    assert leaking.out.startswith(f"training  {desk / 'train.csv'}: 24 texts of ")
    chosen_by = call(
        "check", desk / "train.csv", "--valid", tmp_path / "leak.csv", "--test", desk / "test.csv", "--json"
    )
    assert chosen_by.code == 1
    assert [problem["name"] for problem in chosen_by.json()["problems"]] == ["validation-leak-training"]


def test_models_and_recipes(run: Program) -> None:
    assert isinstance(call("models", "--json").json()["models"], list)
    recipes = {recipe["name"]: recipe["stages"] for recipe in run("recipes", "--json").json()["recipes"]}
    assert recipes["ulmfit"] == ["adapt", "finetune"]
    assert recipes["en-ulmfit"] == ["pretrain"]
    assert "ulmfit" in run("recipes").out


def test_debug_shows_the_traceback_and_keeps_the_exit_code(run: Program) -> None:
    result = run("check", "no-such-file.csv", "--debug")
    assert result.code == 2
    assert "Traceback" in result.err
    assert result.err.splitlines()[-1].startswith("textgraft: error: no-such-file.csv: ")


def test_predict_tells_a_file_from_what_came_before_a_bad_row(desk: Desk, tmp_path: Path) -> None:
    """Rows are read as they are answered; with --out a mistake further down still leaves nothing."""
    path = tmp_path / "texts.jsonl"
    path.write_text('{"id": "a", "text": "a great film"}\n{"id": "b", "text": "dull"}\nnot json\n')
    result = call("predict", desk.classifier, path, "--out", tmp_path / "out.jsonl")
    assert result.code == 2
    assert "texts.jsonl line 3" in result.err
    assert [file.name for file in tmp_path.iterdir()] == ["texts.jsonl"]
    path.write_text("\n".join(path.read_text().splitlines()[:2]))
    result = call("predict", desk.classifier, path)
    assert [json.loads(line)["id"] for line in result.out.splitlines()] == ["a", "b"]
