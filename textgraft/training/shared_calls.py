"""Calls of a model by process 0 in a validation, each of whose batches is divided over all processes.

A validation runs on process 0, which alone has the texts and computes the scores. What takes long is the model: its
calls are made on all processes, each with its examples, and process 0 gets the results of all in their order. So every
task's validation is divided, and none of them knows of processes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from textgraft.core.errors import UserError
from textgraft.data.batch import Batch
from textgraft.encoders.base import State
from textgraft.heads.base import Loss
from textgraft.heads.contrastive import contrastive_loss
from textgraft.models.inference import casts_of
from textgraft.nn.cpu.precision import computing_in

METHODS = ("loss", "forward_with_state", "vectors")
"""The methods of a model that compute, beside the model itself."""
CALL = "__call__"
FAILURES = (UserError, ValueError, ArithmeticError, torch.OutOfMemoryError)
"""What may fail on one process alone, and is told to the others."""
Call = tuple[str, Batch, State | None]
"""A method's name, and its arguments."""


class Shared:
    """The model of a training on process 0, whose calls all processes share. Everything else is the model's own.

    Args:
        run: The training (training.loop.Run) that several processes have joined.
    """

    def __init__(self, run: Any) -> None:
        self._run = run

    def __getattr__(self, name: str) -> Any:
        if name not in METHODS:
            return getattr(self._run.model, name)
        return lambda batch, state=None: self._call((name, batch, state))

    def __call__(self, batch: Batch) -> Any:
        return self._call((CALL, batch, None))

    def eval(self) -> Shared:
        self._run.model.eval()
        return self

    def _call(self, call: Call) -> Any:
        run, (name, batch, _) = self._run, call
        if name == "loss" and run.model.contrastive_temperature:  # of every text with every other
            assert batch.targets is not None
            vectors = self._call(("vectors", batch, None))
            return contrastive_loss(vectors, batch.targets.to(run.device), run.model.contrastive_temperature)
        if batch.num_examples < run.processes.size and not run.engine.in_parts:
            return _moved(_computed(call, run), run.device)
        run.processes.from_first(_moved(call, torch.device("cpu")))
        return _moved(take_part(call, run), run.device)


def take_part(call: Call, run: Any) -> Any:
    """Make a call that all processes make: with this process's examples, or with all where these are too few.

    Args:
        call: As process 0 makes it.
        run: The training, as this process has it.

    Returns:
        The result for all examples, on the CPU.

    Raises:
        UserError: The call has failed on another process.
    """
    name, batch, state = call
    if batch.num_examples < run.processes.size:  # of a model in parts: each process has to compute something
        return _computed(call, run)
    result, error = None, None
    own = None if state is None else _of_rows(state, lambda t: t[run.processes.share(len(t))])
    try:
        result = _computed((name, batch.share(run.processes), own), run)
    except FAILURES as problem:
        error = problem
    results = run.processes.gather(result)
    if error is not None:
        raise error
    if any(part is None for part in results):
        raise UserError("a validation has failed on another process.")
    return _joined(results)


def _computed(call: Call, run: Any) -> Any:
    """The result of a call on this process, on the CPU; a model in parts is in parts again after it."""
    name, batch, state = call
    casts = None if run.engine.in_parts else casts_of(run.model)  # FSDP writes into weights without a trace
    method = run.model if name == CALL else getattr(run.model, name)
    with torch.no_grad(), computing_in(run.precision, run.device, casts=casts):
        result = method(batch) if state is None else method(batch, _moved(state, run.device))
    if run.engine.in_parts:
        run.model.reshard()
    return _moved(result, torch.device("cpu"))


def _joined(results: Sequence[Any]) -> Any:
    """The results of all processes as one: rows one after another, losses added."""
    first = results[0]
    if first is None:
        return None
    if isinstance(first, Tensor):
        return _rows(results) if first.ndim else first
    if isinstance(first, tuple):
        return tuple(_joined(parts) for parts in zip(*results, strict=True))
    parts: Counter[str] = Counter()
    for loss in results:
        parts.update(loss.parts)
    total, count = torch.stack([loss.total for loss in results]).sum(), sum(loss.count for loss in results)
    return Loss(total, count, dict(parts), _joined([loss.state for loss in results]))


def _rows(parts: Sequence[Tensor]) -> Tensor:
    """Rows of several tensors; where these differ in columns, as questions in their options, the missing are -inf."""
    if parts[0].ndim == 2:
        width = max(part.shape[1] for part in parts)
        parts = [F.pad(part, (0, width - part.shape[1]), value=-math.inf) for part in parts]
    return torch.cat(list(parts))


def _of_rows(state: State, change: Any) -> State:
    """A state whose tensors with rows are changed; others are numbers that all rows share."""
    return tuple(tuple(change(t) if t.ndim else t for t in layer) for layer in state)


def _moved(value: Any, device: torch.device) -> Any:
    """A call or result with its tensors on a device."""
    if isinstance(value, Tensor | Batch):
        return value.to(device)
    if isinstance(value, tuple):
        return tuple(_moved(part, device) for part in value)
    if isinstance(value, Loss):
        return replace(value, total=value.total.to(device), state=_moved(value.state, device))
    return value
