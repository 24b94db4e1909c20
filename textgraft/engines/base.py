"""Interface of engines, and of the work that they run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")
S = TypeVar("S")
R = TypeVar("R")
T_contra = TypeVar("T_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)


class Worker(Protocol[T_contra, R_co]):
    """Work that is prepared once in each process. It must be picklable, and its results too."""

    @property
    def on_gpu(self) -> bool:
        """True if each process is to have a GPU, where there are some."""
        ...

    def open(self) -> Callable[[T_contra], R_co]:
        """Prepare, such as by loading a model, and return the function that is called with each item."""
        ...


class Engine(Protocol):
    """Where work runs. Results come in any order; an item may be processed twice where a machine was lost.

    Attributes:
        name: Its name in registry.ENGINES.
    """

    name: str

    def map(self, worker: Worker[T, R], items: Sequence[T]) -> Iterator[R]:
        """Process a few items that take long, such as trainings.

        Args:
            worker: The work.
            items: Its items, each picklable.

        Raises:
            UserError: As the work does, or where the engine cannot run it.
        """
        ...

    def stream(self, worker: Worker[T, R], read: Callable[[S], Iterator[T]], sources: Sequence[S]) -> Iterator[R]:
        """Process a stream of any length in constant memory.

        Args:
            worker: The work.
            read: Reader of a source, whose items go to the work; a module's function, or a picklable object.
            sources: Such as files; each is read by one process, in order.

        Raises:
            UserError: As `read` and the work do, or where the engine cannot run them.
        """
        ...

    def close(self) -> None:
        """End the processes that the engine has started."""
        ...
