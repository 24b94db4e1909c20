"""The gradients of a contrastive loss, whose texts all depend on one another, in the memory of a few of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from textgraft.data.batch import Batch
from textgraft.heads.base import Loss
from textgraft.heads.contrastive import contrastive_loss
from textgraft.models.model import Model


def contrast_backward(model: Model, parts: Sequence[Batch]) -> Loss:
    """Add up the gradients of the contrastive loss of all `parts` of a batch together.

    A single part is read once. Several are read without gradients first, and once more, with the same dropout, to pass
    on the gradients of their vectors (Gao et al. 2021, arXiv:2101.06983), so that one part's activations are held at a
    time. On a processor: a GPU's generator is not wound back.
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
    known = torch.cat(vectors).requires_grad_()
    targets = torch.cat([part.targets for part in parts if part.targets is not None])
    loss = contrastive_loss(known, targets, model.contrastive_temperature)
    loss.total.backward()
    assert known.grad is not None
    for part, generator, grad in zip(parts, generators, known.grad.split([len(v) for v in vectors]), strict=True):
        torch.set_rng_state(generator)
        model.vectors(part).backward(grad)
    return Loss(loss.total.detach(), loss.count)
