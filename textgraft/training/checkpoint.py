"""A training run's whole state in one file that is either complete or not there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from textgraft.errors import UserError
from textgraft.files import write_atomically


def save_checkpoint(path: Path, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    """One safetensors file with the tensors and, in its header, `state` as JSON; atomic, see write_atomically.

    On whichever device the tensors are, the file knows nothing of it."""
    kept = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomically(path, save(kept, {"state": json.dumps(state)}))


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
