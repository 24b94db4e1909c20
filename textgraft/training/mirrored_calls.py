"""Calls of a sharded model, which all processes have to make at the same time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from textgraft.core.processes import Processes
from textgraft.models.model import Model
from textgraft.nn.cpu.precision import computing_in

METHODS = ("loss", "forward_with_state", "vectors")
"""The methods of a model that compute, beside the model itself."""
CALL = "__call__"


class Mirrored:
    """A sharded model on process 0, each of whose calls is made on all processes.

    A layer can only be put together where all processes do that at the same time; in a validation process 0 alone has
    the texts. Everything else is the model's.
    """

    def __init__(self, model: Model, run: Any, processes: Processes) -> None:
        self._model, self._run, self._processes = model, run, processes

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._model, name)
        return self._mirrored(name, value) if name in METHODS else value

    def __call__(self, *args: Any) -> Any:
        return self._mirrored(CALL, self._model)(*args)

    def eval(self) -> Mirrored:
        self._model.eval()
        return self

    def _mirrored(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            self._processes.from_first((name, args))
            return _computed(method, self._run, args)

        return call


def answer(message: tuple[str, tuple[Any, ...]], run: Any) -> None:
    """Make a call that process 0 makes too; its result is not needed."""
    name, args = message
    _computed(run.model if name == CALL else getattr(run.model, name), run, args)


def _computed(method: Callable[..., Any], run: Any, args: tuple[Any, ...]) -> Any:
    """A call without cached casts of weights, as FSDP writes into them without a trace; then all is in parts again."""
    with torch.no_grad(), computing_in(run.settings.precision, run.device):
        result = method(*args)
    run.model.reshard()
    return result
