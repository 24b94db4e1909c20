"""A graph with weights of eight bits, and with all of its products, or some, or none in such numbers too."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LEAST_VALUES = 1024
"""Smaller weights stay as they are."""
ALL, NARROW, NONE = (
    "all products with weights in int8",
    "those behind a block's wide layer in float32, other products in int8",
    "weights stored as int8, products in float32",
)
LADDER = (ALL, NARROW, NONE)
"""Which products are computed in int8, from all to none; weights are stored so in any case."""
WIDE = {"Gelu", "Relu"}
"""What is behind these has few large values, which leave the others little of eight bits."""


def in_int8(graph: bytes, products: str) -> bytes:
    """The graph with its weights as whole numbers of eight bits, and with such `products` (LADDER).

    What goes into a product in int8 is quantised as it comes; of its weights' eight bits seven are used: processors
    without VNNI add two products in sixteen bits, which eight would overflow.
    """
    model = onnx.load_from_string(graph)
    for node in model.graph.node:
        node.name = node.output[0]
    if products != NONE:
        made_by = {output: node.op_type for node in model.graph.node for output in node.output}
        kept = [n.name for n in model.graph.node if n.op_type == "MatMul" and made_by.get(n.input[0]) in WIDE]
        model = _with_products(model, [] if products == ALL else kept)
    _store(model.graph)
    return bytes(model.SerializeToString())


def _with_products(model: onnx.ModelProto, kept: Sequence[str]) -> onnx.ModelProto:
    """Matrix products and LSTMs in int8, but for those that are `kept`."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    about = {"op_types_to_quantize": ["MatMul", "LSTM"], "nodes_to_exclude": list(kept)}
    with tempfile.TemporaryDirectory() as folder, _quiet():
        whole, small = Path(folder) / "whole.onnx", Path(folder) / "small.onnx"
        onnx.save(model, whole)
        quantize_dynamic(whole, small, weight_type=QuantType.QInt8, per_channel=True, reduce_range=True, **about)
        return onnx.load(small)


def _store(graph: onnx.GraphProto) -> None:
    """Weights that are still in float32 as int8, with a scale for each of a table's rows, or of a product's columns."""
    tables = {node.input[0] for node in graph.node if node.op_type == "Gather"}
    spelled = {name for node in graph.node if node.op_type == "Conv" for name in node.input}
    rest, before = [], []
    for tensor in graph.initializer:
        large = int(np.prod(tensor.dims)) >= LEAST_VALUES and len(tensor.dims) > 1
        if not large or tensor.data_type != TensorProto.FLOAT or tensor.name in spelled:
            rest.append(tensor)
            continue
        axis = 0 if tensor.name in tables else 1
        values = numpy_helper.to_array(tensor)
        others = tuple(i for i in range(values.ndim) if i != axis)
        scale = np.maximum(np.abs(values).max(axis=others, keepdims=True) / 127, np.finfo(np.float32).tiny)
        whole = np.rint(values / scale).astype(np.int8)
        names = f"{tensor.name} int8", f"{tensor.name} scale"
        rest += [numpy_helper.from_array(whole, names[0]), numpy_helper.from_array(scale.reshape(-1), names[1])]
        before.append(helper.make_node("DequantizeLinear", names, [tensor.name], tensor.name, axis=axis))
    nodes = [*before, *graph.node]
    del graph.initializer[:], graph.node[:]
    graph.initializer.extend(rest)
    graph.node.extend(nodes)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the advice that onnxruntime gives to the root logger."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(level)
