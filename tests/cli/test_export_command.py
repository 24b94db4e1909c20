"""textgraft export: a classifier as a graph that runs without torch, or a reason why not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from programs import Desk, Program

from textgraft import TextClassifier
from textgraft.core.errors import UserError
from textgraft.models import loading
from textgraft.models.graph import from_folder as load_graph
from textgraft.onnx.int8 import LADDER
from textgraft.tasks import export as exporting
from textgraft.tasks.classification.ensemble import save_ensemble
from textgraft.tasks.classification.predictor import load_classifier

WITHOUT_TORCH = """
import sys

for name in ("torch", "scipy", "sklearn", "duckdb", "pandas", "safetensors", "matplotlib", "onnx", "transformers"):
    sys.modules[name] = None
from textgraft.tasks.classification.predictor import load_classifier
from textgraft.core.errors import UserError

for prediction in load_classifier(sys.argv[1]).predict(sys.argv[2:]):
    print(prediction.label, prediction.confidence)
"""


@pytest.fixture(scope="module")
def exported(desk: Desk, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exporting.export(desk.classifier, tmp_path_factory.mktemp("exported") / "graph").out


def test_the_command_writes_a_model_that_predict_and_evaluate_take(desk: Desk, run: Program, tmp_path: Path) -> None:
    done = run("export", desk.classifier, "--onnx", tmp_path / "graph", "--json").json()
    assert done["difference"] < 1e-5
    assert done["same"] is None
    test = desk.folder / "test.csv"
    outputs = [run("predict", m, test).out for m in (tmp_path / "graph", desk.classifier)]
    graph, model = ([json.loads(line)["label"] for line in out.splitlines()] for out in outputs)
    assert graph == model
    scores = [run("evaluate", m, test, "--json").json()["accuracy"] for m in (tmp_path / "graph", desk.classifier)]
    assert scores[0] == scores[1]
    assert {"model.onnx", "tokenizer.json", "labels.json", "README.md"} <= {
        p.name for p in (tmp_path / "graph").iterdir()
    }


def test_a_graph_needs_no_torch(desk: Desk, exported: Path) -> None:
    texts = ["The film was great and superb.", "The film was awful the plot boring", ""]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, str(exported), *texts], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    expected = list(load_classifier(desk.classifier, precision="fp32").predict(texts))
    found = [line.split() for line in done.stdout.splitlines()]
    assert [label for label, _ in found] == [p.label for p in expected]
    np.testing.assert_allclose([float(c) for _, c in found], [p.confidence for p in expected], atol=1e-6)


def test_int8_is_written_only_where_answers_stay(
    desk: Desk, run: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("export", desk.classifier, "--onnx", tmp_path / "small", "--int8")
    run(*command).mistake("0 texts are too few", "--texts")
    with_texts = (*command, "--texts", desk.folder / "pool.txt")
    monkeypatch.setattr(exporting, "MIN_AGREEMENT", 1.01)
    run(*with_texts).mistake("of the predictions are the same", "Export it without --int8")
    assert not (tmp_path / "small").exists()
    monkeypatch.setattr(exporting, "MIN_AGREEMENT", 0.5)
    done = run(*with_texts, "--json").json()
    assert 0.5 <= done["same"] <= 1
    assert done["texts"] == 200
    assert done["difference"] > 0
    assert done["products"] == "all products with weights in int8"
    whole = exporting.export(desk.classifier, tmp_path / "whole")
    assert done["megabytes"] < 0.5 * whole.megabytes
    assert "Method: all products" in run(*with_texts, "--overwrite").out


def test_int8_takes_the_first_step_that_leaves_the_answers(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares = iter([0.97, 0.98, 0.994])
    monkeypatch.setattr(exporting, "_share_of_same", lambda model, before, after: next(shares))
    texts = (desk.folder / "pool.txt").read_text().splitlines()
    done = exporting.export(desk.classifier, tmp_path / "small", int8=True, texts=texts)
    assert (done.same, done.products) == (0.994, LADDER[-1])
    assert done.difference < 0.05
    assert list(load_classifier(tmp_path / "small").predict(texts[:3]))


def test_a_graph_that_differs_is_not_written(
    desk: Desk, run: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "largest_difference", lambda artifact, made: 0.25)
    run("export", desk.classifier, "--onnx", tmp_path / "graph").mistake("differ from the model's by up to 0.25")
    assert not (tmp_path / "graph").exists()


def test_what_is_no_classifier_is_refused(desk: Desk, run: Program, exported: Path, tmp_path: Path) -> None:
    run("export", desk.lm, "--onnx", tmp_path / "graph").mistake("only classifiers", "textgraft finetune")
    run("export", exported, "--onnx", tmp_path / "graph").mistake("this is an exported graph")
    run("export", desk.classifier, "--onnx", exported).mistake("exists already")
    run("embed", exported, desk.folder / "pool.txt", "--out", tmp_path / "v.npy").mistake("no vectors")


def test_a_damaged_folder_names_the_file(exported: Path, run: Program, tmp_path: Path) -> None:
    whole = {p.name: p.read_bytes() for p in exported.iterdir()}
    for name in ("model.onnx", "labels.json"):
        folder = tmp_path / name.replace(".", "-")
        folder.mkdir()
        for other, data in whole.items():
            (folder / other).write_bytes(data[:-3] if other == name else data)
        run("predict", folder, "--input-text", "good").mistake(name, "truncated or altered")
    config = json.loads(whole["config.json"])
    assert config["onnx"]["max_tokens"] > 0
    graph = load_graph(exported, config)
    assert graph.labels is not None
    assert graph.labels.names == ("neg", "pos")
    before = {name: value for name, value in config["onnx"].items() if name != "tokens_per_batch"}
    assert load_graph(exported, config | {"onnx": before}).tokens_per_batch == 16_384
    damaged = ({"max_tokens": 9, "tokens_per_batch": "all"}, {"max_tokens": 9, "stride": 3})
    for about in (*damaged, {"max_tokens": 9, "task": "generation"}, {"task": ["qa"]}, {}):
        with pytest.raises(UserError, match="not the config of a graph"):
            load_graph(exported, config | {"onnx": about})


def test_what_finetune_saves_without_a_recipe_is_exported_too(desk: Desk, run: Program, tmp_path: Path) -> None:
    texts, labels = ["great film", "great end", "poor film", "poor end"], ["pos", "pos", "neg", "neg"]
    linear = TextClassifier(method="linear").fit(texts, labels)
    folder = linear.save(tmp_path / "linear")
    assert run("export", folder, "--onnx", tmp_path / "counts", "--json").json()["difference"] == 0
    mixed = {"linear": linear.models_.members[0], "ulmfit": loading.open_model(desk.classifier)}
    save_ensemble(mixed, {}, tmp_path / "mixed", weights=[1, 3])
    command = ("export", tmp_path / "mixed", "--onnx", tmp_path / "both")
    assert run(*command, "--texts", desk.folder / "pool.txt", "--json").json()["difference"] < 1e-5
    assert (tmp_path / "both" / "ulmfit" / "model.onnx").is_file()
    test = desk.folder / "test.csv"
    outputs = [run("predict", model, test).out for model in (tmp_path / "both", tmp_path / "mixed")]
    found, expected = ([json.loads(line) for line in out.splitlines()] for out in outputs)
    assert [row["label"] for row in found] == [row["label"] for row in expected]
    run(*command).mistake("exists already", "pass --overwrite to replace it")
    assert "Outputs equal the original's" in run(*command, "--overwrite").out
    run("export", tmp_path / "both", "--onnx", tmp_path / "x").mistake("this is an exported graph")


def test_an_ensemble_is_not_converted(desk: Desk, run: Program, tmp_path: Path) -> None:
    """The message names the folders of its networks."""
    texts, labels = ["great film", "great end", "poor film", "poor end"], ["pos", "pos", "neg", "neg"]
    linear = TextClassifier(method="linear").fit(texts, labels)
    save_ensemble(dict.fromkeys(("a", "b"), linear.models_.members[0]), {}, tmp_path / "two")
    save_ensemble(
        {"linear": linear.models_.members[0], "ulmfit": loading.open_model(desk.classifier)}, {}, tmp_path / "mixed"
    )
    for to in ("huggingface", "sentence-transformers"):
        run("convert", tmp_path / "mixed", "--to", to, "--out", tmp_path / "x").mistake(
            "an ensemble of linear classifiers (linear) and networks (ulmfit)",
            f"Name a member that is a network: {tmp_path / 'mixed' / 'ulmfit'}.",
        )
    run("convert", tmp_path / "two", "--out", tmp_path / "x").mistake("linear classifiers (a, b)", "with a recipe")
