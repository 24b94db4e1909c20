"""Denormals, numbers nearer to zero than 1e-38, with which a processor may count many times as slowly.

A gate of an LSTM that stands still has gradients of this size, and so do those of all layers below it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

LEAST = 5e-324  # the smallest denormal, of Python's own numbers
GRAIN = 32_768  # how many numbers torch gives to each thread at least


def are_flushed() -> bool:
    """Whether what this thread computes is 0 where it would be denormal."""
    return LEAST * 1.0 == 0.0


@contextmanager
def flushed() -> Iterator[None]:
    """Compute 0 for a denormal, and read one as 0, on this thread; a processor that cannot goes on as it does."""
    before = are_flushed()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def start_workers() -> None:
    """Start the threads among which torch divides its work, where it has not; they flush denormals from then on.

    A thread is born with the setting of the one that starts it, and torch has no way to change it in the others later:
    where torch has computed something large before textgraft does, only the calling thread ever flushes. Not done by an
    import, because a process that forks after it could not compute in its children.
    """
    with flushed():
        torch.zeros(torch.get_num_threads() * GRAIN, device="cpu").add_(1)
