"""Checkpoints: the whole state of a training run in one file, written atomically.

That of a model in parts has further files in a folder beside it (training.parts).
"""

from __future__ import annotations

import glob
import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from textgraft.core.errors import UserError
from textgraft.core.files import cannot_write, writing_atomically

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
PARTS = "parts"
"""The entry of a checkpoint's state that names the folder of its parts, whose suffix it is too."""


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
        raise damaged(path, error) from error


def damaged(path: Path, reason: object) -> UserError:
    """The error of a checkpoint that cannot be read."""
    return UserError(
        f"this checkpoint is damaged ({reason}).", where=str(path), remedy="Delete it to start the run again."
    )


def new_part_folder(path: Path) -> Path:
    """Make a folder for a checkpoint's parts, and remove those that a killed run left beside the one in use.

    Raises:
        UserError: It cannot be made.
    """
    with suppress(SafetensorError, TypeError, ValueError):  # a damaged file, whose parts are not for us to remove
        remove_part_folders(path, but=_part_folder_in_use(path))
    numbers = [int(folder.name.split(".")[-2]) for folder in _part_folders(path)]
    folder = path.with_name(f"{path.name}.{max(numbers, default=0) + 1}.{PARTS}")
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise cannot_write(folder, error) from error
    return folder


def remove_part_folders(path: Path, but: Path | None = None) -> None:
    """Remove the folders of a checkpoint's parts, except for one."""
    for folder in _part_folders(path):
        if folder != but:
            shutil.rmtree(folder, ignore_errors=True)


def remove_checkpoint(path: Path) -> None:
    """Remove a run's checkpoint, if there is one."""
    path.unlink(missing_ok=True)
    remove_part_folders(path)


def _part_folder_in_use(path: Path) -> Path | None:
    if not path.exists():
        return None
    with safe_open(path, framework="pt") as file:
        parts = json.loads(file.metadata()["state"]).get(PARTS)
    return None if parts is None else path.with_name(parts["folder"])


def _part_folders(path: Path) -> list[Path]:
    return [f for f in path.parent.glob(f"{glob.escape(path.name)}.*.{PARTS}") if f.name.split(".")[-2].isdecimal()]
