"""textgraft zero-shot: what it prints, writes and refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from made_up_reviews import BAD, GOOD
from programs import Desk, Program, unchanged

from textgraft.models import artifact, loading
from textgraft.models.sentence_embedding import SentenceEmbedding


@pytest.fixture(scope="module")
def encoder(tiny_lm: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that describes itself as a sentence encoder."""
    source = replace(loading.load_network(tiny_lm), embedding=SentenceEmbedding("mean"))
    return artifact.save(source, tmp_path_factory.mktemp("encoder") / "tiny")


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    path = tmp_path / "labels.toml"
    path.write_text(f"[labels]\npos = {json.dumps(GOOD)}\nneg = {json.dumps(BAD)}\n")
    return path


def test_predictions_a_classifier_and_its_accuracy(
    desk: Desk, encoder: Path, labels: Path, tmp_path: Path, run: Program
) -> None:
    out = tmp_path / "first"
    arguments = ["zero-shot", desk / "train.csv", "--labels", labels, "--model", encoder, "-u", desk / "pool.txt"]
    arguments += ["--test", desk / "test.csv", "--out", out]
    shown = run(*arguments)
    rows = [json.loads(line) for line in shown.out.splitlines()]
    assert shown.code == 0, shown
    assert [row["line"] for row in rows] == list(range(2, 26))
    assert set(rows[0]) == {"line", "text", "input_label", "label", "confidence", "known"}
    assert "self-training on 224 unlabelled texts" in shown.err
    assert "on 20 labelled texts" in shown.err
    assert f"Written: {out}" in shown.err
    predicted = run("predict", out, desk / "train.csv", "--precision", "fp32", "--json").json()["predictions"]
    assert [row["label"] for row in predicted] == [row["label"] for row in rows]
    evaluated = run("evaluate", out, desk / "test.csv", "--precision", "fp32", "--json").json()
    again = run(*arguments, "--overwrite", "--probabilities", "--json").json()
    assert again["evaluation"]["accuracy"] == evaluated["accuracy"]
    assert again["out"] == str(out)
    assert [row["label"] for row in again["predictions"]] == [row["label"] for row in rows]
    assert set(again["predictions"][0]["probabilities"]) == {"neg", "pos"}
    run(*arguments).mistake(str(out), "exists already", "--overwrite")


def test_names_alone_and_quietly(desk: Desk, encoder: Path, run: Program) -> None:
    shown = run("zero-shot", desk / "pool.txt", "-l", "great, awful", "-m", encoder, "--quiet")
    assert (shown.code, shown.err) == (0, "")
    labels = {json.loads(line)["label"] for line in shown.out.splitlines()}
    assert labels <= {"great", "awful"}
    assert len(shown.out.splitlines()) == 200
    one = run("zero-shot", "-i", "a great film", "-i", "awful", "-l", "great, awful", "-m", encoder, "--quiet")
    assert [json.loads(line)["label"] for line in one.out.splitlines()] == ["great", "awful"]


def test_mistakes(desk: Desk, encoder: Path, tmp_path: Path, run: Program) -> None:
    pool, bad = desk / "pool.txt", tmp_path / "bad.toml"
    bad.write_text("pos: great")
    with unchanged(tmp_path):
        run("zero-shot", pool, "--labels", "great").mistake("one label, 'great'", "[labels]")
        run("zero-shot", pool, "--labels", "great, great").mistake("'great' is repeated")
        run("zero-shot", pool, "--labels", "great,,awful").mistake("a label has no name")
        run("zero-shot", pool, "--labels", bad).mistake(str(bad), "not a TOML file")
        run("zero-shot", pool, "--labels", "a, b", "--model", desk.lm).mistake("textgraft prompt")
        run("zero-shot", pool, "--labels", "a, b", "--model", encoder, "--test", desk / "test.csv").mistake(
            "test.csv line 2: 'neg' is none of the labels"
        )
        run("zero-shot", pool).mistake("--labels")
        run("zero-shot", "--labels", "a, b").mistake("name either a file or texts", "--input-text")
