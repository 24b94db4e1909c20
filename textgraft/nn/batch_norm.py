"""Batch normalisation with bounded outputs in evaluation."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

MAX_DEVIATIONS = 8.0
"""Bound in standard deviations. In a batch of B examples none is farther from their mean than the root of B - 1: 8 for
64.
"""


class BoundedBatchNorm(nn.BatchNorm1d):
    """Batch normalisation (Ioffe & Szegedy 2015) whose values outside training stay within `MAX_DEVIATIONS` of the
    mean.

    A feature that is constant over the training texts has no variance, and later layers are not trained for other
    values of it. With a hundred labels there are many such features: the maximum of a dimension over the words is that
    of the question mark where all texts end with one. The first text without it would be thousands of deviations out,
    and get a confident prediction like no training text. In training no batch of 64 contains such a value, so
    evaluation does not either.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(B, D) -> (B, D)."""
        if self.training:
            return super().forward(x)
        normalised = F.batch_norm(x, self.running_mean, self.running_var, eps=self.eps)
        return torch.addcmul(self.bias, normalised.clamp(-MAX_DEVIATIONS, MAX_DEVIATIONS), self.weight)
