"""The linear probe: what is saved says what was fitted, for every kind of target, and no fold has seen its answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_up_reviews import reviews

from textgraft.core.context import RunContext
from textgraft.data.examples import Examples, TargetKind
from textgraft.data.labels import Labels
from textgraft.data.splits import stratified_folds
from textgraft.linear.linear_layer import fit_output
from textgraft.linear.scaling import Scale
from textgraft.metrics.calibration import outputs_from_logits
from textgraft.models.artifact import Artifact, save
from textgraft.models.inference import embed_sequences, predict_logits
from textgraft.models.loading import load_network
from textgraft.models.sentence_embedding import KEY, sentence_embedding
from textgraft.models.text_vectors import embed
from textgraft.tasks.classification.linear_candidates import Candidate
from textgraft.tasks.classification.linear_probe import answers, as_layer, fit_probe, linear_probe_candidate
from textgraft.tasks.classification.selection_context import SelectionContext
from textgraft.tasks.classification.training import EncodedTexts

KINDS: tuple[TargetKind, ...] = ("single", "multi", "numeric")


def examples(kind: str, count: int, seed: int) -> Examples:
    texts, names = reviews(count, seed)
    if kind == "multi":
        sets = [(name, "long") if len(text) > 110 else (name,) for text, name in zip(texts, names)]
        return Examples(texts, sets, "multi", source="a")
    if kind == "numeric":
        return Examples(texts, [float(len(t)) for t in texts], "numeric", source="a")
    return Examples(texts, names, "single", source="a")


def rows(outputs: int, seed: int = 0) -> np.ndarray:
    """60 rows of features at very different scales, one of which never varies."""
    found = np.random.default_rng(seed).normal(size=(60, 6)) * np.array([1, 100, 0.01, 1, 1, 0]) + 5
    return found.astype(np.float32)


@pytest.mark.parametrize("classes", [1, 2, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_says_what_scikit_learn_fitted(kind: TargetKind, classes: int) -> None:
    """A class without a text, or a label that all have or none, is as certain here as there, to 1e-12."""
    x, generator = rows(5), np.random.default_rng(1)
    if kind == "single":
        targets: Any = generator.integers(0, classes, size=60) + 1  # class 0 has no text
    elif kind == "multi":
        targets = (generator.random((60, 5)) < 0.4).astype(np.float32)
        targets[:, 0], targets[:, 1] = 0, 1
    else:
        targets = generator.normal(size=60)
    count = 1 if kind == "numeric" else 5
    scaled = Scale.of(x)(x)
    output = fit_output(scaled, targets, kind, count, 0)
    layer = as_layer(output, kind, count, x.shape[1])
    found = outputs_from_logits(answers(layer, scaled), kind)
    np.testing.assert_allclose(found, output.predict(scaled), atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_scales_are_folded_into_the_layer(kind: TargetKind) -> None:
    x, train = rows(5), examples(kind, 60, 1)
    labels = Labels.fit(train)
    layer, about = fit_probe(x, labels.encode(train), labels, 0)
    scale = Scale.of(x)
    output = fit_output(scale(x), labels.encode(train), kind, labels.num_outputs, 0)
    new = rows(5, seed=2)
    new[:, 5] += 1  # what never varied says nothing
    np.testing.assert_allclose(outputs_from_logits(answers(layer, new), kind), output.predict(scale(new)), atol=1e-8)
    assert about.startswith("Vectors of the frozen model -> ")


def candidate(
    source: Artifact, kind: str, folder: Path, *, tested: bool
) -> tuple[Candidate, SelectionContext, dict[str, EncodedTexts]]:
    train, test = examples(kind, 40, 1), examples(kind, 30, 2)
    labels = Labels.fit(train)
    encoded = {
        name: EncodedTexts(source.encoded(part.texts, 200)[0], labels.encode(part))
        for name, part in (("train", train), ("test", test))
    }
    evaluation, split = (test, "test") if tested else (None, "folds")
    folds, context = stratified_folds(train, 4, 0), RunContext(folder, 0, precision="fp32")
    selection = SelectionContext(train, evaluation, split, labels, (), folds, context)
    found = linear_probe_candidate("p", source, selection, lambda part: embed(source, encoded[part].sequences, "fp32"))
    return found, selection, encoded


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_saved_answers_as_what_was_measured(kind: TargetKind, tiny_lm: Path, tmp_path: Path) -> None:
    source = load_network(tiny_lm)
    found, selection, encoded = candidate(source, kind, tmp_path, tested=True)
    made = found.predictor({"stage": "finetune"})
    logits = predict_logits(made.model, encoded["test"].sequences, source.tokenizer.pad_id, "fp32")
    temperature = made.run["temperature"] or 1.0
    np.testing.assert_allclose(outputs_from_logits(logits, kind, temperature), found.outcome.outputs[0], atol=1e-4)
    assert made.labels == selection.labels
    assert source.model.encoder.state_dict().keys() == made.model.encoder.state_dict().keys()


def described(source: Artifact) -> Artifact:
    """A sentence encoder with all that one can have: two poolings, a dense layer, length 1, a prompt, lower case."""
    width = source.model.encoder.output_dim
    shape = {"output_dim": 6, "bias": True, "activation": "tanh"}
    generator = torch.Generator().manual_seed(3)
    values = {
        f"{KEY}.dense.0.weight": torch.randn(6, 2 * width, generator=generator),
        f"{KEY}.dense.0.bias": torch.randn(6, generator=generator),
    }
    about = {"pooling": "max+mean", "normalize": True, "dense": [shape], "lowercase": True}
    about |= {"prompts": {"task": "the film: "}, "default_prompt": "task"}
    return replace(source, embedding=sentence_embedding(about, values, width))


@pytest.mark.parametrize("kind", KINDS)
def test_the_probe_of_a_sentence_encoder_is_one_on_its_vectors(kind: TargetKind, tiny_lm: Path, tmp_path: Path) -> None:
    """Fitted on what `embed` gives; saved with the same layers in its head; the same answers opened, and as a graph."""
    source = described(load_network(tiny_lm))
    found, selection, encoded = candidate(source, kind, tmp_path, tested=True)
    x = embed(source, encoded["train"].sequences)
    np.testing.assert_array_equal(x, source.embed(selection.train.texts))
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1, atol=1e-5)
    layer, _ = fit_probe(x, selection.targets, selection.labels, 0)
    texts = examples(kind, 30, 2).texts
    temperature = found.predictor({}).run["temperature"] or 1.0
    expected = outputs_from_logits(answers(layer, source.embed(texts)), kind, temperature)
    np.testing.assert_allclose(found.outcome.outputs[0], expected, atol=1e-6)
    made = found.predictor({"stage": "finetune", "max_tokens": 200})
    assert made.model.head.config.normalize
    opened = load_network(save(made, tmp_path / "saved"))
    # The head multiplies in float32, by weights that the folded scales make large.
    np.testing.assert_allclose(opened.outputs(texts, "fp32"), expected, atol=1e-4)
    pytest.importorskip("onnxruntime")
    from textgraft.onnx.int8 import NONE, in_int8
    from textgraft.tasks.classification.onnx_export import graph_of

    graph = graph_of(opened)
    assert (graph.prompt, graph.lowercase) == ("the film: ", True)
    np.testing.assert_allclose(graph.outputs(texts), expected, atol=1e-4)
    small = replace(graph, graph=in_int8(graph.graph, NONE))
    # Weights are rounded to 1 in 127; what that moves depends on them, and so on the processor that trained them.
    rounded = small.outputs(texts)
    np.testing.assert_allclose(rounded, expected, atol=0.25)
    assert np.corrcoef(np.ravel(rounded), np.ravel(expected))[0, 1] > 0.9


def test_no_fold_has_seen_what_it_answers(tiny_lm: Path, tmp_path: Path) -> None:
    """The held-out answers are those of layers fitted on the other folds; measured on folds, they are the outcome."""
    source = load_network(tiny_lm)
    found, selection, encoded = candidate(source, "single", tmp_path, tested=False)
    x = embed_sequences(source.model, encoded["train"].sequences, source.tokenizer.pad_id, "mean", "fp32")
    raw = np.full_like(found.outcome.raw[0], np.nan)
    for kept, held in selection.splits:
        layer, _ = fit_probe(x[kept], selection.targets[kept], selection.labels, 0)
        raw[held] = outputs_from_logits(answers(layer, x[held]), "single")
    np.testing.assert_allclose(found.outcome.raw[0], raw, atol=1e-6)
    assert np.array_equal(found.held_out, found.outcome.outputs[0], equal_nan=True)


def test_it_is_fitted_and_asked_once(tiny_lm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = load_network(tiny_lm)
    first = candidate(source, "single", tmp_path, tested=True)[0].outcome
    monkeypatch.setattr("test_linear_probe.embed", lambda *a, **k: pytest.fail("encoded again"))
    again = candidate(source, "single", tmp_path, tested=True)[0].outcome
    assert np.array_equal(first.outputs, again.outputs)
