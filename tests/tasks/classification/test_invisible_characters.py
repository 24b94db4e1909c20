"""White space and invisible characters move no answer, whatever classifies; folders without a form answer as before."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_up_questions import TEXT, encoder
from made_up_reviews import reviews

from textgraft.data.examples import Choice, Examples, Pair
from textgraft.data.labels import Labels
from textgraft.data.text_forms import in_form
from textgraft.linear.artifact import LinearArtifact
from textgraft.linear.baselines import LinearBaseline, LsaBaseline
from textgraft.linear.encoder_features import EncoderFeatures
from textgraft.linear.fasttext import FastTextClassifier
from textgraft.linear.lsa import LSAFeatures
from textgraft.linear.paragraph_features import ParagraphFeatures
from textgraft.linear.word_vector_features import WordVectorFeatures
from textgraft.models.artifact import Artifact, save
from textgraft.models.loading import load_network, open_model
from textgraft.tasks.classification.linear_probe import fit_probe, probe_artifact
from textgraft.tasks.export import graph_of

CHANGES: dict[str, Callable[[str], str]] = {
    "double spaces": lambda text: text.replace(" ", "  "),
    "no-break spaces": lambda text: text.replace(" ", "\u00a0"),
    "thin spaces": lambda text: text.replace(" ", "\u2009"),
    "tabs": lambda text: text.replace(" ", "\t"),
    "soft hyphens": lambda text: text.replace("e", "\u00ade"),
    "zero-width spaces": lambda text: text.replace("e", "e\u200b"),
    "byte order marks": lambda text: "\ufeff" + text.replace("o", "o\ufeff"),
    "spaces at the ends": lambda text: f" \u00a0{text}\r\n",
}
TEXTS = ["The plot is thin, but the music is lovely.", "Awful: two hours of my life that I want back!"]


@pytest.mark.parametrize("name", ["en-gpt-small", "en-ulmfit", "en-bert-small", "en-flair-small-forward", "en-vectors"])
def test_vectors_of_bundled_models(name: str) -> None:
    model = open_model(name)
    expected = model.embed(TEXTS)
    for change, apply in CHANGES.items():
        assert np.array_equal(model.embed([apply(text) for text in TEXTS]), expected), change


def test_vectors_of_a_thai_model() -> None:
    model = load_network("th-ulmfit")
    clean = "บริการดีมากครับ ประทับใจ"
    changed = "บริการ\u200bดีมาก\ufeffครับ\u00a0 ประทับใจ"
    assert np.array_equal(model.embed([changed]), model.embed([clean]))


def probe(text_form: str = "visible") -> Artifact:
    source = replace(encoder("gpt"), text_form=text_form)
    rows = source.embed([TEXT[i : i + 30] for i in range(40)])
    labels = Labels("single", ("neg", "pos"))
    layer, _ = fit_probe(rows, np.arange(40) % 2, labels, 0)
    return probe_artifact(source, layer, labels, {"temperature": 1.0}, {"max_tokens": 40, "stage": "finetune"})


def test_a_classifier_and_its_graph_answer_alike_for_texts_that_look_alike(tmp_path: Path) -> None:
    clean = ["river stone lamp garden", "how many horses has the cloud?"]
    classifier = load_network(save(probe(), tmp_path / "model"))
    graph = open_model(save(graph_of(classifier), tmp_path / "graph"))
    for model in (classifier, graph):
        expected = model.outputs(clean, "fp32")
        for change, apply in CHANGES.items():
            assert np.array_equal(model.outputs([apply(text) for text in clean], "fp32"), expected), change


def without_a_form(folder: Path, *keys: str) -> Path:
    """Change config.json to what earlier versions wrote."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    del config["sha256"]
    part: Any = config
    for key in keys:
        part = part[key]
    del part["text_form"]
    path.write_text(json.dumps(config))
    return folder


def test_a_folder_without_a_form_answers_as_it_was_trained(tmp_path: Path) -> None:
    text = "river  stone lamp"
    saved = save(probe("raw"), tmp_path / "old")
    expected = load_network(saved).outputs([text], "fp32")
    old = load_network(without_a_form(saved))
    assert old.text_form == "raw"
    assert np.array_equal(old.outputs([text], "fp32"), expected)
    assert not np.array_equal(old.outputs(["river stone lamp"], "fp32"), expected)
    graph = open_model(without_a_form(save(graph_of(old), tmp_path / "graph"), "onnx"))
    assert np.allclose(graph.outputs([text]), expected, atol=1e-5)
    assert load_network(without_a_form(save(encoder("gpt"), tmp_path / "language model"))).text_form == "visible"


def fitted_linear() -> dict[str, Any]:
    texts, names = reviews(80)
    targets = np.array([name == "pos" for name in names]).astype(int)
    feature_maps: dict[str, Any] = {
        "lsa": LSAFeatures(dimensions=8),
        "word vectors": WordVectorFeatures(dimensions=8),
        "paragraph vectors": ParagraphFeatures(dimensions=8),
        "encoder": EncoderFeatures(encoder("gpt"), max_tokens=40),
    }
    fitted: dict[str, Any] = {"n-grams": LinearBaseline().fit(texts, targets).fitted}
    for name, features in feature_maps.items():
        fitted[name] = LsaBaseline(feature_maps=[features.fit(texts)]).fit(texts, targets).fitted
    return fitted


def test_linear_methods_answer_alike_and_say_their_form(tmp_path: Path) -> None:
    texts, _ = reviews(4, seed=7)
    for name, model in fitted_linear().items():
        saved = LinearArtifact(model, Labels("single", ("neg", "pos")), {"stage": "finetune"})
        folder = save(saved, tmp_path / name)
        loaded = open_model(folder)
        expected = loaded.outputs(texts)
        for change, apply in CHANGES.items():
            assert np.array_equal(loaded.outputs([apply(text) for text in texts]), expected), (name, change)
        keys = {
            "n-grams": ("linear", "settings", "ngrams"),
            "lsa": ("linear", "settings", "space", "ngrams"),
            "encoder": ("linear", "settings", "space", "encoder"),
        }.get(name, ("linear", "settings", "space"))
        old = open_model(without_a_form(folder, *keys))
        hyphenated = [text.replace("e", "\u00ade") for text in texts]
        assert not np.array_equal(old.outputs(hyphenated), expected), name


@pytest.mark.slow
def test_fasttext_and_invisible_training_texts() -> None:
    texts, names = reviews(40)
    targets = np.array([name == "pos" for name in names]).astype(int)
    hyphenated = [text.replace("e", "\u00ade") for text in texts]
    for method in (FastTextClassifier, LinearBaseline):
        expected = method().fit(texts, targets).predict_proba(texts)
        assert np.array_equal(method().fit(hyphenated, targets).predict_proba(texts), expected)


def test_pairs_and_questions_keep_their_parts() -> None:
    pair, choice = in_form([Pair("a\u00a0b\n", " c"), Choice("it  is", ["a\tb", "c"], "what\u200b?")], "visible")
    assert isinstance(pair, Pair)
    assert isinstance(choice, Choice)
    assert (pair.first, pair.second) == ("a b", "c")
    assert (choice.context, choice.options, choice.question) == ("it is", ("a b", "c"), "what?")
    examples = Examples(in_form(["a  b"], "raw"))
    assert examples.texts == ["a  b"]
