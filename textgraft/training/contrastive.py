"""Gradients of a contrastive loss over a whole batch, in the memory that a part of the batch needs."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from textgraft.data.batch import Batch
from textgraft.heads.base import Loss
from textgraft.heads.contrastive import contrastive_loss
from textgraft.models.model import Model


def contrastive_backward(model: Model, parts: Sequence[Batch]) -> Loss:
    """Accumulate the gradients of the contrastive loss over all `parts` of a batch together.

    A single part is encoded once. Several are encoded without gradients first, and once more, with the same dropout,
    to backpropagate the gradients of their vectors (gradient caching, Gao et al. 2021, arXiv:2101.06983), so that one
    part's activations are in memory at a time. Several parts work on a CPU only: the state of a GPU's random generator
    is not restored.

    Args:
        model: A classifier with a `contrastive_temperature` above 0.
        parts: Sub-batches of one batch, with targets.

    Returns:
        The loss, detached.
    """
    if len(parts) == 1:
        loss = model.loss(parts[0])
        loss.total.backward()
        return Loss(loss.total.detach(), loss.count)
    vectors, generators = [], []
    with torch.no_grad():
        for part in parts:
            generators.append(torch.get_rng_state())
            vectors.append(model.vectors(part))
    cached = torch.cat(vectors).requires_grad_()
    targets = torch.cat([part.targets for part in parts if part.targets is not None])
    loss = contrastive_loss(cached, targets, model.contrastive_temperature)
    loss.total.backward()
    assert cached.grad is not None
    for part, generator, grad in zip(parts, generators, cached.grad.split([len(v) for v in vectors]), strict=True):
        torch.set_rng_state(generator)
        model.vectors(part).backward(grad)
    return Loss(loss.total.detach(), loss.count)
