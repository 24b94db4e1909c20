"""Time shared by both sides of a comparison: the clock, and the parts of a training step. Needs only torch."""

from __future__ import annotations

import functools
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch


def clocks() -> dict[str, float]:
    """Wall-clock seconds, and the processor seconds of this process, which other programs do not stretch."""
    return {"wall": time.perf_counter(), "cpu": time.process_time()}


def since(start: dict[str, float]) -> dict[str, float]:
    return {name: value - start[name] for name, value in clocks().items()}


@dataclass
class Parts:
    """Processor seconds spent inside wrapped functions, each by its part's name; of nested calls the outer counts."""

    seconds: dict[str, float] = field(default_factory=dict)
    inside: bool = False

    def wrap(self, owner: Any, method: str, part: str) -> None:
        """Let every call of `owner.method` count for `part`."""
        inner = getattr(owner, method)

        @functools.wraps(inner)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if self.inside:
                return inner(*args, **kwargs)
            self.inside, started = True, time.process_time()
            try:
                return inner(*args, **kwargs)
            finally:
                self.seconds[part] = self.seconds.get(part, 0.0) + time.process_time() - started
                self.inside = False

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


def flop_per_token(shape: dict[str, Any], columns: float) -> float:
    """Of the matrix products of a training step: forward, and backward for inputs and weights, 2 for each weight.

    `columns` is how many rows of the output table a token is multiplied by (the vocabulary, or fewer).
    """
    embedding, hidden, layers = shape["embedding_dim"], shape["hidden_dim"], shape["num_layers"]
    widths = [embedding, *[hidden] * (layers - 1), embedding]
    weights = sum(4 * wide * (below + wide) for below, wide in pairwise(widths))
    return 6 * (weights + columns * embedding)


def matmul_peaks() -> dict[str, float]:
    """FLOP/s of this process's threads in a matrix product of a wide LSTM layer, in each format.

    In float32 by whichever of torch's two libraries is faster here: `@` calls MKL, a linear layer's kernel oneDNN.
    """
    peaks = {}
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        a, b = torch.randn(1120, 1152, dtype=dtype), torch.randn(4608, 1152, dtype=dtype)
        products = [lambda a=a, b=b: a @ b.t()]
        if dtype == torch.float32 and torch.backends.mkldnn.is_available():
            products.append(lambda a=a, b=b: torch.ops.mkldnn._linear_pointwise(a, b, None, "none", [], ""))
        seconds = min(_seconds(product) for product in products)
        peaks[name] = 2 * a.shape[0] * a.shape[1] * b.shape[0] / seconds
    return peaks


def _seconds(work: Callable[[], Any], rounds: int = 5) -> float:
    """Seconds of the fastest of some rounds: the processor's, shared out among this process's threads."""
    best = float("inf")
    for _ in range(rounds):
        started = time.process_time()
        work()
        best = min(best, time.process_time() - started)
    return best / torch.get_num_threads()
