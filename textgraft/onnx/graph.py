"""An ONNX graph, written operator by operator; values are the names that they have in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor

OPSET, IR_VERSION = 20, 9
"""Gelu came with the first, in 2023; the second is what it went with."""
TYPES = {"int64": TensorProto.INT64, "bool": TensorProto.BOOL, "float32": TensorProto.FLOAT}
Shape = Sequence[str | int]
Step = Callable[..., tuple[Sequence[str], Sequence[str]]]
"""A step's graph, what the one before left, and what comes in -> what it leaves to the next, and what it shows."""


class Graph:
    """Inputs (name to type and shape), then one operator after the other.

    A step of a loop is a graph inside another: `prefix` keeps its names apart from those around it, which it may read.
    """

    def __init__(self, inputs: Mapping[str, tuple[str, Shape]], *, prefix: str = "") -> None:
        self.inputs = [helper.make_tensor_value_info(n, TYPES[t], list(shape)) for n, (t, shape) in inputs.items()]
        self.prefix = prefix
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: dict[str, onnx.TensorProto] = {}

    def __call__(self, kind: str, *inputs: str | float | Sequence[int], outputs: int = 1, **attributes: Any) -> Any:
        """What the operator `kind` makes of its inputs: a name, or of several `outputs` as many. Numbers are constants.

        An int or a sequence of them is one of int64, a float one of float32; an input that is left out is "".
        """
        named = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        made = [f"{self.prefix}{kind}_{len(self.nodes)}" + (f"_{i}" if i else "") for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, named, made, **attributes))
        return made[0] if outputs == 1 else made

    def constant(self, value: float | Sequence[int]) -> str:
        """A number, or several, kept once."""
        array = np.asarray(value, dtype=np.float32 if isinstance(value, float) else np.int64)
        return self._kept(f"{self.prefix}constant {array.dtype} {array.tolist()}", array)

    def weight(self, value: Tensor, *, double: bool = False) -> str:
        """A tensor of the model's, in float32, or with `double` in float64."""
        array = value.detach().float().cpu().contiguous().numpy()
        name = f"{self.prefix}weight {len(self.tensors)}"
        return self._kept(name, array.astype(np.float64) if double else array)

    def _kept(self, name: str, array: np.ndarray) -> str:
        if name not in self.tensors:
            self.tensors[name] = numpy_helper.from_array(array, name)
        return name

    def scan(
        self, step: Step, states: Sequence[str], inputs: Sequence[str], *, shown: int = 1, axis: int = 0, **way: bool
    ) -> list[str]:
        """The states after the last step, then what all steps have shown, of which there are `shown`.

        Steps go along `axis` of the inputs and of what is shown; with `reverse` from the end.
        """
        body = Graph({}, prefix=f"{self.prefix}step_{len(self.nodes)} ")
        given = [f"{body.prefix}given {i}" for i in range(len(states) + len(inputs))]
        after, seen = step(body, *given)
        # An output that is an input, or the same value twice, is no output of a graph.
        made = [body("Identity", value) for value in (*after, *seen)]
        shown_in, shown_out = (list(map(helper.make_empty_tensor_value_info, names)) for names in (given, made))
        graph = helper.make_graph(body.nodes, "step", shown_in, shown_out, list(body.tensors.values()))
        axes = {"scan_input_axes": [axis] * len(inputs), "scan_output_axes": [axis] * shown}
        if way.get("reverse"):
            axes |= {"scan_input_directions": [1] * len(inputs), "scan_output_directions": [1] * shown}
        names = self("Scan", *states, *inputs, outputs=len(made), body=graph, num_scan_inputs=len(inputs), **axes)
        return list(names)

    def model(self, outputs: Mapping[str, tuple[str, str, Shape]]) -> bytes:
        """The whole, checked, as a file holds it; `outputs` are values to show, with types and shapes, by new names."""
        made = []
        for name, (value, kind, shape) in outputs.items():
            self.nodes.append(helper.make_node("Identity", [value], [name]))
            made.append(helper.make_tensor_value_info(name, TYPES[kind], list(shape)))
        graph = helper.make_graph(self.nodes, "textgraft", self.inputs, made, list(self.tensors.values()))
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="textgraft")
        model.ir_version = IR_VERSION
        onnx.checker.check_model(model, full_check=True)
        return bytes(model.SerializeToString())
