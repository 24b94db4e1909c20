"""Graphs of every family with weights of eight bits: they answer much as those in float32 do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from families import made
from test_onnx_families import artifact

from textgraft.onnx import int8
from textgraft.tasks.export import graph_of, largest_difference

FAMILIES = (
    "lstm-right-3",
    "qrnn-left-3",
    "flair-right-projected",
    "bert",
    "gpt-pre",
    "xl-post",
    "cove",
    "elmo",
    "modernbert",
    "llama",
)


@pytest.mark.parametrize("products", int8.LADDER)
@pytest.mark.parametrize("family", FAMILIES)
def test_int8_answers_much_as_the_model_does(family: str, products: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(int8, "MIN_VALUES", 1)
    model = artifact(family, "pool-mean")
    whole = graph_of(model)
    small = int8.in_int8(whole.graph, products)
    assert 0 < largest_difference(model, replace(whole, graph=small)) < 0.05
    kinds = {node.op_type for node in onnx.load_from_string(small).graph.node}
    assert "DequantizeLinear" in kinds
    assert bool(kinds & {"MatMulInteger", "DynamicQuantizeLSTM"}) == (products != int8.NONE)


@pytest.mark.parametrize("family", ["bert", "modernbert", "llama"])
def test_products_behind_a_wide_layer_stay(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(int8, "MIN_VALUES", 1)
    whole = graph_of(artifact(family, "pool-mean"))
    counts = [
        sum(node.op_type == "MatMulInteger" for node in onnx.load_from_string(int8.in_int8(whole.graph, p)).graph.node)
        for p in int8.LADDER
    ]
    assert counts[0] > counts[1] > counts[2] == 0


def test_small_weights_stay_and_large_ones_lose_no_more_than_half_a_step() -> None:
    whole = graph_of(artifact("bert", "pool-mean"))
    assert len(int8.in_int8(whole.graph, int8.NONE)) == pytest.approx(len(whole.graph), rel=0.1)
    table = made("bert", "pool-mean").encoder.embedding.weight.detach().numpy()
    step = np.abs(table).max(axis=1, keepdims=True) / 127
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(int8, "MIN_VALUES", 1)
        graph = onnx.load_from_string(int8.in_int8(whole.graph, int8.NONE)).graph
    kept = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    (name,) = (n for n, values in kept.items() if values.dtype == np.int8 and values.shape == table.shape)
    assert np.all(np.abs(kept[name] * kept[name.replace(" int8", " scale")][:, None] - table) <= step / 2 + 1e-7)
