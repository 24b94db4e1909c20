"""Which number format the matrix products run in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor

from textgraft.errors import UserError, did_you_mean

Precision = Literal["auto", "fp32", "bf16"]


def bf16_is_native() -> bool:
    """Whether this processor multiplies bfloat16 matrices in hardware (AVX-512 BF16 or AMX).

    Only then is it faster (here 3.9 times float32 in a matrix product); elsewhere it is emulated and slower. Asked
    of the processor, not of a stopwatch, so that two runs on one machine always choose alike.
    """
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def resolve(precision: str) -> Literal["fp32", "bf16"]:
    """`auto` becomes bf16 where the processor has it, else fp32."""
    if precision not in ("auto", "fp32", "bf16"):
        raise UserError(f"unknown precision '{precision}'.", remedy=did_you_mean(precision, ["auto", "fp32", "bf16"]))
    if precision == "auto":
        return "bf16" if bf16_is_native() else "fp32"
    return "bf16" if precision == "bf16" else "fp32"


@contextmanager
def computing_in(precision: str) -> Iterator[None]:
    """Run matrix products in `precision`; weights, losses and the cell state stay in float32."""
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=resolve(precision) == "bf16"):
        yield


def compute_dtype(x: Tensor) -> torch.dtype:
    """The dtype that a matrix product of `x` should run in here: autocast's if it is on, else its own."""
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x.dtype
