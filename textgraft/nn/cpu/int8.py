"""Weights as whole numbers, for models that are read and not trained."""

from __future__ import annotations

import torch
from torch import Tensor

STEPS = 127
"""Into so many a value within [0, 1] is divided; eight bits with the sign."""
OF_X, AS_IT_IS = (1 / STEPS, STEPS + 1), (1.0, 0, torch.float32)
"""Scale and zero of what is multiplied, which has no sign (128 is 0), and of what comes of it."""
HALF_UP = STEPS + 1.5
"""What takes numbers within [-127, 127] to where cutting off their fractions rounds them."""
NUMBERS_NEARBY = 2**17
"""So many are rounded at a time: what comes between stays in the caches."""


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

    def linear(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """F.linear for x (B, in): (B, out). A row of x is rounded to 127ths of its largest number."""
        largest, whole = x.new_empty(len(x), 1), torch.empty_like(x, dtype=torch.uint8)
        at_once = max(1, NUMBERS_NEARBY // x.shape[1])
        for part, its_largest, its_whole in zip(x.split(at_once), largest.split(at_once), whole.split(at_once)):
            torch.amax(part.abs(), dim=1, keepdim=True, out=its_largest).clamp_min_(1e-12)
            its_whole.copy_((part * (STEPS / its_largest)).add_(HALF_UP))
        product: Tensor = torch.ops.onednn.qlinear_pointwise(
            whole, *OF_X, *self._weight, None, *AS_IT_IS, "none", [], ""
        )
        return product.mul_(largest) if bias is None else torch.addcmul(bias, product, largest, out=product)

    def add_to(self, total: Tensor, x: Tensor, bias: Tensor) -> Tensor:
        """`total` (B, out), to which x (B, in) times the weight's transpose and the bias (out,) have been added.

        x lies within [-1, 1], as an LSTM's outputs do, and is rounded to 127ths.
        """
        whole = (x * STEPS).add_(HALF_UP).to(torch.uint8)
        # The product itself sums up, which saves passes over memory.
        added: Tensor = torch.ops.onednn.qlinear_pointwise.binary(
            whole, *OF_X, *self._weight, total, bias, *AS_IT_IS, 1.0, 0, "sum", 1.0, "none", [], ""
        )
        return added
