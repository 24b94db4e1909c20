"""Every family that has an ONNX graph, under every classification head: ONNX Runtime answers as torch does."""

from __future__ import annotations

import pytest
from families import CASES, ENCODERS, HEADS, TOKENIZER, made

from textgraft.artifact import Artifact
from textgraft.data.labels import Labels
from textgraft.errors import UserError
from textgraft.onnx.encoders import ENCODERS as FAMILIES
from textgraft.onnx.export import graph_of, largest_difference

NAMES = {"awd_lstm", "flair", "bert", "gpt", "transformer_xl"}
GRAPHS = [
    (encoder, head)
    for encoder, head in CASES
    if ENCODERS[encoder]["name"] in NAMES and HEADS[head]["name"] == "classification"
]


def artifact(encoder: str, head: str, **run: object) -> Artifact:
    above = HEADS[head]
    kind = above.get("kind", "single")
    names = tuple("abcd"[: above["outputs"]]) if kind != "numeric" else ()
    return Artifact(made(encoder, head), TOKENIZER, Labels(kind, names), {"max_tokens": 16, **run})


@pytest.mark.parametrize(("encoder", "head"), GRAPHS)
def test_a_graph_answers_as_the_model_does(encoder: str, head: str) -> None:
    model = artifact(encoder, head, temperature=1.7)
    assert largest_difference(model, graph_of(model)) < 2e-6


@pytest.mark.parametrize("encoder", ["lstm-right-3", "bert", "bert-pooler", "distilbert", "gpt-pre"])
def test_a_graph_reads_pairs(encoder: str) -> None:
    head = "pool-pooled" if encoder == "bert-pooler" else "single"
    model = artifact(encoder, head, reads="pairs")
    assert largest_difference(model, graph_of(model)) < 2e-6


def test_the_check_sees_another_weight() -> None:
    model = artifact("bert", "pool-mean")
    graph = graph_of(model)
    model.model.head.layers[-1].bias.data[0] += 0.1  # type: ignore[index]
    assert largest_difference(model, graph) > 1e-3


def test_all_families_with_a_graph_are_here() -> None:
    assert {type(made(encoder, head).encoder) for encoder, head in GRAPHS} == set(FAMILIES)
    assert len(GRAPHS) > 80


@pytest.mark.parametrize(("encoder", "head"), [("cove", "pool-mean"), ("elmo", "pool-mean"), ("bert", "span")])
def test_what_has_no_graph_says_so(encoder: str, head: str) -> None:
    model = Artifact(made(encoder, head), TOKENIZER, Labels("single", tuple("abcd")), {"max_tokens": 16})
    with pytest.raises(UserError, match=r"family|classifiers"):
        graph_of(model)
