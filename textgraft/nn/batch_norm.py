"""Batch normalisation that an unusual text cannot blow up."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

WIDEST = 8.0
"""Standard deviations. In a batch of B examples none is farther from their mean than the root of B - 1: 8 for 64."""


class BoundedBatchNorm(nn.BatchNorm1d):
    """Ioffe & Szegedy 2015, but that outside training no value is farther from the mean than `WIDEST` deviations.

    A feature that is the same in every training text has no variance, and what comes after it has not learned what to
    do with it. With a hundred labels there are many: the largest value of a dimension over the words is that of the
    question mark where all texts end with one. The first text without it then lies thousands of deviations out, and
    answers with a certainty that no training text had. No batch of 64 shows a layer such a value in training,
    and so it does not see one afterwards either.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(B, D) -> (B, D)."""
        if self.training:
            return super().forward(x)
        away = F.batch_norm(x, self.running_mean, self.running_var, eps=self.eps)
        return torch.addcmul(self.bias, away.clamp(-WIDEST, WIDEST), self.weight)
