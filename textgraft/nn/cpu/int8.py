"""Matrix products with int8 weights, for inference."""

from __future__ import annotations

import torch
from torch import Tensor

STEPS = 127
"""Number of steps of a value within [0, 1]; eight bits with the sign."""
INPUT_FORMAT, OUTPUT_FORMAT = (1 / STEPS, STEPS + 1), (1.0, 0, torch.float32)
"""Scale and zero point of the unsigned input (128 is 0), and of the output."""
HALF_UP = STEPS + 1.5
"""Offset by which numbers within [-127, 127] are rounded when their fractions are truncated."""
NUMBERS_AT_ONCE = 2**17
"""Number of values that are rounded at a time, so that intermediate results stay in the caches."""


def int8_is_native() -> bool:
    """True if this CPU multiplies and adds int8 in one instruction (VNNI) and torch has the operators for it.

    Other CPUs are no faster in int8 than in float32, and their sums may overflow.
    """
    capabilities = torch.cpu.get_capabilities()
    native = capabilities.get("avx512_vnni") or capabilities.get("avx_vnni")
    return bool(native) and torch.backends.mkldnn.is_available() and hasattr(torch.ops.onednn, "qlinear_prepack")


class Int8Matrix:
    """An int8 weight (out, in) with a scale for each row, packed once. Sums are exact."""

    def __init__(self, weight: Tensor) -> None:
        weight = weight.detach().float()
        scales = weight.abs().amax(dim=1).clamp_min(1e-12) / STEPS
        packed = torch.ops.onednn.qlinear_prepack((weight / scales[:, None]).round_().to(torch.int8), None)
        self._weight = packed, scales, torch.zeros(len(weight), dtype=torch.int64)

    def linear(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """F.linear for x (B, in): (B, out). A row of x is rounded to 127ths of its largest absolute value."""
        largest, quantised = x.new_empty(len(x), 1), torch.empty_like(x, dtype=torch.uint8)
        at_once = max(1, NUMBERS_AT_ONCE // x.shape[1])
        for part, part_largest, part_quantised in zip(
            x.split(at_once), largest.split(at_once), quantised.split(at_once)
        ):
            torch.amax(part.abs(), dim=1, keepdim=True, out=part_largest).clamp_min_(1e-12)
            part_quantised.copy_((part * (STEPS / part_largest)).add_(HALF_UP))
        product: Tensor = torch.ops.onednn.qlinear_pointwise(
            quantised, *INPUT_FORMAT, *self._weight, None, *OUTPUT_FORMAT, "none", [], ""
        )
        return product.mul_(largest) if bias is None else torch.addcmul(bias, product, largest, out=product)

    def add_to(self, total: Tensor, x: Tensor, bias: Tensor) -> Tensor:
        """Add x (B, in) times the weight's transpose and the bias (out,) to `total` (B, out); return `total`.

        x is within [-1, 1], as an LSTM's outputs are, and is rounded to 127ths.
        """
        quantised = (x * STEPS).add_(HALF_UP).to(torch.uint8)
        # The product accumulates, which saves passes over memory.
        result: Tensor = torch.ops.onednn.qlinear_pointwise.binary(
            quantised, *INPUT_FORMAT, *self._weight, total, bias, *OUTPUT_FORMAT, 1.0, 0, "sum", 1.0, "none", [], ""
        )
        return result
