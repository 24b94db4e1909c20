"""`textgraft inspect words`, `geometry`, `weights` and `layer_aggregations` as their users run them."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from made_up_tags import write_encoder, write_sentences
from programs import Desk, Program, call, unchanged

FROZEN = """
name = "frozen quick"
description = "For tests"
source = "none"
[finetune]
batch_size = 16
[[finetune.phases]]
name = "head"
epochs = 2
trainable = 1
lr = 0.05
"""
SMALL = ("--words", "5", "--contexts", "3", "--random", "20", "--sentences", "4", "--precision", "fp32")


def drawn(page: Path) -> list[str]:
    """The words of each plot; the page fetches nothing."""
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"(?:src|href)=\"(?!#)", text)
    assert "How to read it" in text
    plots = [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL)]
    return [" ".join(part for part in svg.itertext() if part.strip()) for svg in plots]


def test_words_as_json(desk: Desk, tmp_path: Path) -> None:
    out = tmp_path / "words"
    arguments = ["inspect", "words", desk.lm, desk / "pool.txt", "--word", "actor", "--word", "FILM", "--out", out]
    shown = call(*arguments, "--occurrences", "5", "--neighbours", "2", "--pool", "20", "--json")
    assert shown.code == 0, shown
    assert "all words with lm" in shown.err  # the progress
    found = shown.json()
    assert {k: v for k, v in found.items() if k not in ("out", "report")} == json.loads(
        (out / "results.json").read_text()
    )
    assert [(one["word"], len(one["occurrences"])) for one in found["words"]] == [("actor", 5), ("film", 5)]
    assert [len(near) for near in found["words"][0]["layers"][0]["neighbours"]] == [2] * 5
    plots = drawn(out / "report.html")
    assert len(plots) == 2
    assert "layer 3" in plots[0]
    assert "The film was" in plots[1]  # what the pointer shows


def test_words_in_sentences_alone(desk: Desk, tmp_path: Path, run: Program) -> None:
    out = tmp_path / "words"
    given = ["--sentence", "The plot was great.", "--sentence", "The awful plot"]
    shown = run("inspect", "words", desk.lm, "--word", "plot", *given, "--out", out, "--quiet")
    assert (shown.code, shown.err) == (0, ""), shown
    assert "plot: nearest words in layer 3" in shown.out
    assert shown.out.splitlines()[-1] == f"Written: {out / 'report.html'}, {out / 'results.json'}"


def test_geometry_says_what_the_page_says(desk: Desk, tmp_path: Path, run: Program) -> None:
    out = tmp_path / "geometry"
    shown = run("inspect", "geometry", desk.lm, desk / "pool.txt", *SMALL, "--out", out, "--quiet")
    assert (shown.code, shown.err) == (0, ""), shown
    results = json.loads((out / "results.json").read_text())
    assert [layer["name"] for layer in results["layers"]] == ["embeddings", "layer 1", "layer 2", "layer 3"]
    for layer in results["layers"]:
        value = layer["raw"]["self_similarity"]
        row = next(line for line in shown.out.splitlines() if line.strip().startswith(layer["name"]))
        assert f"{value['mean']:.2f} [{value['low']:.2f}, {value['high']:.2f}]" in row
    assert results["verdict"][0] in shown.out
    assert len(drawn(out / "report.html")) == 2


def test_readouts_of_tags_and_then_their_weights(tmp_path: Path, run: Program) -> None:
    write_encoder(tmp_path, "bert", num_layers=2)
    for name, seed in (("train", 1), ("test", 2)):
        write_sentences(tmp_path / f"{name}.conll", 12, seed)
    (tmp_path / "quick.toml").write_text(FROZEN)
    about = [tmp_path / "train.conll", "--test", tmp_path / "test.conll", "--model", tmp_path / "bert"]
    about += ["--recipe", tmp_path / "quick.toml", "--precision", "fp32", "--quiet"]
    out = tmp_path / "out"
    more = ["--layer-aggregations", "last,mix,concat-last-4", "--seeds", "1", "--sample", "10", "--test-sample", "8"]
    shown = run("inspect", "layers", *about, *more, "--out", out)
    assert (shown.code, shown.err) == (0, ""), shown
    assert "Left out: the layer aggregation 'concat-last-4' needs 4 layers" in shown.out
    results = json.loads((out / "results.json").read_text())
    assert results["sizes"] == {"train": 10, "test": 8}
    assert [row["layer_aggregation"] for row in results["rows"]] == ["last", "mix"]
    assert len(drawn(out / "report.html")) == 1
    tagger = tmp_path / "tagger"
    assert run("tag", "finetune", *about, "--layer-aggregation", "mix", "--out", tagger).code == 0
    told = run("inspect", "weights", tagger, "--out", tmp_path / "weights", "--json").json()
    assert told["models"][0]["layer_aggregation"] == "mix"
    assert sum(told["models"][0]["shares"]) == pytest.approx(1)
    assert "layer 2" in drawn(tmp_path / "weights" / "report.html")[0]


def test_readouts_of_a_table(desk: Desk, tmp_path: Path, run: Program) -> None:
    (tmp_path / "quick.toml").write_text(FROZEN)
    about = [desk / "train.csv", "--test", desk / "test.csv", "--model", desk.lm, "--recipe", tmp_path / "quick.toml"]
    more = [
        "--seeds",
        "1",
        "--layer-aggregations",
        "first,last",
        "--precision",
        "fp32",
        "--out",
        tmp_path / "out",
        "--json",
    ]
    found = run("inspect", "layers", *about, *more, "--quiet").json()
    assert (found["unit"], found["sizes"]) == ("texts", {"train": 24, "test": 20})


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["words", "LM", "--word", "film"], ("there is no text", "--sentence")),
        (["words", "LM", "POOL"], ("no words are given", "--word")),
        (["words", "LM", "POOL", "--word", "zebra"], ("'zebra' does not occur in",)),
        (["words", "LM", "POOL", "--word", "film", "--projection", "pac"], ("Did you mean 'pca'",)),
        (["words", "LM", "missing.txt", "--word", "film"], ("missing.txt",)),
        (["words", "nobody", "POOL", "--word", "film"], ("nobody",)),
        (["geometry", "LM", "POOL", "--contexts", "5000"], ("words occur in 5000 different sentences", "--contexts")),
        (["weights", "LM"], ("has no learned mix", "--layer-aggregation mix or elmo-mix")),
        (["weights", "nobody"], ("nobody",)),
        (["layers", "TRAIN", "--test", "TEST", "--model", "LM", "--layer-aggregations", "sum"], ("allows none",)),
        (
            ["layers", "TRAIN", "--test", "TEST", "--model", "LM", "--layer-aggregations", "lst"],
            ("Did you mean 'last'",),
        ),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(
    arguments: list[str], told: tuple[str, ...], desk: Desk, tmp_path: Path, run: Program
) -> None:
    paths = {"LM": desk.lm, "POOL": desk / "pool.txt", "TRAIN": desk / "train.csv", "TEST": desk / "test.csv"}
    with unchanged(tmp_path):
        command = [str(paths.get(word, word)) for word in arguments]
        run("inspect", *command, "--out", tmp_path / "out").mistake(*told)


@pytest.mark.parametrize("verb", [["words", "LM", "POOL", "--word", "film"], ["weights", "LM"]])
def test_an_existing_folder_is_left_alone(verb: list[str], desk: Desk, tmp_path: Path, run: Program) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    command = [str({"LM": desk.lm, "POOL": desk / "pool.txt"}.get(word, word)) for word in verb]
    with unchanged(tmp_path):
        run("inspect", *command, "--out", tmp_path / "out").mistake("this path exists already", "Name another path")
