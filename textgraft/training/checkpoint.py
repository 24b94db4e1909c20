"""Checkpoints: the whole state of a training run in one file, written atomically."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from textgraft.core.errors import UserError
from textgraft.core.files import writing_atomically

DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""The safetensors format's name of each dtype."""


def save_checkpoint(path: Path, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    """Write one safetensors file, atomically (core.files.writing_atomically).

    The file does not record devices. Tensors are written one by one: with an optimizer's state they are four times the
    size of the model, and safetensors' own `save` copies them in memory.

    Args:
        path: The file.
        tensors: By name, on any device.
        state: JSON values for the file's header.
    """
    widest_first = dict(sorted(tensors.items(), key=lambda item: -item[1].element_size()))  # so that all are aligned
    header: dict[str, Any] = {"__metadata__": {"state": json.dumps(state)}}
    end = 0
    for name, tensor in widest_first.items():
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with writing_atomically(path) as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for tensor in widest_first.values():
            flat = tensor.detach().cpu().contiguous().as_strided((tensor.numel(),), (1,))  # one element: any stride
            file.write(flat.view(torch.uint8).numpy().data)


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the tensors and the state that `save_checkpoint` wrote.

    Raises:
        UserError: The file is damaged.
    """
    try:
        with safe_open(path, framework="pt") as file:
            # cloned, because a tensor inside the file's memory map dies with the next save over it
            tensors = {name: file.get_tensor(name).clone(memory_format=torch.contiguous_format) for name in file.keys()}  # noqa: SIM118
            return tensors, json.loads(file.metadata()["state"])
    except (SafetensorError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise UserError(
            f"this checkpoint is damaged ({error}).",
            where=str(path),
            remedy="Delete it to start the run again.",
        ) from error
