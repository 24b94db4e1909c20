"""Quantisation of a graph: int8 weights, with all, some or none of the products in int8."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from textgraft.core.files import temporary_folder

MIN_VALUES = 1024
"""Smaller weights are not quantised."""
ALL, NARROW, NONE = (
    "all products with weights in int8",
    "those behind a block's wide layer in float32, other products in int8",
    "weights stored as int8, products in float32",
)
LADDER = (ALL, NARROW, NONE)
"""Levels of products in int8, from all to none; weights are always stored as int8."""
WIDE = {"Gelu", "Relu"}
"""The outputs of these have few large values, which leave little of the eight bits to the others."""


def in_int8(graph: bytes, products: str) -> bytes:
    """Quantise the weights of a graph to int8, and its `products` (LADDER).

    Inputs of int8 products are quantised dynamically; of the eight bits of their weights seven are used: CPUs without
    VNNI add two products in sixteen bits, which eight would overflow.
    """
    model = onnx.load_from_string(graph)
    for node in model.graph.node:
        node.name = node.output[0]
    if products != NONE:
        made_by = {output: node for node in model.graph.node for output in node.output}
        wide_products = [n.name for n in model.graph.node if n.op_type == "MatMul" and _is_wide(n.input[0], made_by)]
        model = _with_products(model, [] if products == ALL else wide_products)
    _store(model.graph)
    return bytes(model.SerializeToString())


def _is_wide(value: str, made_by: Mapping[str, onnx.NodeProto]) -> bool:
    """True for the output of a wide layer: an activation in WIDE, or a product of a GELU's or a SiLU's and the values
    that it gates.
    """
    node = made_by.get(value)
    if node is None or node.op_type != "Mul":
        return node is not None and node.op_type in WIDE
    gate = made_by.get(node.input[0])
    if gate is None or gate.op_type != "Mul":
        return gate is not None and gate.op_type == "Gelu"
    sigmoid = made_by.get(gate.input[1])
    return sigmoid is not None and sigmoid.op_type == "Sigmoid" and sigmoid.input[0] == gate.input[0]


def _with_products(model: onnx.ModelProto, excluded: Sequence[str]) -> onnx.ModelProto:
    """Quantise matrix products and LSTMs, except those in `excluded`."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    about = {"op_types_to_quantize": ["MatMul", "LSTM"], "nodes_to_exclude": list(excluded)}
    with temporary_folder() as folder, _quiet():
        source, quantised = Path(folder) / "whole.onnx", Path(folder) / "small.onnx"
        onnx.save(model, source)
        quantize_dynamic(source, quantised, weight_type=QuantType.QInt8, per_channel=True, reduce_range=True, **about)
        return onnx.load(quantised)


def _store(graph: onnx.GraphProto) -> None:
    """Store remaining float32 weights as int8, with a scale for each row of a table, or column of a product."""
    tables = {node.input[0] for node in graph.node if node.op_type == "Gather"}
    spelled = {name for node in graph.node if node.op_type == "Conv" for name in node.input}
    initializers, dequantize_nodes = [], []
    for tensor in graph.initializer:
        large = int(np.prod(tensor.dims)) >= MIN_VALUES and len(tensor.dims) > 1
        if not large or tensor.data_type != TensorProto.FLOAT or tensor.name in spelled:
            initializers.append(tensor)
            continue
        axis = 0 if tensor.name in tables else 1
        values = numpy_helper.to_array(tensor)
        others = tuple(i for i in range(values.ndim) if i != axis)
        scale = np.maximum(np.abs(values).max(axis=others, keepdims=True) / 127, np.finfo(np.float32).tiny)
        quantised = np.rint(values / scale).astype(np.int8)
        names = f"{tensor.name} int8", f"{tensor.name} scale"
        initializers += [
            numpy_helper.from_array(quantised, names[0]),
            numpy_helper.from_array(scale.reshape(-1), names[1]),
        ]
        dequantize_nodes.append(helper.make_node("DequantizeLinear", names, [tensor.name], tensor.name, axis=axis))
    nodes = [*dequantize_nodes, *graph.node]
    del graph.initializer[:], graph.node[:]
    graph.initializer.extend(initializers)
    graph.node.extend(nodes)


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress onnxruntime's messages to the root logger."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(level)
