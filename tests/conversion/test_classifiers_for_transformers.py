"""Classifiers as AutoModelForSequenceClassification: logits, labels and probabilities; heads that it cannot have."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from made_up_questions import TEXT, encoder
from tiny_checkpoints import OWN, save_checkpoint

from textgraft.cli.console import as_options
from textgraft.conversion.convert import convert
from textgraft.core.errors import UserError
from textgraft.data.labels import Labels
from textgraft.models import artifact, loading
from textgraft.models.artifact import Artifact
from textgraft.models.model import build_fresh
from textgraft.models.sentence_embedding import SentenceEmbedding

TEXTS = ["What is it?", "the film", " ".join(TEXT.split()[:9]), "", "Which film was it, and who saw it"]
LABELS = {
    "single_label_classification": Labels("single", ("bad", "good", "so-so")),
    "multi_label_classification": Labels("multi", ("bad", "good", "so-so")),
    "regression": Labels("numeric", mean=30.0, std=7.5),
}
SHAPES: dict[str, dict[str, Any]] = {
    "bert": {"pooling": "pooled", "hidden_dim": 0},
    "distilbert": {"pooling": "first", "hidden_dim": 16},
}
WIDTH = 16


def classifier(kind: str, labels: Labels, embedding: SentenceEmbedding | None = None, **head: Any) -> Artifact:
    made = encoder("bert")
    description = made.model.describe()
    if kind == "distilbert":
        description["encoder"] |= {"num_segments": 0, "pooler": False}
    described = {"name": "classification", "input_dim": WIDTH, "outputs": labels.num_outputs, "kind": labels.kind}
    described |= {"direction": "both", "batch_norm": False, **SHAPES[kind]}
    model = build_fresh(description | {"head": {**described, **head}}, 2).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:  # wider than fresh ones, so that texts differ
                torch.nn.init.normal_(parameter, std=0.3, generator=torch.Generator().manual_seed(len(parameter)))
    temperature = None if labels.kind == "numeric" else 1.7
    run = {"stage": "finetune", "max_tokens": 40, "temperature": temperature}
    return Artifact(model, made.tokenizer, labels, run, embedding=embedding)


def logits_of(folder: Path, texts: Sequence[str] = TEXTS) -> tuple[Any, np.ndarray]:
    """The library's model, and its logits of single texts by the folder's own tokenizer."""
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        rows = [model(**tokenizer(text, return_tensors="pt")).logits[0].double().numpy() for text in texts]
    return model, np.stack(rows)


@pytest.mark.parametrize("problem", LABELS)
@pytest.mark.parametrize("kind", SHAPES)
def test_the_librarys_classifier_has_our_predictions_and_labels(kind: str, problem: str, tmp_path: Path) -> None:
    """Its logits are ours over the temperature, so that their softmax or sigmoids are our probabilities; a number is in
    the unit of the labels.
    """
    labels = LABELS[problem]
    source = classifier(kind, labels)
    artifact.save(source, tmp_path / "ours")
    folder = convert(tmp_path / "ours", tmp_path / "theirs", to="huggingface")
    model, logits = logits_of(folder)
    assert type(model).__name__ == {"bert": "Bert", "distilbert": "DistilBert"}[kind] + "ForSequenceClassification"
    assert model.config.problem_type == problem
    names = labels.names or ("LABEL_0",)
    assert model.config.id2label == dict(enumerate(names))
    assert model.config.label2id == {name: i for i, name in enumerate(names)}
    outputs = source.outputs(TEXTS, "fp32")
    if problem == "regression":
        expected, found = labels.unscaled(outputs), logits[:, 0]
    elif problem == "multi_label_classification":
        expected, found = outputs, 1 / (1 + np.exp(-logits))
    else:
        expected, found = outputs, np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assert np.ptp(expected, axis=0).max() > 0.01
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    back = loading.load_network(f"hf:{folder}")
    np.testing.assert_allclose(back.outputs(TEXTS, "fp32"), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [name for name in OWN if name != "gpt2"])
def test_every_family_with_such_a_class_has_it(kind: str, tmp_path: Path) -> None:
    folder = save_checkpoint(kind, tmp_path / "published", auto="AutoModelForSequenceClassification", num_labels=3)
    source = loading.load_network(f"hf:{folder}")
    source = replace(source, labels=LABELS["single_label_classification"], run=source.run | {"temperature": 0.6})
    artifact.save(source, tmp_path / "ours")
    texts = [text for text in TEXTS if text]  # the library's Llama has no first token: an empty text has none at all
    model, logits = logits_of(convert(tmp_path / "ours", tmp_path / "theirs", to="huggingface"), texts)
    assert list(model.config.id2label.values()) == ["bad", "good", "so-so"]
    expected = source.outputs(texts, "fp32")
    assert np.ptp(expected, axis=0).max() > 0.01
    found = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_logits_without_a_temperature_are_ours(tmp_path: Path) -> None:
    source = classifier("bert", LABELS["single_label_classification"])
    source.run["temperature"] = 1.0
    artifact.save(source, tmp_path / "ours")
    _, logits = logits_of(convert(tmp_path / "ours", tmp_path / "theirs", to="huggingface"))
    expected = source.model.head.layers[1].weight.detach().double().numpy()  # type: ignore[union-attr,index]
    assert logits.shape == (len(TEXTS), len(expected))
    outputs = np.log(source.outputs(TEXTS, "fp32"))
    np.testing.assert_allclose(logits - logits[:, :1], outputs - outputs[:, :1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("head", "described"),
    [
        ({"pooling": "mean", "normalize": True}, "on pooling 'mean', scaled to length 1"),
        ({"pooling": "mean", "hidden_dim": 7}, "on pooling 'mean', with a hidden layer of 7"),
        ({"batch_norm": True}, "on pooling 'pooled', with batch normalisation"),
        ({"both_orders": True}, "on pooling 'pooled', on pairs in both orders"),
        ({"pooling": "mean", "dense": [{"output_dim": 5}]}, "on pooling 'mean', with dense layers"),
    ],
)
def test_a_head_that_the_library_has_not_is_named_with_the_other_way(
    head: dict[str, Any], described: str, tmp_path: Path
) -> None:
    artifact.save(classifier("bert", LABELS["single_label_classification"], **head), tmp_path / "ours")
    with pytest.raises(UserError) as caught:
        convert(tmp_path / "ours", tmp_path / "theirs", to="huggingface")
    assert caught.value.message.endswith(f"no Bert with such a head: this classifier is {described}.")
    assert 'to="sentence-transformers"' in caught.value.remedy
    assert "pooling 'pooled'" in caught.value.remedy
    assert "--to sentence-transformers: the encoder" in as_options(caught.value.remedy)
    assert not (tmp_path / "theirs").exists()


def test_a_prompt_that_the_library_does_not_write_is_said(tmp_path: Path) -> None:
    embedding = SentenceEmbedding("mean", prompts={"query": "query: "}, default_prompt="query")
    artifact.save(classifier("bert", LABELS["single_label_classification"], embedding), tmp_path / "ours")
    with pytest.warns(UserWarning, match="put 'query: ' before each"):
        folder = convert(tmp_path / "ours", tmp_path / "theirs", to="huggingface")
    assert json.loads((folder / "config.json").read_text())["id2label"]["1"] == "good"
