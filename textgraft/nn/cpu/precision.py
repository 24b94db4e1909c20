"""Which number format the matrix products run in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from textgraft.core.errors import UserError, did_you_mean
from textgraft.nn.cpu.denormals import flushed
from textgraft.nn.cpu.int8 import Int8Matrix, int8_is_native

Precision = Literal["auto", "fp32", "bf16", "int8"]
CPU = torch.device("cpu")


def bf16_is_native() -> bool:
    """Whether this processor multiplies bfloat16 matrices faster than float32 ones.

    With AMX it does, and with the AVX-512 BF16 of AMD's (measured: 3.9 and up to 2 times). Intel's cores without AMX
    have that instruction too, but products take twice as long with it as in float32; on others bfloat16 is emulated.
    Asked of the processor, not of a stopwatch, so that two runs on one machine always choose alike.
    """
    has = torch.cpu.get_capabilities()
    return bool(has.get("amx_bf16") or (has.get("avx512_bf16") and "intel" not in has.get("cpu_name", "").lower()))


def resolve(precision: str, device: torch.device = CPU) -> Literal["fp32", "bf16"]:
    """`auto` becomes bf16 where the device has it, else fp32. Raises UserError for int8: nothing is learned in it."""
    if precision == "int8":
        raise UserError("nothing can be learned in int8.", remedy="Train as usual, and read with --precision int8.")
    if precision not in (known := get_args(Precision)):
        raise UserError(f"unknown precision '{precision}'.", remedy=did_you_mean(precision, known))
    if precision == "auto":
        native = torch.cuda.is_bf16_supported(including_emulation=False) if device.type == "cuda" else bf16_is_native()
        return "bf16" if native else "fp32"
    return "bf16" if precision == "bf16" else "fp32"


FEW_ROWS = 256
"""Products of more rows than these gain nothing from weights that are laid out."""


class Casts:
    """Weights as the products want them, each made once: for one who asks the same model again and again.

    A weight that has been changed since (torch counts that, not what goes through `.data`) is made anew.
    """

    def __init__(self) -> None:
        self._made: dict[tuple[int, str], tuple[Tensor, int, Any]] = {}

    def of(self, weight: Tensor, dtype: torch.dtype) -> Tensor:
        """`weight.to(dtype)`."""
        cast: Tensor = self._once(weight, str(dtype), lambda: weight.to(dtype))
        return cast

    def laid_out(self, weight: Tensor) -> Tensor:
        """A float32 matrix (out, in) as MKL otherwise lays it out at every product, which takes longer than a row."""
        laid_out: Tensor = self._once(weight, "laid out", lambda: _laid_out(weight))
        return laid_out

    def in_int8(self, weight: Tensor) -> Int8Matrix:
        """A recurrent matrix as whole numbers."""
        matrix: Int8Matrix = self._once(weight, "int8", lambda: Int8Matrix(weight))
        return matrix

    def _once(self, weight: Tensor, name: str, make: Callable[[], Any]) -> Any:
        known = self._made.get((id(weight), name))
        if known is None or known[1] != weight._version:
            # The weight itself is kept too, so that no other can have its id meanwhile.
            known = self._made[id(weight), name] = weight, weight._version, make()
        return known[2]


def _laid_out(weight: Tensor) -> Tensor:
    laid_out: Tensor = torch.ops.mkl._mkl_reorder_linear_weight(weight.detach().contiguous(), 64)
    return laid_out


def _packed_linear(x: Tensor, laid_out: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    product: Tensor = torch.ops.mkl._mkl_linear(x, laid_out, weight, bias, x.numel() // x.shape[-1])
    return product


@lru_cache
def _packing_is_usable(outputs: int, inputs: int) -> bool:
    """Whether a matrix laid out once serves any number of rows, which MKL does and does not promise: tried."""
    if not (torch.backends.mkl.is_available() and hasattr(torch.ops.mkl, "_mkl_linear")):
        return False
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(outputs, inputs, generator=generator)
    laid_out = _laid_out(weight)
    for rows in (1, 2, 5, 13, 64, FEW_ROWS):
        x = torch.randn(rows, inputs, generator=generator)
        expected = F.linear(x, weight)
        if not torch.allclose(_packed_linear(x, laid_out, weight, None), expected, rtol=1e-3, atol=1e-3):
            return False
    return True


_CASTS: ContextVar[Casts | None] = ContextVar("casts", default=None)
_IN_INT8: ContextVar[bool] = ContextVar("in_int8", default=False)


@contextmanager
def computing_in(precision: str, device: torch.device = CPU, *, casts: Casts | None = None) -> Iterator[None]:
    """Run matrix products on `device` in `precision`; weights and losses stay in float32.

    So does the LSTM's cell state, inside a window on the processor alone. Where no gradients are wanted, weights that
    `casts` holds are not cast again. In int8 the products of LSTMs and of transformers' layers are of whole numbers,
    all others as in `auto`; where the processor is no faster for it (with AMX: for narrow LSTMs), so are these.
    Denormals are computed as 0.
    """
    in_int8 = precision == "int8"
    enabled = resolve("auto" if in_int8 else precision, device) == "bf16"
    before = _CASTS.set(casts), _IN_INT8.set(in_int8 and device.type == "cpu" and int8_is_native())
    try:
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled), flushed():
            yield
    finally:
        _CASTS.reset(before[0])
        _IN_INT8.reset(before[1])


def int8_is_enabled() -> bool:
    """Whether `computing_in` says so and no gradients are wanted."""
    return _IN_INT8.get() and not torch.is_grad_enabled()


def in_int8(weight: Tensor) -> Int8Matrix | None:
    """The matrix as whole numbers where these are wanted, from the `casts` of `computing_in`."""
    if not int8_is_enabled():
        return None
    casts = _CASTS.get()
    return Int8Matrix(weight) if casts is None else casts.in_int8(weight)


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
    """`F.linear` with weights of `cast_once`: autocast itself forgets its casts wherever it is left.

    In int8 the product is one of whole numbers. In float32 a product of few rows, of which most of the time would go
    into laying the weights out, takes them from the `casts` of `computing_in` too.
    """
    if (whole := in_int8(weight)) is not None:
        return whole.linear(x.reshape(-1, x.shape[-1]).float(), bias).view(*x.shape[:-1], -1)
    dtype = compute_dtype(x)
    if (casts := _casts_for(x, weight, dtype)) is not None:
        return _packed_linear(x, casts.laid_out(weight), weight, bias)
    return F.linear(x, cast_once(weight, dtype), None if bias is None else cast_once(bias, dtype))


def _casts_for(x: Tensor, weight: Tensor, dtype: torch.dtype) -> Casts | None:
    """Those of `computing_in` where laid out weights pay: few rows, float32, on the processor, no gradients."""
    casts = _CASTS.get()
    if casts is None or dtype != torch.float32 or torch.is_grad_enabled() or x.device != CPU:
        return None
    few = 0 < x.numel() <= FEW_ROWS * x.shape[-1] and x.dtype == weight.dtype == dtype
    return casts if few and _packing_is_usable(*weight.shape) else None


class Linear(nn.Linear):
    """torch's, its weights cast by the `casts` of `computing_in`: for layers that are asked at each step of a text."""

    def forward(self, x: Tensor) -> Tensor:
        """x (…, D) -> (…, out_features)."""
        return linear(x, self.weight, self.bias)
