"""The processes of one training: torchrun starts them, and they talk through torch.distributed.

Process 0 runs the command. The others wait for its trainings and take part in them (training.followers); they write
nothing and print nothing.
"""

from __future__ import annotations

import atexit
import os
import pickle
import platform
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor

from textgraft import __version__
from textgraft.core.errors import UserError

WAIT = timedelta(days=7)
"""Time that processes wait for what process 0 does alone, such as tokenizing. A process that ends is noticed at once,
because its connections close."""
STEP = timedelta(minutes=10)
"""Time that processes wait for one another within a step."""


class Lost(UserError):
    """Another process of the training has ended."""

    def __init__(self, error: Exception) -> None:
        remedy = (
            "Run the same command again to resume; torchrun --max-restarts does that by itself. "
            "The message of the process that ended says why, or the system's log, where it was killed for memory."
        )
        super().__init__("another process of this training has ended.", remedy=remedy)
        self.__cause__ = error


@dataclass(frozen=True)
class Processes:
    """The processes of a training, numbered from 0; one alone needs no torch.distributed.

    Attributes:
        rank: Number of this process.
        size: Number of processes.
        control: Group in which they wait for process 0; None for one alone.
    """

    rank: int = 0
    size: int = 1
    control: Any = None

    @property
    def first(self) -> bool:
        """True for process 0, which writes and prints."""
        return self.rank == 0

    @property
    def several(self) -> bool:
        """True if there are others."""
        return self.size > 1

    def from_first(self, value: Any = None) -> Any:
        """The value that process 0 passes here, on all processes."""
        if not self.several:
            return value
        values = [value]
        with _translated():
            dist.broadcast_object_list(values, src=0, group=self.control)
        return values[0]

    def signal(self, code: int = 0) -> int:
        """A small number that process 0 passes here, on all processes."""
        if not self.several:
            return code
        number = torch.tensor([code])
        with _translated():
            dist.broadcast(number, src=0, group=self.control)
        return int(number)

    def gather(self, value: Any) -> list[Any]:
        """The values of all processes, in their order, on each of them."""
        if not self.several:
            return [value]
        values: list[Any] = [None] * self.size
        with _translated():
            dist.all_gather_object(values, value, group=self.control)
        return values

    def sums(self, *values: float) -> list[float]:
        """The sums over all processes of some numbers, in float64."""
        if not self.several:
            return list(values)
        numbers = torch.tensor(values, dtype=torch.float64)
        with _translated():
            dist.all_reduce(numbers, group=self.control)
        return numbers.tolist()

    def broadcast(self, tensor: Tensor, rank: int) -> Tensor:
        """The tensor of one process, on all; it is written over on the others."""
        if self.several:
            with _translated():
                dist.broadcast(tensor, src=rank)
        return tensor

    def share(self, count: int) -> slice:
        """This process's part of `count` rows: they are cut into consecutive parts, which differ by one at most."""
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def rows(self, tensor: Tensor) -> Tensor:
        """The rows (N_i, ...) of all processes, in their order, as one tensor (N, ...); a number () stays."""
        if not self.several or not tensor.ndim:
            return tensor
        parts = self.gather(tensor.detach().cpu())
        return torch.cat(parts).to(tensor.device)


ALONE = Processes()
_current = ALONE


def current() -> Processes:
    """The processes of this training; ALONE without torchrun."""
    return _current


@contextmanager
def alone() -> Iterator[None]:
    """Context in which this process works on its own, as if there were no others."""
    global _current
    before, _current = _current, ALONE
    try:
        yield
    finally:
        _current = before


def start() -> Processes:
    """Connect the processes that torchrun started.

    Each has a GPU of its own where torch has GPUs, by its number on the machine.

    Raises:
        UserError: They cannot connect, have fewer GPUs than processes, or differ in version.
    """
    global _current
    rank, size = _number("RANK"), _number("WORLD_SIZE")
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        if not os.environ.get(name):
            remedy = "Start the command with torchrun, which sets it, or unset RANK and WORLD_SIZE."
            raise UserError(f"RANK is set, and {name} is not.", remedy=remedy)
    if torch.cuda.is_available():
        local = _number("LOCAL_RANK")
        if local >= torch.cuda.device_count():
            message = f"process {rank} is number {local} on its machine, which has {torch.cuda.device_count()} GPUs."
            raise UserError(message, remedy="Start as many processes as there are GPUs: torchrun --nproc-per-node.")
        torch.cuda.set_device(local)
    try:
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, timeout=STEP, store=_store(rank, size), rank=rank, world_size=size)
        control = dist.new_group(backend="gloo", timeout=WAIT)
    except (RuntimeError, ValueError, OSError) as error:
        address = f"{os.environ.get('MASTER_ADDR', '?')}:{os.environ.get('MASTER_PORT', '?')}"
        remedy = "Check that all machines reach that address, and that its port is free: torchrun --master-port."
        message = f"the processes cannot connect ({_first_line(error)})."
        raise UserError(message, where=address, remedy=remedy) from error
    _current = Processes(rank, size, control)
    _validate_versions(_current)
    if rank:
        for number in (signal.SIGINT, signal.SIGTERM):  # torchrun sends them to all; process 0 saves, and ends the rest
            signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    return _current


def _end_with(parent: int) -> None:
    """End this process after torchrun has been killed: the first one saves, and without it the others end."""
    while os.getppid() == parent:
        time.sleep(2)
    if _current.several and _current.first:
        os.kill(os.getpid(), signal.SIGTERM)


def _store(rank: int, size: int) -> Any:
    """The store in which processes find one another's addresses, with none of an earlier attempt.

    torchrun keeps one store for all attempts (torch 2.13), and its restart counter for those after a change of
    machines. Among those with one counter, an attempt is every `size` processes that come.
    """
    store, *_ = next(dist.rendezvous("env://", rank, size, timeout=STEP))
    counter = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    arrivals = store.add(f"textgraft/{counter}/{size}", 1)
    return dist.PrefixStore(f"textgraft/{counter}/{size}/{(arrivals - 1) // size}", store)


def finish() -> None:
    """Close the connections."""
    global _current
    if _current.several:
        with suppress(RuntimeError, ValueError):
            dist.destroy_process_group()
    _current = ALONE


def leave(code: int) -> NoReturn:
    """End this process with an exit code, after what was registered with atexit.

    The interpreter's own shutdown stops threads wherever they are; one in torch.distributed then aborts the process
    ("terminate called without an active exception"), and a training that is done and saved counts as failed.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # a closed pipe, a closed file
            stream.flush()
    os._exit(code)


def told(message: Callable[[], Any], seconds: float = 20.0) -> bool:
    """Tell the others something; False if they do not listen within some seconds.

    So it is where one of them waits for this process within a step that has failed here alone. It is in vain to wait:
    its connections close when this process ends.
    """

    def tell() -> None:
        with suppress(UserError):
            message()

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()


def packed(value: Any) -> bytes:
    """A value as bytes for other processes of the same program. Raises UserError for one that cannot be sent."""
    try:
        return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        raise UserError(f"this training cannot be sent to other processes ({_first_line(error)}).") from error


def unpacked(value: bytes) -> Any:
    """The value that `packed` made, in a process of the same run."""
    return pickle.loads(value)


class _translated:
    """Context that turns a lost connection into a UserError."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, RuntimeError) and is_lost(error):
            raise Lost(error) from error


def is_lost(error: Exception) -> bool:
    """True for the errors of torch.distributed when another process has ended."""
    words = ("connection", "gloo", "nccl", "timed out", "broken pipe", "peer")
    text = f"{type(error).__name__} {error}".lower()
    return current().several and any(word in text for word in words)


def _number(name: str) -> int:
    value = os.environ.get(name, "")
    if not value.isdigit():
        remedy = "Start the command with torchrun, which sets it, or unset WORLD_SIZE."
        raise UserError(f"the environment variable {name} is '{value}', not a number.", remedy=remedy)
    return int(value)


def _validate_versions(processes: Processes) -> None:
    """Raise UserError, on every process, if they run different versions."""
    mine = {"textgraft": __version__, "torch": torch.__version__, "Python": platform.python_version()}
    everyone: Sequence[tuple[str, dict[str, str]]] = processes.gather((platform.node(), mine))
    host, reference = everyone[0]
    for rank, (other, versions) in enumerate(everyone):
        wrong = [name for name in reference if versions.get(name) != reference[name]]
        if wrong:
            name = wrong[0]
            message = f"process {rank} has {name} {versions.get(name)}, and process 0 has {reference[name]}."
            raise UserError(message, where=f"{other}, {host}", remedy="Install the same versions on all machines.")


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")[:200]
