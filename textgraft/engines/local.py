"""The engine that runs everything in this process, one item after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from textgraft.core.errors import UserError
from textgraft.engines.base import R, S, T, Worker


@dataclass(frozen=True)
class LocalEngine:
    """This process. Items are processed in their order, each once."""

    name = "local"

    @classmethod
    def of(cls, address: str | None = None, workers: int | None = None, threads: int | None = None) -> LocalEngine:
        """The engine with its options. Raises UserError for those of a cluster."""
        for option, value in (("address", address), ("workers", workers)):
            if value is not None:
                remedy = 'Leave it out, or name an engine that has workers (engine="ray").'
                raise UserError("the local engine is this process alone.", where=option, remedy=remedy)
        return cls()

    def map(self, worker: Worker[T, R], items: Sequence[T]) -> Iterator[R]:
        """Process items in order; the worker is not opened where there are none."""
        if items:
            yield from map(worker.open(), items)

    def stream(self, worker: Worker[T, R], read: Callable[[S], Iterator[T]], sources: Sequence[S]) -> Iterator[R]:
        """Read and process sources in order."""
        if sources:
            process = worker.open()
            for source in sources:
                yield from map(process, read(source))

    def close(self) -> None:
        """Do nothing: there are no other processes."""


LOCAL = LocalEngine()
"""The default engine."""
