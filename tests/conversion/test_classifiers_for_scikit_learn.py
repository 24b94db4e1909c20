"""A classifier as a sentence encoder and a linear layer: README.md's own lines give the classifier's predictions."""

from __future__ import annotations

import json
import re
import runpy
import sys
import types
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_up_questions import TEXT, encoder
from safetensors.numpy import load_file
from tiny_checkpoints import save_checkpoint

from textgraft.conversion.convert import convert
from textgraft.data.labels import Labels
from textgraft.models import artifact, loading
from textgraft.models.artifact import Artifact
from textgraft.models.model import graft
from textgraft.models.sentence_embedding import SentenceEmbedding
from textgraft.nn.dense import Dense, DenseConfig

TEXTS = ["What is it?", "the film", " ".join(TEXT.split()[:9]), "", "Which film was it, and who saw it"]
LABELS = {
    "two classes": Labels("single", ("neg", "pos")),
    "three classes": Labels("single", ("a", "b", "c")),
    "two labels": Labels("multi", ("a", "b")),
    "three labels": Labels("multi", ("a", "b", "c")),
    "number": Labels("numeric", mean=30.0, std=7.5),
}
WIDTH, LENGTH = 16, 40


class SentenceEncoder:
    """What README.md asks of the library's class, computed by textgraft from the folder alone."""

    def __init__(self, folder: str) -> None:
        self.source = loading.load_network(f"hf:{Path(folder).resolve()}")
        self.max_seq_length = 0

    def __delitem__(self, steps: slice) -> None:
        embedding = self.source.embedding
        assert embedding is not None
        kept = embedding.dense[: steps.start - 2]
        self.source = replace(self.source, embedding=replace(embedding, dense=kept, normalize=False))

    def encode(self, texts: list[str]) -> np.ndarray:
        embedding = self.source.embedding
        assert embedding is not None
        source = replace(self.source, embedding=replace(embedding, max_length=self.max_seq_length))
        return source.embed(texts, precision="fp32")


def dense_layer() -> Dense:
    layer = Dense(WIDTH, DenseConfig(6, activation="tanh"))
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return layer.requires_grad_(False)


def classifier(labels: Labels, embedding: SentenceEmbedding | None, run: dict[str, Any], **head: Any) -> Artifact:
    """A tiny BERT with a random head on pooled vectors."""
    made = encoder("bert")
    description = made.model.describe()
    description["encoder"]["pooler"] = False
    described = {"name": "classification", "input_dim": WIDTH, "outputs": labels.num_outputs, "kind": labels.kind}
    described |= {"direction": "both", "pooling": "mean", "hidden_dim": 0, "batch_norm": False}
    model = graft(made.model.encoder, description | {"head": {**described, **head}}, 5).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:  # wider than fresh ones, so that texts differ
                torch.nn.init.normal_(parameter, std=0.3, generator=torch.Generator().manual_seed(len(parameter)))
        for layer, given in zip(model.head.dense, () if embedding is None else embedding.dense, strict=False):  # type: ignore[arg-type,call-overload]
            layer.load_state_dict(given.state_dict())
    about = {"stage": "finetune", "max_tokens": LENGTH, "temperature": 1.7, **run}
    return Artifact(model, made.tokenizer, labels, about, embedding=embedding)


def written(source: Artifact, tmp_path: Path) -> Path:
    artifact.save(source, tmp_path / "ours")
    return convert(tmp_path / "ours", tmp_path / "folder", to="sentence-transformers")


def rebuilt(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """The names after README.md's lines have run in the folder."""
    found = re.search(r"```python\n(.*?)```", (folder / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    library = types.ModuleType("sentence_transformers")
    library.SentenceTransformer = SentenceEncoder  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", library)
    monkeypatch.chdir(folder)
    (tmp_path / "lines.py").write_text(found[1])
    return runpy.run_path(str(tmp_path / "lines.py"))


def predictions(source: Artifact) -> np.ndarray:
    assert source.labels is not None
    return source.labels.unscaled(source.outputs(TEXTS, "fp32"))


UNIT = SentenceEmbedding("mean", normalize=True)
WITH_DENSE = SentenceEmbedding("mean", normalize=True, dense=(dense_layer(),))
TANH = {"dense": (DenseConfig(6, activation="tanh"),)}


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize(
    ("embedding", "head", "modules"),
    [
        (UNIT, {"normalize": True}, 3),
        (UNIT, {}, 2),
        (WITH_DENSE, {**TANH, "normalize": True}, 4),
        (WITH_DENSE, TANH, 3),
        (WITH_DENSE, {}, 2),
        (None, {"pooling": "first"}, 2),
        (None, {"pooling": "concat"}, 2),
    ],
)
def test_the_estimator_of_the_card_predicts_as_the_classifier(
    kind: str,
    embedding: SentenceEmbedding | None,
    head: dict[str, Any],
    modules: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    labels = LABELS[kind]
    run = {"temperature": None} if labels.kind == "numeric" else {}
    source = classifier(labels, embedding, run, **head)
    folder = written(source, tmp_path)
    about = json.loads((folder / "classifier.json").read_text())
    assert (about["modules"], about["max_tokens"]) == (modules, LENGTH)
    assert about["classes"] == list(labels.names)
    shapes = {name: list(value.shape) for name, value in load_file(folder / "classifier.safetensors").items()}
    assert shapes == {"coef": about["coef"], "intercept": about["intercept"]}
    made = rebuilt(folder, monkeypatch, tmp_path)
    estimator, vectors = made["estimator"], made["encoder"].encode(TEXTS)
    method = estimator.predict if labels.kind == "numeric" else estimator.predict_proba
    expected = predictions(source)
    assert np.ptp(expected, axis=0).max() > 0.01, "texts are told apart"
    np.testing.assert_allclose(method(vectors), expected, rtol=1e-5, atol=1e-5)
    if labels.kind == "single":
        assert list(estimator.predict(vectors)) == [labels.names[i] for i in expected.argmax(1)]
    elif labels.kind == "multi":
        np.testing.assert_array_equal(estimator.predict(vectors), expected >= 0.5)


def test_the_files_are_json_safetensors_and_text(tmp_path: Path) -> None:
    folder = written(classifier(LABELS["two classes"], UNIT, {}, normalize=True), tmp_path)
    suffixes = {path.suffix for path in folder.rglob("*") if path.is_file()}
    assert suffixes == {".json", ".safetensors", ".txt", ".md"}
    about = json.loads((folder / "classifier.json").read_text())
    expected = {"estimator": "LogisticRegression", "kind": "single", "classes": ["neg", "pos"], "temperature": 1.7}
    assert expected.items() <= about.items()
    assert (about["coef"], about["intercept"]) == ([1, WIDTH], [1])


@pytest.mark.parametrize(
    ("embedding", "run", "head", "reason"),
    [
        (UNIT, {}, {"hidden_dim": 4}, "it has a hidden layer"),
        (UNIT, {}, {"batch_norm": True}, "it normalises batches"),
        (UNIT, {}, {"pooling": "max"}, "its pooling is 'max', and that of the vectors 'mean'"),
        (UNIT, {"reads": "pairs"}, {}, "it is for pairs of texts"),
        (UNIT, {}, {"words_dim": WIDTH}, "it takes the embedding layer too"),
        (SentenceEmbedding("mean"), {}, {"normalize": True}, "scaling to length 1 are not those of the vectors"),
        (
            SentenceEmbedding("mean", prompts={"query": "What "}, default_prompt="query", pools_prompt=False),
            {},
            {},
            "it pools the prompt, and the vectors leave it out",
        ),
    ],
)
def test_another_head_is_left_out_with_its_reason(
    embedding: SentenceEmbedding, run: dict[str, Any], head: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    source = classifier(LABELS["two classes"], embedding, run, **head)
    with pytest.warns(UserWarning, match=f"the encoder only: the classifier's head is left out, since .*{reason}"):
        folder = written(source, tmp_path)
    assert not list(folder.glob("classifier*"))
    assert "scikit-learn" not in (folder / "README.md").read_text(encoding="utf-8")
    vectors = loading.load_network(f"hf:{folder}").embed(TEXTS, precision="fp32")
    np.testing.assert_allclose(vectors, source.embed(TEXTS, precision="fp32"), rtol=1e-5, atol=1e-6)


def test_dense_layers_that_were_trained_further_are_not_mistaken_for_the_encoders(tmp_path: Path) -> None:
    source = classifier(LABELS["two classes"], WITH_DENSE, {}, **TANH)
    with torch.no_grad():
        source.model.head.dense[0].weight.add_(0.1)  # type: ignore[union-attr,index,operator]
    with pytest.warns(UserWarning, match="its dense layers or scaling to length 1 are not those of the vectors"):
        written(source, tmp_path)


def test_a_model_without_labels_has_no_layer_and_no_warning(tmp_path: Path) -> None:
    artifact.save(encoder("bert"), tmp_path / "ours")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        folder = convert(tmp_path / "ours", tmp_path / "folder", to="sentence-transformers")
    assert not list(folder.glob("classifier*"))


def test_a_network_that_runs_through_the_library_has_its_layer_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head that --to huggingface leaves out, saying where it can go."""
    pytest.importorskip("transformers")
    bare = loading.load_network(f"hf:{save_checkpoint('electra', tmp_path / 'electra')}")
    labels, width = LABELS["three classes"], bare.model.encoder.output_dim
    head = {"name": "classification", "input_dim": width, "outputs": 3, "direction": "both", "pooling": "mean"}
    head |= {"hidden_dim": 0, "batch_norm": False, "normalize": True}
    model = graft(bare.model.encoder, bare.model.describe() | {"head": head}, 5).eval()
    run = {"stage": "finetune", "max_tokens": 64, "temperature": 0.2}
    source = Artifact(model, bare.tokenizer, labels, run, embedding=UNIT)
    folder = written(source, tmp_path)
    made = rebuilt(folder, monkeypatch, tmp_path)
    found = made["estimator"].predict_proba(made["encoder"].encode(TEXTS))
    np.testing.assert_allclose(found, predictions(source), rtol=1e-5, atol=1e-5)
    with pytest.warns(UserWarning, match='is left out.*can be written with to="sentence-transformers"'):
        convert(tmp_path / "ours", tmp_path / "theirs", to="huggingface")
