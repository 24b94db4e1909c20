"""What looks like a mistake and is none: it works, from the file to the predictions and the report."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from made_up_reviews import reviews
from programs import Desk, Program, Result, write_csv

FAMILY = "\N{WOMAN}\u200d\N{WOMAN}\u200d\N{GIRL}"


def finetune(run: Program, desk: Desk, train: Path, out: Path, *options: str | Path) -> Result:
    quick = ["--model", desk.lm, "--recipe", desk / "quick.toml", "--no-baselines"]
    return run("finetune", train, "--out", out, *quick, *options)


def test_emoji_combining_marks_and_right_to_left_text(desk: Desk, tmp_path: Path, run: Program) -> None:
    labels = (f"\N{THUMBS UP SIGN} {FAMILY}", "سلبي")
    texts = [
        "שלום עולם",
        "مرحبا بالعالم",
        f"great {FAMILY}",
        "e\u0301te\u0301 " + "z" + "\u0323\u0307" * 30,
        "\u202eabc",
    ]
    rows = [(f"{text} {word}", labels[i % 2]) for i, (text, word) in enumerate(zip(texts * 4, "abcdefghijklmnopqrst"))]
    train, out = write_csv(tmp_path / "train.csv", rows), tmp_path / "clf"
    result = finetune(run, desk, train, out, "--test", train, "--quiet", "--json")
    assert result.code == 0, result
    assert labels[1] in (out / "report.html").read_text(encoding="utf-8")
    done = run("predict", out, train, "--out", tmp_path / "predictions.csv", "--probabilities")
    assert done.code == 0
    with (tmp_path / "predictions.csv").open(encoding="utf-8", newline="") as file:
        predictions = [*csv.DictReader(file)]
    assert len(predictions) == len(rows)
    assert {row["label"] for row in predictions} <= set(labels)
    assert [f"p({label})" in predictions[0] for label in labels] == [True, True]
    assert labels[1] in run("evaluate", out, train).out


@pytest.mark.slow
def test_nul_bytes_are_text_that_is_warned_of(desk: Desk, tmp_path: Path, run: Program) -> None:
    train = tmp_path / "train.csv"
    train.write_bytes((desk / "train.csv").read_bytes() + b"good\x00film,pos\r\n")
    found = run("check", train)
    assert found.code == 0
    assert "line 26: 1 text with NUL bytes" in found.out
    result = finetune(run, desk, train, tmp_path / "clf", "--folds", "2")
    assert result.code == 0
    assert "line 26: 1 text with NUL bytes" in result.err
    assert run("predict", tmp_path / "clf", train).out.count("\n") == 25


@pytest.mark.slow
def test_ids_given_twice_are_an_error_to_check_and_told_by_finetune(desk: Desk, tmp_path: Path, run: Program) -> None:
    rows = [(str(i // 2), text, label) for i, (text, label) in enumerate(zip(*reviews(12, 8)))]
    train = write_csv(tmp_path / "train.csv", rows, ("id", "text", "label"))
    found = run("check", train)
    assert found.code == 1
    assert "12 rows share their id with another" in found.out
    result = finetune(run, desk, train, tmp_path / "clf", "--folds", "2", "--quiet")
    assert result.code == 0
    assert "12 rows share their id with another" in result.err


@pytest.mark.slow
def test_a_line_of_ten_megabytes(desk: Desk, tmp_path: Path, run: Program) -> None:
    long = tmp_path / "long.csv"
    write_csv(long, [("great film", "pos"), ("great film " * 950_000, "pos"), ("awful film", "neg")])
    found = run("check", long)
    assert found.code == 0
    assert "line 3" in found.out
    rows = run("predict", desk.classifier, long, "--json").json()["predictions"]
    assert [row["line"] for row in rows] == [2, 3, 4]


@pytest.mark.slow
def test_five_thousand_classes(desk: Desk, tmp_path: Path, run: Program) -> None:
    rows = [(f"item {i}", f"class {i}") for i in range(5000)]
    train, test = write_csv(tmp_path / "train.csv", rows), write_csv(tmp_path / "test.csv", rows[:50])
    found = run("check", train)
    assert found.code == 0
    assert "5,000 of 5,000 classes have fewer than 5 texts" in found.out
    recipe = tmp_path / "short.toml"
    quick = (desk / "quick.toml").read_text().split("[[finetune.phases]]")
    recipe.write_text("[[finetune.phases]]".join(quick[:2]).replace("batch_size = 8", "batch_size = 500"))
    out = tmp_path / "clf"
    result = finetune(run, desk, train, out, "--test", test, "--recipe", recipe, "--quiet", "--json")
    assert result.code == 0, result
    assert (out / "report.html").stat().st_size < 3_000_000
    (row,) = run("predict", out, "--input-text", "item 7", "--probabilities", "--json").json()["predictions"]
    assert len(row["probabilities"]) == 5000


def test_another_encoding_is_guessed_aloud(desk: Desk, tmp_path: Path, run: Program) -> None:
    train = tmp_path / "train.csv"
    train.write_bytes((desk / "train.csv").read_bytes() + "très bon film café,pos\r\n".encode("latin-1"))
    result = run("check", train)
    assert result.code == 0
    expected = f"textgraft: warning: {train} is not UTF-8 and was read as cp1252. Name it with --encoding"
    assert result.err.startswith(expected)
    assert result.err.count("\n") == 1
    assert run("check", train, "--encoding", "latin-1").err == ""
