"""Construction of an ONNX graph, operator by operator; values are their names in the graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor

OPSET, IR_VERSION = 20, 9
"""Opset 20 (2023) is the first with Gelu; IR version 9 belongs to it."""
TYPES = {"int64": TensorProto.INT64, "bool": TensorProto.BOOL, "float32": TensorProto.FLOAT}
Shape = Sequence[str | int]
Step = Callable[..., tuple[Sequence[str], Sequence[str]]]
"""Function of a step's graph, states and inputs to new states and outputs."""


class Graph:
    """Inputs (name to type and shape), then one operator after the other.

    The body of a loop is a graph inside another: `prefix` keeps its names apart from those of the outer graph, which it
    may use.
    """

    def __init__(self, inputs: Mapping[str, tuple[str, Shape]], *, prefix: str = "") -> None:
        self.inputs = [helper.make_tensor_value_info(n, TYPES[t], list(shape)) for n, (t, shape) in inputs.items()]
        self.prefix = prefix
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: dict[str, onnx.TensorProto] = {}

    def __call__(self, kind: str, *inputs: str | float | Sequence[int], outputs: int = 1, **attributes: Any) -> Any:
        """Add an operator `kind`; return the name of its output, or of several `outputs`. Numbers become constants.

        An int or a sequence of ints is int64, a float float32; an omitted input is "".
        """
        input_names = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        output_names = [f"{self.prefix}{kind}_{len(self.nodes)}" + (f"_{i}" if i else "") for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, input_names, output_names, **attributes))
        return output_names[0] if outputs == 1 else output_names

    def constant(self, value: float | Sequence[int]) -> str:
        """A constant number or array, stored once."""
        array = np.asarray(value, dtype=np.float32 if isinstance(value, float) else np.int64)
        return self._add_tensor(f"{self.prefix}constant {array.dtype} {array.tolist()}", array)

    def weight(self, value: Tensor, *, double: bool = False) -> str:
        """A tensor of the model, in float32, or float64 with `double`."""
        array = value.detach().float().cpu().contiguous().numpy()
        name = f"{self.prefix}weight {len(self.tensors)}"
        return self._add_tensor(name, array.astype(np.float64) if double else array)

    def _add_tensor(self, name: str, array: np.ndarray) -> str:
        if name not in self.tensors:
            self.tensors[name] = numpy_helper.from_array(array, name)
        return name

    def scan(
        self, step: Step, states: Sequence[str], inputs: Sequence[str], *, shown: int = 1, axis: int = 0, **way: bool
    ) -> list[str]:
        """Add a loop; return the states after the last step, then the `shown` outputs of all steps.

        Steps go along `axis` of inputs and outputs; with `reverse` from the end.
        """
        body = Graph({}, prefix=f"{self.prefix}step_{len(self.nodes)} ")
        input_names = [f"{body.prefix}given {i}" for i in range(len(states) + len(inputs))]
        new_states, step_outputs = step(body, *input_names)
        # A graph output may not be an input, nor the same value twice.
        output_names = [body("Identity", value) for value in (*new_states, *step_outputs)]
        shown_in, shown_out = (
            list(map(helper.make_empty_tensor_value_info, names)) for names in (input_names, output_names)
        )
        graph = helper.make_graph(body.nodes, "step", shown_in, shown_out, list(body.tensors.values()))
        axes = {"scan_input_axes": [axis] * len(inputs), "scan_output_axes": [axis] * shown}
        if way.get("reverse"):
            axes |= {"scan_input_directions": [1] * len(inputs), "scan_output_directions": [1] * shown}
        names = self(
            "Scan", *states, *inputs, outputs=len(output_names), body=graph, num_scan_inputs=len(inputs), **axes
        )
        return list(names)

    def model(self, outputs: Mapping[str, tuple[str, str, Shape]]) -> bytes:
        """The validated model as bytes; `outputs` are values, types and shapes by output name."""
        output_infos = []
        for name, (value, kind, shape) in outputs.items():
            self.nodes.append(helper.make_node("Identity", [value], [name]))
            output_infos.append(helper.make_tensor_value_info(name, TYPES[kind], list(shape)))
        graph = helper.make_graph(self.nodes, "textgraft", self.inputs, output_infos, list(self.tensors.values()))
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="textgraft")
        model.ir_version = IR_VERSION
        onnx.checker.check_model(model, full_check=True)
        return bytes(model.SerializeToString())
