"""An ONNX graph, written operator by operator; values are the names that they have in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor

OPSET, IR_VERSION = 20, 9
"""Gelu came with the first, in 2023; the second is what it went with."""
TYPES = {"int64": TensorProto.INT64, "bool": TensorProto.BOOL, "float32": TensorProto.FLOAT}


class Graph:
    """Inputs (name to type, all of them batch x length), then one operator after the other."""

    def __init__(self, inputs: Mapping[str, str]) -> None:
        self.inputs = [helper.make_tensor_value_info(n, TYPES[t], ["batch", "length"]) for n, t in inputs.items()]
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: dict[str, onnx.TensorProto] = {}

    def __call__(self, kind: str, *inputs: str | float | Sequence[int], outputs: int = 1, **attributes: Any) -> Any:
        """What the operator `kind` makes of its inputs: a name, or of several `outputs` as many. Numbers are constants.

        An int or a sequence of them is one of int64, a float one of float32; an input that is left out is "".
        """
        named = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        made = [f"{kind}_{len(self.nodes)}" + (f"_{i}" if i else "") for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, named, made, **attributes))
        return made[0] if outputs == 1 else made

    def constant(self, value: float | Sequence[int]) -> str:
        """A number, or several, kept once."""
        array = np.asarray(value, dtype=np.float32 if isinstance(value, float) else np.int64)
        return self._kept(f"constant {array.dtype} {array.tolist()}", array)

    def weight(self, value: Tensor) -> str:
        """A tensor of the model's, in float32."""
        array = value.detach().float().cpu().contiguous().numpy()
        return self._kept(f"weight {len(self.tensors)}", array)

    def _kept(self, name: str, array: np.ndarray) -> str:
        if name not in self.tensors:
            self.tensors[name] = numpy_helper.from_array(array, name)
        return name

    def model(self, output: str, name: str, shape: Sequence[str | int]) -> onnx.ModelProto:
        """The whole, checked; `output` is called `name`."""
        self.nodes.append(helper.make_node("Identity", [output], [name]))
        made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape))]
        graph = helper.make_graph(self.nodes, "textgraft", self.inputs, made, list(self.tensors.values()))
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="textgraft")
        model.ir_version = IR_VERSION
        onnx.checker.check_model(model, full_check=True)
        return model
