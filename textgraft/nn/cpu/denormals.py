"""Denormals, numbers below 1e-38 in float32, with which a CPU may be many times slower.

A saturated LSTM gate has gradients of this size, and so do all layers below it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

SMALLEST_DENORMAL = 5e-324  # of a Python float
ELEMENTS_PER_THREAD = 32_768  # minimum number of elements for a torch thread


def are_flushed() -> bool:
    """True if this thread computes 0 in place of denormals."""
    return SMALLEST_DENORMAL * 1.0 == 0.0


@contextmanager
def flushed() -> Iterator[None]:
    """Context in which this thread flushes denormals to zero, inputs and outputs; no effect on CPUs without support."""
    previous = are_flushed()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(previous)


def start_workers() -> None:
    """Start torch's worker threads, unless they exist, so that they flush denormals from then on.

    A thread inherits the setting of the thread that starts it, and torch cannot change it in the others later: where
    torch has computed something large before textgraft does, only the calling thread ever flushes. This is not done by
    an import, because a process that forks afterwards could not compute in its children.
    """
    with flushed():
        torch.zeros(torch.get_num_threads() * ELEMENTS_PER_THREAD, device="cpu").add_(1)
