"""A training run's whole state in one file that is either complete or not there."""

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
"""What the safetensors format calls them."""


def save_checkpoint(path: Path, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    """One safetensors file with the tensors and, in its header, `state` as JSON; atomic, see writing_atomically.

    On whichever device the tensors are, the file knows nothing of it. They go into it one by one: with an optimizer's
    numbers they are four times the model, of which the library's own `save` makes copies in memory.
    """
    wide_first = dict(sorted(tensors.items(), key=lambda named: -named[1].element_size()))  # so that all lie aligned
    header: dict[str, Any] = {"__metadata__": {"state": json.dumps(state)}}
    end = 0
    for name, tensor in wide_first.items():
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with writing_atomically(path) as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for tensor in wide_first.values():
            flat = tensor.detach().cpu().contiguous().as_strided((tensor.numel(),), (1,))  # one number has any stride
            file.write(flat.view(torch.uint8).numpy().data)


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What save_checkpoint wrote. Raises UserError if the file is damaged."""
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
