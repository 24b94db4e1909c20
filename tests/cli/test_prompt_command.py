"""textgraft prompt: a process of its own with a tiny GPT and a tiny AWD-LSTM, what it leaves, and mistakes."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import torch
from made_up_reviews import reviews
from programs import Desk, Program, call, write_csv

from textgraft.models import artifact
from textgraft.models.artifact import Artifact
from textgraft.models.model import build
from textgraft.text.byte_level import train_byte_level


@pytest.fixture(scope="session")
def tiny_gpt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer = train_byte_level(reviews(60, 5)[0], vocab_size=300)
    size = tokenizer.vocab_size
    encoder = {"name": "gpt", "vocab_size": size, "embedding_dim": 8, "num_layers": 2, "num_heads": 2}
    head = {"name": "language_model", "vocab_size": size, "input_dim": 8}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = build({"encoder": {**encoder, "max_length": 200}, "head": head})
    return artifact.save(Artifact(model, tokenizer), tmp_path_factory.mktemp("gpt") / "lm")


def template(desk: Desk, folder: Path) -> Path:
    """One with the labels of the desk's reviews."""
    with (desk / "test.csv").open() as file:
        labels = sorted({row["label"] for row in csv.DictReader(file)})
    words = "".join(f"'{label}' = ['{word}']\n" for label, word in zip(labels, ("bad", "great"), strict=True))
    path = folder / "mine.toml"
    path.write_text(f'name = "mine"\ndescription = ""\nexample = "{{text}} It was {{label}}."\n[verbaliser]\n{words}')
    return path


@pytest.mark.parametrize("family", ["gpt", "awd_lstm"])
def test_answers_and_how_good_they_are(desk: Desk, tiny_gpt: Path, tmp_path: Path, family: str) -> None:
    model, out = {"gpt": tiny_gpt, "awd_lstm": desk.lm}[family], tmp_path / "answers.csv"
    arguments = ["prompt", model, desk / "test.csv", "--template", template(desk, tmp_path), "--shots", "2"]
    arguments += ["--examples", desk / "train.csv", "--scoring", "length", "--calibrate", "--json", "--threads", "1"]
    result = call(*arguments, "--out", out)
    assert result.code == 0, result
    found = result.json()
    assert (found["out"], found["texts"]) == (str(out), 20)
    with out.open() as file:
        rows = list(csv.DictReader(file))
    with (desk / "test.csv").open() as file:
        labels = [row["label"] for row in csv.DictReader(file)]
    right = sum(row["label"] == label for row, label in zip(rows, labels, strict=True))
    accuracy = found["evaluation"]["accuracy"]
    assert accuracy["mean"] == pytest.approx(right / 20)
    assert accuracy["low"] < accuracy["high"]
    assert found["evaluation"]["most_frequent"]["mean"] == max(labels.count(name) for name in set(labels)) / 20
    assert [int(row["line"]) for row in rows] == list(range(2, 22))
    assert all(float(row[f"p({row['label']})"]) >= 0.5 for row in rows)
    again = call(*arguments).json()
    assert [a["label"] for a in again["answers"]] == [row["label"] for row in rows]


def test_what_a_person_reads(desk: Desk, tmp_path: Path, run: Program) -> None:
    mine = template(desk, tmp_path)
    result = run("prompt", desk.lm, desk / "test.csv", "-t", mine)
    lines = [json.loads(line) for line in result.out.splitlines()]
    assert len(lines) == 20
    assert set(lines[0]) == {"line", "text", "input_label", "label", "probabilities"}
    assert "% [" in result.err
    assert "the majority class" in result.err
    drawn = run("prompt", desk.lm, desk / "test.csv", "-t", mine, "--shots", "3", "--json").json()
    assert len(drawn["answers"]) == drawn["evaluation"]["texts"] == 17
    text = tmp_path / "texts.txt"
    text.write_text("one\ntwo\n")
    assert "evaluation" not in run("prompt", desk.lm, text, "-t", mine, "--json").json()


def test_pairs_choices_and_written_answers(tiny_gpt: Path, tmp_path: Path, run: Program) -> None:
    pairs = write_csv(tmp_path / "p.csv", [("a", "b", "entailment")], ("premise", "hypothesis", "label"))
    assert run("prompt", tiny_gpt, pairs, "-t", "entailment", "--json").json()["evaluation"]["texts"] == 1
    rows = [("It rained.", "We got wet.", "No.", "1"), ("He ran.", "Why?", "Late.", "2")]
    choices = write_csv(tmp_path / "c.csv", rows, ("premise", "choice1", "choice2", "label"))
    options = [row["option"] for row in run("prompt", tiny_gpt, choices, "-t", "choice", "--json").json()["answers"]]
    assert options[0] in rows[0]
    assert options[1] in rows[1]
    text = tmp_path / "texts.txt"
    text.write_text("one\ntwo\n")
    written = run("prompt", tiny_gpt, text, "-t", "summarise", "--json").json()["answers"]
    assert [set(row) for row in written] == [{"line", "input_text", "text"}] * 2


def test_help_and_mistakes(desk: Desk, tmp_path: Path, run: Program) -> None:
    assert "Example: textgraft prompt" in " ".join(run("prompt", "--help").out.split())
    data, mine = desk / "test.csv", template(desk, tmp_path)
    run("prompt", desk.lm, data).mistake("template")
    run("prompt", desk.lm, data, "-t", "sentimnt").mistake("sentimnt", "Did you mean 'sentiment'")
    run("prompt", desk.lm, data, "-t", mine, "--scoring", "sun").mistake("unknown scoring 'sun'", "'sum'")
    run("prompt", desk.lm, data, "-t", mine, "--out", tmp_path / "a.xls").mistake(".csv, .tsv or .jsonl")
    run("prompt", desk.lm, data, "-t", mine, "--shots", "30").mistake("30 examples are more than the 20 with")
    run("prompt", desk.classifier, data, "-t", mine).mistake("cannot generate text")
    mine.write_text(mine.read_text().replace("{text}", "{txet}"))
    run("prompt", desk.lm, data, "-t", mine).mistake("mine.toml", "'{txet}' in example", "'text'")


def test_templates_are_listed(run: Program) -> None:
    found = {r["name"]: r["stages"] for r in run("recipes", "--json").json()["recipes"]}
    assert found["sentiment"] == ["prompt"]
    assert found["summarise"] == ["prompt"]
