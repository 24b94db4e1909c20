"""Batch normalisation with bounded outputs in evaluation."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from textgraft.core.processes import ALONE, Processes

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

    Attributes:
        processes: In training, those whose batches are normalised together.
    """

    processes: Processes = ALONE

    def forward(self, x: Tensor) -> Tensor:
        """(B, D) -> (B, D)."""
        if self.training:
            return self._synchronised(x) if self.processes.several else super().forward(x)
        normalised = F.batch_norm(x, self.running_mean, self.running_var, eps=self.eps)
        return torch.addcmul(self.bias, normalised.clamp(-MAX_DEVIATIONS, MAX_DEVIATIONS), self.weight)

    def _synchronised(self, x: Tensor) -> Tensor:
        """Normalisation by mean and variance over the batches of all processes, some of which may be empty.

        torch's SyncBatchNorm does so on GPUs only.
        """
        count = self.processes.sums(len(x))[0]
        sum_over_processes: Any = _Sum.apply
        mean = sum_over_processes(x.sum(dim=0)) / count
        variance = sum_over_processes((x - mean).square().sum(dim=0)) / count
        with torch.no_grad():
            statistics: Any = self
            statistics.num_batches_tracked.add_(1)
            statistics.running_mean.lerp_(mean.detach(), self.momentum)
            statistics.running_var.lerp_(variance.detach() * count / max(1.0, count - 1), self.momentum)
        return (x - mean) * (variance + self.eps).rsqrt() * self.weight + self.bias


class _Sum(torch.autograd.Function):
    """The sum of a tensor over all processes; its gradient is the sum of theirs.

    torch.distributed.nn has one too, which torch 2.13 deprecates.
    """

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        return _summed(tensor)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return _summed(*grads)


def _summed(tensor: Tensor) -> Tensor:
    total = tensor.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total)
    return total


def synchronise(model: nn.Module, processes: Processes) -> None:
    """Let batch normalisations take the mean and variance over the batches of these processes."""
    for norm in batch_norms(model):
        norm.processes = processes


def batch_norms(model: nn.Module) -> list[BoundedBatchNorm]:
    """The batch normalisations of a model, in the order of their computation."""
    return [module for module in model.modules() if isinstance(module, BoundedBatchNorm)]
