"""A cache of what a stream computes once an epoch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class PerEpoch(Generic[T]):
    """A function of the epoch, whose results for the last two epochs are kept; copies begin with none.

    Args:
        function: A method of the stream, so that it can be sent to another process with it.
    """

    KEPT = 2

    def __init__(self, function: Callable[[int], T]) -> None:
        self._function = function
        self._results: dict[int, T] = {}

    def __call__(self, epoch: int) -> T:
        if epoch not in self._results:
            self._results[epoch] = self._function(epoch)
            while len(self._results) > self.KEPT:
                del self._results[next(iter(self._results))]
        return self._results[epoch]

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_results": {}}
