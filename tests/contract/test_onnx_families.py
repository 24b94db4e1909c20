"""Every family that has an ONNX graph, under every head that has one: ONNX Runtime answers as torch does."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from families import CASES, ENCODERS, HEADS, QUICK, TOKENIZER, made

from textgraft.core.errors import UserError
from textgraft.data.examples import Choice
from textgraft.data.labels import Labels
from textgraft.models.artifact import Artifact
from textgraft.onnx.encoders import ENCODERS as FAMILIES
from textgraft.tasks.export import graph_of, largest_difference
from textgraft.tasks.registry import TASKS
from textgraft.text import character_encoding

NAMES = {
    "awd_lstm",
    "flair",
    "bert",
    "roberta",
    "mpnet",
    "gpt",
    "transformer_xl",
    "modernbert",
    "llama",
    "cove",
    "elmo",
}
SPELLING = character_encoding.train(["a bc def ghij klmno pqrstu vwxyz ü"] * 3)
EXPORTED_HEADS = {head for task in TASKS if task.exporter for head in task.heads}
GRAPHS = [
    (encoder, head)
    for encoder, head in CASES
    if ENCODERS[encoder]["name"] in NAMES and HEADS[head]["name"] in EXPORTED_HEADS
]


def artifact(encoder: str, head: str, **run: object) -> Artifact:
    above = HEADS[head]
    kind = above.get("kind", "choice" if above["name"] == "choice" else "single")
    names = tuple("abcd"[: above["outputs"]]) if "outputs" in above and kind != "numeric" else ()
    labels = Labels(kind, names) if "outputs" in above or kind == "choice" else None
    model = made(encoder, head)
    if above["name"] == "tagging":  # scores that make some paths much likelier than others
        torch.manual_seed(1)
        for parameter in model.head.parameters():
            torch.nn.init.normal_(parameter)
    tokenizer = SPELLING if ENCODERS[encoder]["name"] == "elmo" else TOKENIZER
    return Artifact(model, tokenizer, labels, {"max_tokens": 16, **run})


@pytest.mark.parametrize(
    ("encoder", "head"), [pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow) for case in GRAPHS]
)
def test_a_graph_answers_as_the_model_does(encoder: str, head: str) -> None:
    model = artifact(encoder, head, temperature=1.7)
    assert largest_difference(model, graph_of(model)) < 2e-6


def test_a_graph_bounds_what_is_far_from_all_training_texts() -> None:
    model = artifact("lstm-left-2", "single")
    far = [m for m in model.model.head.modules() if isinstance(m, torch.nn.BatchNorm1d)]
    for layer in far:
        layer.running_var.fill_(1e-8)
    graph = graph_of(model)
    assert largest_difference(model, graph) < 2e-6
    for layer in far:
        layer.running_var.fill_(1.0)
    assert largest_difference(model, graph) > 1e-3


@pytest.mark.parametrize(
    "encoder", ["lstm-right-3", "bert", "bert-pooler", "distilbert", "gpt-pre", "elmo", "modernbert", "llama"]
)
def test_a_graph_reads_pairs(encoder: str) -> None:
    head = "pool-pooled" if encoder == "bert-pooler" else "single"
    model = artifact(encoder, head, reads="pairs")
    assert largest_difference(model, graph_of(model)) < 2e-6


def test_a_graph_chooses_among_any_number_of_options() -> None:
    model = artifact("bert", "choice", reads="choices", temperature=0.7)
    texts = [Choice("a b c", ("d e", "f")), Choice("g", ("h", "i j k l", "m n"))]
    found, expected = graph_of(model).outputs(texts), model.outputs(texts, "fp32")
    assert found.shape == (2, 3)
    np.testing.assert_allclose(found, expected, atol=2e-6)


def test_a_transformers_batches_are_small_and_no_answer_depends_on_them() -> None:
    texts = ["a b c d e f", "g", "h i j", "k l m n o p q r"]
    for encoder, tokens in (("bert", 2_048), ("gpt-pre", 2_048), ("lstm-left-2", 16_384)):
        graph = graph_of(artifact(encoder, "pool-mean"))
        assert graph.tokens_per_batch == tokens
        together = graph.outputs(texts)
        graph.tokens_per_batch = 8
        np.testing.assert_allclose(graph.outputs(texts), together, atol=2e-6)


def test_a_graph_is_shown_without_its_bytes() -> None:
    shown = repr(graph_of(artifact("bert", "pool-mean")))
    assert "max_tokens=16" in shown
    assert len(shown) < 1000


@pytest.mark.parametrize("head", ["pool-mean", "tags-crf", "span"])
def test_the_check_sees_another_weight(head: str) -> None:
    model = artifact("bert", head)
    graph = graph_of(model)
    layer = model.model.head.layers[-1] if head == "pool-mean" else model.model.head.output
    layer.weight.data[0, 0] += 0.1
    assert largest_difference(model, graph) > 1e-3


@pytest.mark.slow
def test_all_families_with_a_graph_are_here() -> None:
    assert {type(made(encoder, head).encoder) for encoder, head in GRAPHS} == set(FAMILIES)
    assert {HEADS[head]["name"] for _, head in GRAPHS} == EXPORTED_HEADS
    assert len(GRAPHS) > 150


@pytest.mark.parametrize(
    ("encoder", "head", "said"),
    [("word-lstm", "tags-crf", "family"), ("lstm-left-2", "lm-full-tied", "only classifiers, taggers and QA models")],
)
def test_what_has_no_graph_says_so(encoder: str, head: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        graph_of(artifact(encoder, head))
