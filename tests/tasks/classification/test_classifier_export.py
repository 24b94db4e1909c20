"""Linear classifiers and ensembles exported: the same answers without torch, and each encoder one graph."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from one_encoder import LABELS, TARGETS, TEXTS, members_on, probe_of, tiny_encoder

import textgraft
from textgraft import UserError
from textgraft.core.lazy import resolve
from textgraft.data.examples import Pair
from textgraft.linear.artifact import LinearArtifact
from textgraft.linear.baselines import LinearBaseline
from textgraft.linear.methods import LINEAR_METHODS, FeatureMaps
from textgraft.models import artifact, shared_files
from textgraft.models.artifact import Artifact
from textgraft.tasks import export as exporting
from textgraft.tasks.classification import classifier_export
from textgraft.tasks.classification.ensemble import save_ensemble
from textgraft.tasks.classification.predictor import Classifier

WITHOUT_TORCH = """
import sys


class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "duckdb", "pandas", "matplotlib", "onnx", "transformers"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
from textgraft.tasks.classification.service import ClassificationService
import textgraft

for prediction in textgraft.load(sys.argv[1]).predict(sys.argv[2:]):
    print(prediction.label, prediction.confidence)
"""


@pytest.fixture(scope="module")
def encoder() -> Artifact:
    return tiny_encoder()


@pytest.fixture(scope="module")
def members(encoder: Artifact, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return members_on(encoder, tmp_path_factory.mktemp("maps"))


def same_without_torch(folder: Path, expected: Any) -> None:
    texts = [*TEXTS[:3], ""]

    command = [sys.executable, "-c", WITHOUT_TORCH, str(folder), *texts]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = [line.split() for line in done.stdout.splitlines()]
    predictions = list(expected.predict(texts))
    assert [label for label, _ in found] == [p.label for p in predictions]
    np.testing.assert_allclose([float(c) for _, c in found], [p.confidence for p in predictions], atol=1e-5)


@pytest.mark.slow
def test_an_ensemble_on_one_encoder(
    members: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_files, "MIN_BYTES", 1000)
    source = save_ensemble(members, {"stage": "finetune"}, tmp_path / "both", weights=[3, 1])
    done = exporting.export(source, tmp_path / "graph")
    assert done.difference < 1e-5
    graphs = list((tmp_path / "graph").rglob("*.onnx"))
    assert [path.parent.name for path in graphs] == ["shared"]
    original, exported = (textgraft.load(path, precision="fp32") for path in (source, tmp_path / "graph"))
    texts = [*TEXTS, " ".join(TEXTS)]  # the last is longer than the encoder takes
    np.testing.assert_allclose(exported.outputs(texts), original.outputs(texts), atol=1e-5)
    encoded = []
    graph = resolve("textgraft.models.encoder_graph:EncoderGraph")
    run_graph = graph.run_graph
    monkeypatch.setattr(
        graph, "run_graph", lambda self, rows, *more: encoded.extend(rows) or run_graph(self, rows, *more)
    )
    exported.outputs(TEXTS[:7])
    assert len(encoded) == 7
    same_without_torch(tmp_path / "graph", original)
    with pytest.raises(UserError, match="this is an exported graph"):
        exporting.export(tmp_path / "graph", tmp_path / "again")
    for name in members:
        assert list(textgraft.predict(tmp_path / "graph" / name, TEXTS[:2]))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["linear", "lsa", "co-training"])
def test_a_linear_classifier(method: str, tmp_path: Path) -> None:
    unfitted = LINEAR_METHODS[method].classifier(FeatureMaps(TEXTS, tmp_path / "maps"), 0)
    fitted = unfitted.fit(TEXTS, TARGETS, kind="single", num_classes=2).fitted
    source = artifact.save(LinearArtifact(fitted, LABELS, {"stage": "finetune"}), tmp_path / "linear")
    done = exporting.export(source, tmp_path / "exported")
    assert (done.difference, done.megabytes > 0) == (0, True)
    same_without_torch(tmp_path / "exported", textgraft.load(source))
    with pytest.raises(UserError, match="no network in this classifier to store in int8"):
        exporting.export(source, tmp_path / "small", int8=True, texts=TEXTS)


def test_a_network_that_shares_nothing_and_a_linear_classifier_beside_it(
    encoder: Artifact,
    tmp_path: Path,
) -> None:
    linear = LinearBaseline().fit(TEXTS, TARGETS, kind="single", num_classes=2).fitted
    both = {"probe": probe_of(encoder), "linear": LinearArtifact(linear, LABELS, {"stage": "finetune"})}
    source = save_ensemble(both, {"stage": "finetune"}, tmp_path / "both")
    exporting.export(source, tmp_path / "graph", texts=TEXTS)
    assert (tmp_path / "graph" / "probe" / "model.onnx").is_file()
    original, exported = (textgraft.load(path, precision="fp32") for path in (source, tmp_path / "graph"))
    np.testing.assert_allclose(exported.outputs(TEXTS), original.outputs(TEXTS), atol=1e-5)


def test_int8_is_held_to_the_predictions_of_the_whole(
    members: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = save_ensemble(members, {"stage": "finetune"}, tmp_path / "both")
    whole = exporting.export(source, tmp_path / "whole", texts=TEXTS)
    small = exporting.export(source, tmp_path / "small", int8=True, texts=TEXTS)
    assert small.megabytes < whole.megabytes
    assert small.same is not None
    assert small.same >= exporting.MIN_AGREEMENT
    assert small.texts == len(TEXTS)
    monkeypatch.setattr(exporting, "MIN_AGREEMENT", 1.01)
    with pytest.raises(UserError, match="of the predictions are the same"):
        exporting.export(source, tmp_path / "none", int8=True, texts=TEXTS)
    with pytest.raises(UserError, match="exists already"):
        exporting.export(source, tmp_path / "small")
    assert not (tmp_path / "none").exists()


def test_one_that_differs_is_not_written(
    members: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = save_ensemble(members, {"stage": "finetune"}, tmp_path / "both")
    whole = classifier_export.exported

    def wrong(models: Any) -> Any:
        made = whole(models)
        return type(made)(dict(made.members), [9.0, 0.1], made.saved_weights, made.run)

    monkeypatch.setattr(classifier_export, "exported", wrong)
    with pytest.raises(UserError, match="differ from the model's by up to"):
        exporting.export(source, tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_a_linear_classifier_of_pairs(tmp_path: Path) -> None:
    pairs = [Pair(one, other) for one, other in zip(TEXTS, TEXTS[::-1], strict=True)]
    fitted = LinearBaseline().fit(pairs, TARGETS, kind="single", num_classes=2).fitted
    source = artifact.save(LinearArtifact(fitted, LABELS, {"stage": "finetune", "reads": "pairs"}), tmp_path / "m")
    exporting.export(source, tmp_path / "exported")
    np.testing.assert_array_equal(
        textgraft.load(tmp_path / "exported").outputs(pairs), textgraft.load(source).outputs(pairs)
    )


def test_an_encoder_without_an_exporter_is_refused_by_name(
    members: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = artifact.save(members["co-training"], tmp_path / "m")
    monkeypatch.setattr("textgraft.tasks.network_graph.families", set)
    with pytest.raises(UserError, match="the encoder 'tiny': the family BERT cannot be exported"):
        exporting.export(source, tmp_path / "x")


def test_a_network_keeps_the_beginning_of_a_long_text_as_the_original(encoder: Artifact, tmp_path: Path) -> None:
    probe = probe_of(encoder)
    probe.run["max_tokens"] = 40  # of which the encoder's own maximum leaves 24
    source = artifact.save(probe, tmp_path / "probe")
    exporting.export(source, tmp_path / "graph")
    config = json.loads((tmp_path / "graph" / "config.json").read_text())
    assert (config["onnx"]["max_tokens"], config["onnx"]["beginnings"]) == (24, True)
    texts = [" ".join(TEXTS[i : i + 9]) for i in range(20)]
    expected = Classifier([probe], precision="fp32").outputs(texts)
    np.testing.assert_allclose(textgraft.load(tmp_path / "graph").outputs(texts), expected, atol=1e-5)
