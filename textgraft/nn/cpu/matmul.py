"""One matrix for many products of few rows."""

from __future__ import annotations

import torch
from torch import Tensor

from textgraft.core.device import on_cpu

STEPS_THAT_PAY = 8
"""Laying weights out for many products costs as much as five of them without."""


class Product:
    """x @ weight.T, (rows, D) by (E, D) to (rows, E), as it is asked for at each of many steps.

    For bfloat16 on a processor oneDNN lays the weights out anew in each product, which for so few rows takes as long as
    the product itself. Here they are laid out once, for the same numbers, where there are steps enough to pay for it.
    """

    def __init__(self, weight: Tensor, steps: int, rows: int) -> None:
        self.transposed, self.laid_out = weight.t(), None
        able = weight.dtype == torch.bfloat16 and on_cpu(weight) and torch.ops.mkldnn._is_mkldnn_bf16_supported()
        if able and steps >= STEPS_THAT_PAY:
            self.laid_out = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), rows)

    def __call__(self, x: Tensor) -> Tensor:
        """(rows, D) -> (rows, E)."""
        if self.laid_out is None:
            return x @ self.transposed
        product: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.laid_out, None, "none", [], "")
        return product

    def add_to(self, total: Tensor, x: Tensor) -> Tensor:
        """`total` (rows, E), to which the product of x (rows, D) has been added."""
        if self.laid_out is None:
            return torch.addmm(total, x, self.transposed, out=total)
        return total.copy_(torch.ops.mkldnn._linear_pointwise.binary(x, total, self.laid_out, None, "add"))
