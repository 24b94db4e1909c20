"""Which chip computes. The processor is the reference; elsewhere plain torch operations replace its tricks."""

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
"""What the makers' data sheets promise in bfloat16 without sparsity, in operations a second; the first name counts."""


def has_cuda() -> bool:
    """Whether torch sees a GPU that speaks CUDA."""
    return torch.cuda.is_available()


def resolve_device(name: str) -> torch.device:
    """`auto` becomes cuda where torch sees a GPU, else cpu.

    Raises UserError for a name that is not one of DEVICES, and for cuda where torch sees no GPU.
    """
    if name not in DEVICES:
        raise UserError(f"unknown device '{name}'.", remedy=did_you_mean(name, DEVICES))
    if name == "auto":
        return torch.device("cuda" if has_cuda() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        why = "this torch is built without CUDA" if torch.version.cuda is None else "torch sees no GPU"
        raise UserError(
            f"there is no device 'cuda': {why}.", remedy="Take --device cpu, or install torch for your GPU."
        )
    return torch.device(name)


def on_cpu(x: Tensor) -> bool:
    """Whether the ways of computing that were written for processors apply to `x`: own LSTM steps, oneDNN by name."""
    return x.device.type == "cpu"


def device_name(device: torch.device) -> str:
    """What the maker calls a GPU; `cpu` for the processor."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def peak(name: str) -> float | None:
    """Operations a second in bfloat16 that the GPU of that name can do at most; None for one that PEAKS lacks."""
    return next((most for part, most in PEAKS.items() if re.search(rf"\b{re.escape(part)}\b", name)), None)
