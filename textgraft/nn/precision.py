"""Which number format the matrix products run in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from textgraft.errors import UserError, did_you_mean

Precision = Literal["auto", "fp32", "bf16"]
CPU = torch.device("cpu")


def bf16_is_native() -> bool:
    """Whether this processor multiplies bfloat16 matrices in hardware (AVX-512 BF16 or AMX).

    Only then is it faster (here 3.9 times float32 in a matrix product); elsewhere it is emulated and slower. Asked
    of the processor, not of a stopwatch, so that two runs on one machine always choose alike.
    """
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def resolve(precision: str, device: torch.device = CPU) -> Literal["fp32", "bf16"]:
    """`auto` becomes bf16 where the device has it, else fp32."""
    if precision not in ("auto", "fp32", "bf16"):
        raise UserError(f"unknown precision '{precision}'.", remedy=did_you_mean(precision, ["auto", "fp32", "bf16"]))
    if precision == "auto":
        native = torch.cuda.is_bf16_supported(including_emulation=False) if device.type == "cuda" else bf16_is_native()
        return "bf16" if native else "fp32"
    return "bf16" if precision == "bf16" else "fp32"


class Casts:
    """Weights in the dtype of the products, each cast once: for one who asks the same model at every step of a text.

    A weight that has been changed since (torch counts that, not what goes through `.data`) is cast anew.
    """

    def __init__(self) -> None:
        self._made: dict[tuple[int, torch.dtype], tuple[Tensor, int, Tensor]] = {}

    def of(self, weight: Tensor, dtype: torch.dtype) -> Tensor:
        """`weight.to(dtype)`."""
        known = self._made.get((id(weight), dtype))
        if known is None or known[1] != weight._version:
            # The weight itself is kept too, so that no other can have its id meanwhile.
            known = self._made[id(weight), dtype] = weight, weight._version, weight.to(dtype)
        return known[2]


_CASTS: ContextVar[Casts | None] = ContextVar("casts", default=None)


@contextmanager
def computing_in(precision: str, device: torch.device = CPU, *, casts: Casts | None = None) -> Iterator[None]:
    """Run matrix products on `device` in `precision`; weights and losses stay in float32.

    So does the LSTM's cell state, inside a window on the processor alone. Where no gradients are wanted, weights that
    `casts` holds are not cast again.
    """
    before = _CASTS.set(casts)
    try:
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=resolve(precision, device) == "bf16"):
            yield
    finally:
        _CASTS.reset(before)


def cast_once(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """A weight in `dtype`, from the `casts` of `computing_in`; as it is where there are none, or gradients wanted."""
    casts = _CASTS.get()
    lasting = isinstance(weight, nn.Parameter) and weight.dtype != dtype
    return weight if casts is None or not lasting or torch.is_grad_enabled() else casts.of(weight, dtype)


def compute_dtype(x: Tensor) -> torch.dtype:
    """The dtype that a matrix product of `x` should run in here: autocast's if it is on, else its own."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`F.linear` with weights of `cast_once`: autocast itself forgets its casts wherever it is left."""
    dtype = compute_dtype(x)
    return F.linear(x, cast_once(weight, dtype), None if bias is None else cast_once(bias, dtype))


class Linear(nn.Linear):
    """torch's, its weights cast by the `casts` of `computing_in`: for layers that are asked at each step of a text."""

    def forward(self, x: Tensor) -> Tensor:
        """x (…, D) -> (…, out_features)."""
        return linear(x, self.weight, self.bias)
