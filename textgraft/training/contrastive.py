"""Gradients of a contrastive loss over a whole batch, in the memory that a part of the batch needs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from textgraft.core.processes import ALONE, Processes
from textgraft.data.batch import Batch
from textgraft.heads.base import Loss
from textgraft.heads.contrastive import contrastive_loss
from textgraft.models.model import Model
from textgraft.training.engines import Engine, nothing


def contrastive_backward(
    engine: Engine, parts: Sequence[Batch], processes: Processes = ALONE, *, last: bool = True
) -> Loss:
    """Accumulate the gradients of the contrastive loss over all `parts` of a batch together, on all processes.

    A single part is encoded once. Several are encoded without gradients first, and once more, with the same dropout,
    to backpropagate the gradients of their vectors (gradient caching, Gao et al. 2021, arXiv:2101.06983), so that one
    part's activations are in memory at a time. Processes exchange these vectors.

    Args:
        engine: Of a classifier with a `contrastive_temperature` above 0.
        parts: Sub-batches of this process's share of one batch, with targets.
        processes: Of the training.
        last: The step has no further batch.

    Returns:
        The loss, detached; on process 0 alone, as it is that of all.
    """
    model = engine.model
    if len(parts) == 1 and not processes.several:
        loss = engine.loss(lambda model: model.loss(parts[0]), last=last)
        loss.total.backward()
        return Loss(loss.total.detach(), loss.count)
    vectors, generators = [], []
    with torch.no_grad():
        for part in parts:
            generators.append(_generators(model.device))
            vectors.append(model.vectors(part) if len(part.ids) else None)
    sizes = [0 if v is None else len(v) for v in vectors]
    own = torch.cat([v for v in vectors if v is not None]) if any(sizes) else None
    cached, targets, first = _of_all(own, parts, processes, model.device)
    cached.requires_grad_()
    loss = contrastive_loss(cached, targets, model.contrastive_temperature)
    loss.total.backward()
    assert cached.grad is not None
    grads = cached.grad[first : first + sum(sizes)].split(sizes)
    for number, (part, generator, grad) in enumerate(zip(parts, generators, grads, strict=True)):
        _set_generators(generator, model.device)
        compute = partial(_backpropagated, part=part, grad=grad)
        engine.loss(compute, last=last and number == len(parts) - 1).total.backward()
    return Loss(loss.total.detach(), loss.count) if processes.first else Loss(loss.total.detach() * 0, 0)


def _of_all(
    own: Tensor | None, parts: Sequence[Batch], processes: Processes, device: torch.device
) -> tuple[Tensor, Tensor, int]:
    """Vectors and targets of the whole batch, and the number of the first that is of this process."""
    targets = torch.cat([part.targets for part in parts if part.targets is not None]).cpu()
    everyone = processes.gather((None if own is None else own.float().cpu(), targets))
    vectors = torch.cat([v for v, _ in everyone if v is not None]).to(device)
    first = sum(len(t) for _, t in everyone[: processes.rank])
    return vectors, torch.cat([t for _, t in everyone]).to(device), first


def _backpropagated(model: Model, *, part: Batch, grad: Tensor) -> Loss:
    """A loss whose gradient with regard to the vectors of a part is `grad`."""
    if not len(part.ids):
        return nothing(model)
    return Loss((model.vectors(part) * grad).sum(), len(grad))


def _generators(device: torch.device) -> tuple[Tensor, ...]:
    """The states of the random generators."""
    return (torch.get_rng_state(), *((torch.cuda.get_rng_state(),) if device.type == "cuda" else ()))


def _set_generators(states: tuple[Tensor, ...], device: torch.device) -> None:
    torch.set_rng_state(states[0])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states[1])
