"""A training run's whole state in one file that is either complete or not there."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from textgraft.errors import UserError


def write_atomically(path: Path, data: bytes) -> None:
    """Write beside, fsync, rename: after a crash the old file or the new one is there, whole.

    Raises UserError when the disk is full or the folder cannot be written; what was there stays.
    """
    beside = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(beside, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError as error:
        _discard(beside)
        raise _cannot_write(path, error) from error


def save_checkpoint(path: Path, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    """One safetensors file with the tensors and, in its header, `state` as JSON; atomic, see write_atomically."""
    beside = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file({n: t.detach().contiguous() for n, t in tensors.items()}, beside, {"state": json.dumps(state)})
        with open(beside, "rb") as file:
            os.fsync(file.fileno())
        os.replace(beside, path)
    except (OSError, SafetensorError) as error:
        _discard(beside)
        raise _cannot_write(path, error) from error


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What save_checkpoint wrote. Raises UserError if the file is damaged."""
    try:
        with safe_open(path, framework="pt") as file:
            # cloned, because a tensor inside the file's memory map dies with the next save over it
            tensors = {name: file.get_tensor(name).clone(memory_format=torch.contiguous_format) for name in file.keys()}
            return tensors, json.loads(file.metadata()["state"])
    except (SafetensorError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise UserError(
            f"this checkpoint is damaged ({error}).",
            where=str(path),
            remedy="Delete it to start the run again.",
        ) from error


def _discard(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return  # the first error is the one to show


def _cannot_write(path: Path, error: Exception) -> UserError:
    return UserError(
        f"cannot write ({error}).",
        where=str(path),
        remedy="Nothing that was there is lost; free some space or name another folder, then run the command again.",
    )
