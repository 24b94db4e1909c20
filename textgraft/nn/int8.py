"""Weights of LSTMs as whole numbers, for models that are read and not trained."""

from __future__ import annotations

import torch
from torch import Tensor

STEPS = 127
"""Into so many a value within [0, 1] is divided; eight bits with the sign."""
OF_X, AS_IT_IS = (1 / STEPS, STEPS + 1), (1.0, 0, torch.float32)
"""Scale and zero of what is multiplied, and of what comes of it."""


def int8_is_native() -> bool:
    """Whether this processor adds up products of eight bits in one instruction (VNNI), and torch has the calls for it.

    Others are no faster with eight bits than in float32, and what adds their products up may overflow.
    """
    has = torch.cpu.get_capabilities()
    native = has.get("avx512_vnni") or has.get("avx_vnni")
    return bool(native) and torch.backends.mkldnn.is_available() and hasattr(torch.ops.onednn, "qlinear_prepack")


class Int8Matrix:
    """A weight (out, in) in eight bits, with a scale for each row, laid out once. Sums are exact."""

    def __init__(self, weight: Tensor) -> None:
        weight = weight.detach().float()
        scales = weight.abs().amax(dim=1).clamp_min(1e-12) / STEPS
        laid_out = torch.ops.onednn.qlinear_prepack((weight / scales[:, None]).round_().to(torch.int8), None)
        self._weight = laid_out, scales, torch.zeros(len(weight), dtype=torch.int64)

    def times(self, x: Tensor) -> Tensor:
        """x (B, in) times the weight's transpose, (B, out); a row of x is rounded to 127ths of its largest number."""
        largest = x.abs().amax(dim=1, keepdim=True).clamp_min_(1e-12)
        product: Tensor = torch.ops.onednn.qlinear_pointwise(
            _whole(x / largest), *OF_X, *self._weight, None, *AS_IT_IS, "none", [], ""
        )
        return product.mul_(largest)

    def add_to(self, total: Tensor, x: Tensor, bias: Tensor) -> Tensor:
        """`total` (B, out), to which x (B, in) times the weight's transpose and the bias (out,) have been added.

        x lies within [-1, 1], as an LSTM's outputs do, and is rounded to 127ths.
        """
        # The product itself sums up, which saves passes over memory.
        added: Tensor = torch.ops.onednn.qlinear_pointwise.binary(
            _whole(x), *OF_X, *self._weight, total, bias, *AS_IT_IS, 1.0, 0, "sum", 1.0, "none", [], ""
        )
        return added


def _whole(x: Tensor) -> Tensor:
    """127ths of x, which is within [-1, 1], as numbers without a sign: 128 is 0."""
    return (x * STEPS).add_(STEPS + 1.5).to(torch.uint8)  # the half, because what is cut off rounds
