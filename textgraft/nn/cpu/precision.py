"""Number format of matrix products."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from textgraft.core.errors import UserError
from textgraft.core.precision import validate_precision
from textgraft.nn.cpu.denormals import flushed
from textgraft.nn.cpu.int8 import Int8Matrix, int8_is_native

CPU = torch.device("cpu")


def bf16_is_native() -> bool:
    """True if this CPU multiplies bfloat16 matrices faster than float32 ones.

    That is so with AMX and with AMD's AVX-512 BF16 (measured: 3.9 and up to 2 times). Intel's cores without AMX have
    that instruction too, but products take twice as long with it as in float32; on others bfloat16 is emulated. The
    decision depends on the CPU's features, not on timing, so that two runs on one machine always choose the same.
    """
    capabilities = torch.cpu.get_capabilities()
    return bool(
        capabilities.get("amx_bf16")
        or (capabilities.get("avx512_bf16") and "intel" not in capabilities.get("cpu_name", "").lower())
    )


def resolve(precision: str, device: torch.device = CPU) -> Literal["fp32", "bf16"]:
    """The number format for training: `auto` is bf16 where the device supports it, else fp32.

    Raises:
        UserError: The precision is unknown, or int8, which is for inference only.
    """
    if precision == "int8":
        remedy = "Train in auto, fp32 or bf16; what is trained can then predict in int8."
        raise UserError("int8 is for inference only.", remedy=remedy)
    validate_precision(precision)
    if precision == "auto":
        native = torch.cuda.is_bf16_supported(including_emulation=False) if device.type == "cuda" else bf16_is_native()
        return "bf16" if native else "fp32"
    return "bf16" if precision == "bf16" else "fp32"


FEW_ROWS = 256
"""Maximum number of rows for which packed weights are faster."""


MAX_PACKED = 1 << 26
"""Maximum number of weights of a packed matrix: the output table of a large vocabulary is not kept twice."""


class Casts:
    """Cache of converted weights, for repeated inference with one model.

    A weight that has changed since (by torch's version counter, which changes through `.data` do not increase) is
    converted again.
    """

    def __init__(self) -> None:
        self._cache: dict[tuple[int, str], tuple[Tensor, int, Any]] = {}

    def of(self, weight: Tensor, dtype: torch.dtype) -> Tensor:
        """`weight.to(dtype)`."""
        cast: Tensor = self._cached(weight, str(dtype), lambda: weight.to(dtype))
        return cast

    def packed(self, weight: Tensor) -> Tensor:
        """A float32 matrix (out, in) packed for MKL, which otherwise packs it in every product, at more than the cost
        of a row.
        """
        packed: Tensor = self._cached(weight, "packed", lambda: _pack(weight))
        return packed

    def in_int8(self, weight: Tensor) -> Int8Matrix:
        """A recurrent matrix in int8."""
        matrix: Int8Matrix = self._cached(weight, "int8", lambda: Int8Matrix(weight))
        return matrix

    def _cached(self, weight: Tensor, name: str, make: Callable[[], Any]) -> Any:
        entry = self._cache.get((id(weight), name))
        if entry is None or entry[1] != weight._version:
            # The weight is kept too, so that its id is not reused.
            entry = self._cache[id(weight), name] = weight, weight._version, make()
        return entry[2]


def _pack(weight: Tensor) -> Tensor:
    packed: Tensor = torch.ops.mkl._mkl_reorder_linear_weight(weight.detach().contiguous(), 64)
    return packed


def _packed_linear(x: Tensor, packed: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    product: Tensor = torch.ops.mkl._mkl_linear(x, packed, weight, bias, x.numel() // x.shape[-1])
    return product


@lru_cache
def _packing_is_usable(outputs: int, inputs: int) -> bool:
    """True if a packed matrix works for any number of rows, which MKL does not guarantee: tested."""
    if not (torch.backends.mkl.is_available() and hasattr(torch.ops.mkl, "_mkl_linear")):
        return False
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(outputs, inputs, generator=generator)
    packed = _pack(weight)
    for rows in (1, 2, 5, 13, 64, FEW_ROWS):
        x = torch.randn(rows, inputs, generator=generator)
        expected = F.linear(x, weight)
        if not torch.allclose(_packed_linear(x, packed, weight, None), expected, rtol=1e-3, atol=1e-3):
            return False
    return True


_CASTS: ContextVar[Casts | None] = ContextVar("casts", default=None)
_IN_INT8: ContextVar[bool] = ContextVar("in_int8", default=False)


@contextmanager
def computing_in(precision: str, device: torch.device = CPU, *, casts: Casts | None = None) -> Iterator[None]:
    """Context in which matrix products on `device` run in `precision`; weights and losses stay in float32.

    So does the LSTM's cell state, within a window on CPU only. Without gradients, weights in `casts` are not converted
    again. In int8 the products of LSTMs and of transformers' layers are int8, all others as in `auto`; where int8 is
    not faster on this CPU (with AMX: only for narrow LSTMs it is), these are as in `auto` too. Denormals are flushed to
    0.
    """
    in_int8 = precision == "int8"
    enabled = resolve("auto" if in_int8 else precision, device) == "bf16"
    tokens = _CASTS.set(casts), _IN_INT8.set(in_int8 and device.type == "cpu" and int8_is_native())
    try:
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled), flushed():
            yield
    finally:
        _CASTS.reset(tokens[0])
        _IN_INT8.reset(tokens[1])


def int8_is_enabled() -> bool:
    """True inside `computing_in` int8 while gradients are disabled."""
    return _IN_INT8.get() and not torch.is_grad_enabled()


def in_int8(weight: Tensor) -> Int8Matrix | None:
    """The int8 matrix where int8 is enabled, from the `casts` of `computing_in`; else None."""
    if not int8_is_enabled():
        return None
    casts = _CASTS.get()
    return Int8Matrix(weight) if casts is None else casts.in_int8(weight)


def cast_once(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """A weight in `dtype`, from the `casts` of `computing_in`; unchanged where there are none, or gradients are
    enabled.
    """
    casts = _CASTS.get()
    lasting = isinstance(weight, nn.Parameter) and weight.dtype != dtype
    return weight if casts is None or not lasting or torch.is_grad_enabled() else casts.of(weight, dtype)


def compute_dtype(x: Tensor) -> torch.dtype:
    """The dtype of a matrix product of `x`: autocast's if it is enabled, else its own."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`F.linear` with weights of `cast_once`: autocast itself drops its converted weights at the end of its context.

    In int8 the product is int8. In float32 a product of few rows, dominated by packing the weights, uses packed weights
    from the `casts` of `computing_in` too.
    """
    if (int8_matrix := in_int8(weight)) is not None:
        return int8_matrix.linear(x.reshape(-1, x.shape[-1]).float(), bias).view(*x.shape[:-1], -1)
    dtype = compute_dtype(x)
    if (casts := _packed_casts(x, weight, dtype)) is not None:
        return _packed_linear(x, casts.packed(weight), weight, bias)
    return F.linear(x, cast_once(weight, dtype), None if bias is None else cast_once(bias, dtype))


def _packed_casts(x: Tensor, weight: Tensor, dtype: torch.dtype) -> Casts | None:
    """The `casts` of `computing_in` where packed weights pay: few rows, float32, on CPU, no gradients."""
    casts = _CASTS.get()
    if casts is None or dtype != torch.float32 or torch.is_grad_enabled() or x.device != CPU:
        return None
    usable = 0 < x.numel() <= FEW_ROWS * x.shape[-1] and x.dtype == weight.dtype == dtype
    usable = usable and weight.numel() <= MAX_PACKED
    return casts if usable and _packing_is_usable(*weight.shape) else None


class Linear(nn.Linear):
    """torch's, with weights from the `casts` of `computing_in`: for layers that are called at each step of a text."""

    def forward(self, x: Tensor) -> Tensor:
        """x (…, D) -> (…, out_features)."""
        return linear(x, self.weight, self.bias)
