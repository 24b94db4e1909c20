"""Taggers and readers as graphs: what `textgraft tag` and `textgraft qa` make of them, without torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from made_up_questions import write_encoder as write_reader
from made_up_questions import write_questions, write_recipe
from made_up_tags import write_encoder, write_sentences
from programs import Program, environment

WITHOUT_TORCH = """
import sys

for name in ("torch", "scipy", "sklearn", "duckdb", "pandas", "safetensors", "matplotlib", "onnx", "transformers"):
    sys.modules[name] = None
from textgraft.cli import main

main(sys.argv[1:])
"""


def without_torch(*arguments: str | Path) -> str:
    command = [sys.executable, "-c", WITHOUT_TORCH, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, env=environment(), check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def texts(folder: Path) -> Path:
    (folder / "texts.txt").write_text("the captain sees the river in London .\n" * 60)
    return folder / "texts.txt"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentences, questions, tiny encoders for them, and a recipe."""
    folder = tmp_path_factory.mktemp("tasks")
    for name, count, seed in (("train", 60, 1), ("test", 12, 2)):
        write_sentences(folder / f"{name}.conll", count, seed, names=True)
        write_questions(folder / f"{name}.json", count, seed)
    write_recipe(folder, 8)
    for part, write in (("tag", write_encoder), ("qa", write_reader)):
        (folder / part).mkdir()
        write(folder / part, "bert")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--crf", "--scheme", "BIOES")], ids=["legal", "crf"])
def test_a_tagger_and_its_graph_say_the_same(run: Program, folder: Path, tmp_path: Path, more: tuple[str, ...]) -> None:
    common = ("--model", folder / "tag" / "bert", "--recipe", folder / "quick-8.toml", "--max-tokens", "12", "--quiet")
    tagger, graph, test = tmp_path / "tagger", tmp_path / "graph", folder / "test.conll"
    done = run("tag", "finetune", folder / "train.conll", "--test", test, *common, "--out", tagger, *more)
    assert done.code == 0, done
    assert run("export", tagger, "--onnx", graph, "--json").json()["difference"] < 1e-5
    long = " ".join(["the captain sees the river in London ."] * 3)  # of several windows
    for asked in ((test,), ("--input-text", long, "--format", "json")):
        shown = run("tag", "predict", tagger, *asked, "--precision", "fp32").out
        found = without_torch("tag", "predict", graph, *asked)
        if "json" not in asked:
            assert found == shown
            continue
        ours, theirs = ([(w["tag"], w["probability"]) for w in json.loads(text)["words"]] for text in (found, shown))
        assert [tag for tag, _ in ours] == [tag for tag, _ in theirs]
        assert [p for _, p in ours] == pytest.approx([p for _, p in theirs], abs=2e-6)
    scores = [run("tag", "evaluate", m, test, "--precision", "fp32", "--json").json()["f1"] for m in (tagger, graph)]
    assert scores[0] == scores[1]
    run("predict", graph, "--input-text", "good").mistake("it tags words", "textgraft tag")
    int8 = run("export", tagger, "--onnx", tmp_path / "int8", "--int8", "--texts", texts(tmp_path), "--json").json()
    assert int8["same"] >= 0.99
    assert without_torch("tag", "predict", tmp_path / "int8", "--input-text", long).count("captain") == 3
    run("qa", "answer", graph, folder / "test.json").mistake("does not answer questions")


@pytest.mark.slow
def test_a_reader_and_its_graph_say_the_same(run: Program, folder: Path, tmp_path: Path) -> None:
    common = ("--model", folder / "qa" / "bert", "--recipe", folder / "quick-8.toml", "--max-tokens", "24", "--quiet")
    reader, graph, test = tmp_path / "reader", tmp_path / "graph", folder / "test.json"
    done = run("qa", "finetune", folder / "train.json", "--test", test, *common, "--stride", "6", "--out", reader)
    assert done.code == 0, done
    assert run("export", reader, "--onnx", graph, "--json").json()["difference"] < 1e-5
    shown = run("qa", "answer", reader, test, "--precision", "fp32", "--quiet").out
    assert without_torch("qa", "answer", graph, test, "--quiet") == shown
    scores = [run("qa", "evaluate", m, test, "--precision", "fp32", "--json").json() for m in (reader, graph)]
    assert scores[0] == scores[1]
    run("tag", "predict", graph, "--input-text", "good").mistake("does not tag words")
    run("predict", graph, "--input-text", "good").mistake("it answers questions", "textgraft qa")
    int8 = ("export", reader, "--onnx", tmp_path / "int8", "--int8", "--texts", texts(tmp_path))
    run(*int8).mistake("int8 is not supported for QA models")
