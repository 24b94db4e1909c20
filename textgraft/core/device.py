"""Compute devices. The CPU is the reference; elsewhere plain torch operations replace its special kernels."""

from __future__ import annotations

import re

import torch
from torch import Tensor

from textgraft.core.errors import UserError, did_you_mean

DEVICES = ("auto", "cpu", "cuda")

PEAKS = {
    "B200": 2250e12,
    "GH200": 989e12,
    "H200": 989e12,
    "H100 PCIe": 756e12,
    "H100 NVL": 835e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "L4": 121e12,
    "A10": 125e12,
    "RTX 4090": 165e12,
    "RTX 3090": 71e12,
}
"""Operations per second in bfloat16 without sparsity according to data sheets; the first matching name counts."""


def has_cuda() -> bool:
    """True if torch can use a CUDA GPU."""
    return torch.cuda.is_available()


def resolve_device(name: str) -> torch.device:
    """The torch device of a name.

    Args:
        name: One of DEVICES; `auto` is cuda where torch has a GPU, else cpu.

    Raises:
        UserError: The name is unknown, or cuda is requested and torch has no GPU.
    """
    if name not in DEVICES:
        raise UserError(f"unknown device '{name}'.", remedy=did_you_mean(name, DEVICES))
    if name == "auto":
        return torch.device("cuda" if has_cuda() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        reason = "this torch is built without CUDA" if torch.version.cuda is None else "torch sees no GPU"
        raise UserError(
            f"there is no device 'cuda': {reason}.", remedy='Use device="cpu", or install torch for your GPU.'
        )
    return torch.device(name)


def on_cpu(x: Tensor) -> bool:
    """True if the kernels written for CPUs apply to `x`: own LSTM steps, explicit oneDNN calls."""
    return x.device.type == "cpu"


def device_name(device: torch.device) -> str:
    """Product name of a GPU; `cpu` for the CPU."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def peak(name: str) -> float | None:
    """Peak operations per second of a GPU in bfloat16; None if PEAKS does not list it."""
    return next((operations for part, operations in PEAKS.items() if re.search(rf"\b{re.escape(part)}\b", name)), None)
