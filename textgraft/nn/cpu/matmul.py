"""Repeated products with one matrix, for few rows each."""

from __future__ import annotations

import torch
from torch import Tensor

from textgraft.core.device import on_cpu

MIN_STEPS = 8
"""Minimum number of products for which packing weights pays; packing costs as much as five products."""


class PackedMatrix:
    """x @ weight.T, (rows, D) by (E, D) to (rows, E), for many products with one weight.

    For bfloat16 on CPU oneDNN packs the weights in each product, which for few rows takes as long as the product
    itself. Here they are packed once, with the same results, where there are enough steps.
    """

    def __init__(self, weight: Tensor, steps: int, rows: int) -> None:
        self.transposed, self.packed = weight.t(), None
        packable = weight.dtype == torch.bfloat16 and on_cpu(weight) and torch.ops.mkldnn._is_mkldnn_bf16_supported()
        if packable and steps >= MIN_STEPS:
            self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), rows)

    def __call__(self, x: Tensor) -> Tensor:
        """(rows, D) -> (rows, E)."""
        if self.packed is None:
            return x @ self.transposed
        product: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.packed, None, "none", [], "")
        return product

    def add_to(self, total: Tensor, x: Tensor) -> Tensor:
        """Add the product of x (rows, D) to `total` (rows, E); return `total`."""
        if self.packed is None:
            return torch.addmm(total, x, self.transposed, out=total)
        return total.copy_(torch.ops.mkldnn._linear_pointwise.binary(x, total, self.packed, None, "add"))
