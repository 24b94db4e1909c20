"""Time shared by both sides of a comparison: the clock, and the parts of a training step. Needs only torch."""

from __future__ import annotations

import functools
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch


def clocks() -> dict[str, float]:
    """Wall-clock seconds, and the processor seconds of this process, which other programs do not stretch."""
    return {"wall": time.perf_counter(), "cpu": time.process_time()}


def since(start: dict[str, float]) -> dict[str, float]:
    return {name: value - start[name] for name, value in clocks().items()}


@dataclass
class Parts:
    """Processor seconds spent inside wrapped functions, each by its part's name; parts must not nest."""

    seconds: dict[str, float] = field(default_factory=dict)

    def wrap(self, owner: Any, method: str, part: str) -> None:
        """Let every call of `owner.method` count for `part`."""
        inner = getattr(owner, method)

        @functools.wraps(inner)
        def timed(*args: Any, **kwargs: Any) -> Any:
            started = time.process_time()
            result = inner(*args, **kwargs)
            self.seconds[part] = self.seconds.get(part, 0.0) + time.process_time() - started
            return result

        setattr(owner, method, timed)

    def shares(self, total: float) -> dict[str, float]:
        """Each part's share of `total` seconds, and what is left."""
        shares = {part: seconds / total for part, seconds in self.seconds.items()}
        return {part: round(share, 3) for part, share in (shares | {"other": 1 - sum(shares.values())}).items()}


def serve(commands: dict[str, Callable[..., Any]]) -> None:
    """Answer commands, a JSON object {"do": name, ...arguments} a line, with a JSON value a line, until stdin ends."""
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever a library prints must not mix with the answers
    for line in _lines():
        arguments = json.loads(line)
        result = commands[arguments.pop("do")](**arguments)
        print(json.dumps(result), file=answers, flush=True)


def _lines() -> Iterator[str]:
    while line := sys.stdin.readline():
        yield line


def matmul_peak(dtype: torch.dtype, rounds: int = 5) -> float:
    """FLOP/s of this process's threads in the largest matrix product of an LSTM step of this size, best of some."""
    a, b = torch.randn(4480, 1152, dtype=dtype), torch.randn(1152, 4608, dtype=dtype)
    best = 0.0
    for _ in range(rounds):
        start = clocks()
        a @ b
        best = max(best, 2 * a.shape[0] * a.shape[1] * b.shape[1] / since(start)["wall"])
    return best
