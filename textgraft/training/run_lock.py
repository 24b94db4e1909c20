"""The lock on a run's folder, so that no two runs write into it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

from textgraft.core.errors import UserError
from textgraft.core.files import cannot_write

P = ParamSpec("P")
R = TypeVar("R")


class _Locks(ExitStack):
    """The locks that a run has taken, by folder; they are released when it ends."""

    def __init__(self) -> None:
        super().__init__()
        self.folders: set[Path] = set()


_LOCKS: ContextVar[_Locks | None] = ContextVar("locks", default=None)


def exclusive(verb: Callable[P, R]) -> Callable[P, R]:
    """A function whose work folders (driver.work_folder) are locked until it returns or raises."""

    @wraps(verb)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with _Locks() as locks:
            before = _LOCKS.set(locks)
            try:
                return verb(*args, **kwargs)
            finally:
                _LOCKS.reset(before)

    return run


def claim(folder: Path) -> None:
    """Lock a folder, which is made if need be, for as long as the surrounding `exclusive` function runs.

    Raises:
        UserError: Another run has the lock.
    """
    locks = _LOCKS.get()
    if locks is not None:
        locks.enter_context(locked(folder))
        locks.folders.add(folder.resolve())


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Context with an exclusive lock on a folder; without effect where the same run has it already.

    The system releases the lock when the process ends, in whatever way. Where folders cannot be locked (Windows, some
    network drives), there is no lock.

    Raises:
        UserError: Another run, of this process or another, has the lock.
    """
    locks = _LOCKS.get()
    if locks is not None and folder.resolve() in locks.folders:
        yield
        return
    try:
        import fcntl
    except ImportError:
        folder.mkdir(parents=True, exist_ok=True)
        yield
        return
    handle = _opened(folder)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            while not _is_at(handle, folder):  # the run before removed its folder in the meantime
                os.close(handle)
                handle = _opened(folder)
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            remedy = "Name another path; or wait until it has finished, or stop it, and run the same command again."
            raise UserError("another run is writing here.", where=str(folder), remedy=remedy) from error
        except OSError:  # this drive does not support locks
            pass
        yield
    finally:
        os.close(handle)


def _opened(folder: Path) -> int:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise cannot_write(folder, error) from error


def _is_at(handle: int, folder: Path) -> bool:
    """True if the path still leads to the folder that is open."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(folder))
    except FileNotFoundError:
        return False
