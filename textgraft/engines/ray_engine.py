"""The engine that runs work on a Ray cluster (extra `[ray]`): streams on Ray Data, a few long tasks on Ray Core.

Errors of users come back as values: Ray would wrap them in its own, with the traceback of the other machine.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import secrets
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any
from uuid import uuid4

from textgraft import __version__
from textgraft.core.errors import UserError
from textgraft.engines.base import R, S, T, Worker

SECONDS_TO_ANSWER = 5.0
"""Seconds in which the head of a cluster must accept a connection."""
SECONDS_TO_START = 45.0
"""Seconds in which every node must have started a process that imports textgraft."""
DEFAULT_PORT = "6379"
COLUMN = "item"
FAILED = b"!"
"""The first byte of a packed Failure."""


@dataclass(frozen=True)
class Failure:
    """A UserError on another machine."""

    message: str
    where: str
    remedy: str
    node: str

    def error(self) -> UserError:
        """The error as it is raised where the run was started."""
        where = f"{self.where} on {self.node}" if self.where else self.node
        return UserError(self.message, where=where, remedy=self.remedy)


@dataclass
class RayEngine:
    """A Ray cluster, or this machine alone. It connects with the first work.

    Attributes:
        address: Of the cluster; None: RAY_ADDRESS, else a cluster of this machine that ends with the run.
        workers: Maximum number of worker processes.
        threads: Threads, and processors, of each worker.
        connected_here: The engine has connected Ray itself, and disconnects it.
    """

    address: str | None = None
    workers: int | None = None
    threads: int = 1
    name = "ray"
    connected_here: bool = field(default=False, init=False)

    @classmethod
    def of(cls, address: str | None = None, workers: int | None = None, threads: int | None = None) -> RayEngine:
        """The engine with its options. Raises UserError where Ray is missing, or the address is none."""
        address = address or os.environ.get("RAY_ADDRESS") or None
        if address is None:
            _protect_own_cluster()
        _library()
        return cls(None if address is None else _validated_address(address), workers, threads or 1)

    def map(self, worker: Worker[T, R], items: Sequence[T]) -> Iterator[R]:
        """Process items as Ray tasks; results come as they are finished. A task of a lost node is repeated."""
        if not items:
            return
        ray = self._connected()
        with _as_user_errors(ray):
            work = ray.put(_Opened(worker, self.threads))
            gpus = _gpus(ray) if worker.on_gpu else 0
            remote = ray.remote(num_cpus=self.threads, num_gpus=min(gpus, 1), max_retries=-1)(_task)
            most = self._most_workers(ray, gpus)
            waiting, running = [ray.put(_packed(item)) for item in items], list[Any]()
            while waiting or running:
                while waiting and len(running) < most:
                    running.append(remote.remote(work, waiting.pop(0)))
                finished, running = ray.wait(running, num_returns=1)
                yield _result(ray.get(finished[0]))

    def stream(self, worker: Worker[T, R], read: Callable[[S], Iterator[T]], sources: Sequence[S]) -> Iterator[R]:
        """Read sources in tasks, and process their items in a pool of actors. What a lost node had is done again."""
        if not sources:
            return
        ray = self._connected()
        data = _quiet_data()
        gpus = _gpus(ray) if worker.on_gpu else 0
        with _as_user_errors(ray):
            rows = [{COLUMN: _packed(source)} for source in sources]
            items = data.from_items(rows, override_num_blocks=len(rows)).map_batches(
                _Reading(read), batch_size=1, batch_format="pyarrow", num_cpus=0, concurrency=len(_nodes(ray))
            )
            results = items.map_batches(
                _Actor,
                fn_constructor_args=(worker, self.threads),
                batch_size=1,
                batch_format="pyarrow",
                num_cpus=self.threads,
                num_gpus=1 if gpus else None,
                compute=data.ActorPoolStrategy(min_size=1, max_size=self._most_workers(ray, gpus)),
            )
            for row in results.iter_rows():
                yield _result(row[COLUMN])

    def close(self) -> None:
        """Leave the cluster; one of this machine ends."""
        if self.connected_here:
            import_module("ray").shutdown()
            self.connected_here = False

    def _connected(self) -> Any:
        """The library, connected, after every node has answered."""
        ray = _library()
        if not ray.is_initialized():
            quiet = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": True}
            local = {"include_dashboard": False} if self.address is None else {}
            try:
                with _silent_stderr():
                    ray.init(address=self.address or "local", **quiet, **local)
            except (ConnectionError, RuntimeError, ValueError, OSError) as error:
                reason = str(error).strip().splitlines()[0]
                raise _no_cluster(self.address or "this machine", reason) from error
            self.connected_here = True
            _validate_nodes(ray)
        return ray

    def _most_workers(self, ray: Any, gpus: int) -> int:
        most = gpus or sum(int(node["Resources"].get("CPU", 0) // self.threads) for node in _nodes(ray))
        if most < 1:
            message = f"no node has {self.threads} processors for a worker."
            raise UserError(message, where="threads", remedy="Give fewer threads.")
        return min(most, self.workers or most)


class _Opened:
    """A worker that is opened once in each process, with the first item."""

    def __init__(self, worker: Worker[T, R], threads: int) -> None:
        self.name = uuid4().hex
        self._worker, self._threads = worker, threads
        self._process: Callable[[Any], Any] | None = None

    def __call__(self, item: bytes) -> bytes:
        try:
            if self._process is None:
                os.environ["OMP_NUM_THREADS"] = str(self._threads)
                self._process = self._worker.open()
            return _packed(self._process(_unpacked(item)))
        except UserError as error:
            return _failed(error)


class _Actor:
    """A process of the pool: a worker for batches of one item."""

    def __init__(self, worker: Worker[T, R], threads: int) -> None:
        self._opened = _Opened(worker, threads)

    def __call__(self, batch: Any) -> Any:
        return _table([item if item.startswith(FAILED) else self._opened(item) for item in batch[COLUMN].to_pylist()])


class _Reading:
    """A reader of sources as batches of one item each, so that each goes on as soon as it is read."""

    def __init__(self, read: Callable[[Any], Iterator[Any]]) -> None:
        self._read = read

    def __call__(self, batch: Any) -> Iterator[Any]:
        for source in batch[COLUMN].to_pylist():
            try:
                for item in self._read(_unpacked(source)):
                    yield _table([_packed(item)])
            except UserError as error:
                yield _table([_failed(error)])


_PROCESSES: dict[str, _Opened] = {}
"""The worker that this process has opened, by its name; a task of another one replaces it."""


def _task(work: _Opened, item: bytes) -> bytes:
    if work.name not in _PROCESSES:
        _PROCESSES.clear()
        _PROCESSES[work.name] = work
    return _PROCESSES[work.name](item)


def _table(items: list[bytes]) -> Any:
    pyarrow = import_module("pyarrow")
    return pyarrow.table({COLUMN: pyarrow.array(items, pyarrow.large_binary())})


def _packed(value: Any) -> bytes:
    return b" " + pickle.dumps(value)


def _unpacked(packed: bytes) -> Any:
    return pickle.loads(memoryview(packed)[1:])


def _failed(error: UserError) -> bytes:
    failure = Failure(error.message, error.where, error.remedy, socket.gethostname())
    return FAILED + pickle.dumps(failure)


def _result(packed: bytes) -> Any:
    if packed.startswith(FAILED):
        raise _unpacked(packed).error()
    return _unpacked(packed)


def _library() -> Any:
    """Ray, without its usage statistics and its messages. Raises UserError where it is not installed."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # its present behaviour, without a warning
    try:
        return import_module("ray")
    except ImportError as error:
        remedy = "Install it (pip install 'textgraft[ray]'), or use the local engine."
        raise UserError("the engine 'ray' needs the package ray.", where="engine", remedy=remedy) from error


def _protect_own_cluster() -> None:
    """Let only this process and its children talk to a cluster that they start: Ray listens to the whole network.

    Ray decides on it when it is imported; after that nothing is changed.
    """
    if "ray" not in sys.modules and "RAY_AUTH_MODE" not in os.environ:
        os.environ["RAY_AUTH_MODE"] = "token"
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


def _quiet_data() -> Any:
    """Ray Data without progress bars and messages, with a block of its own for each item."""
    data = import_module("ray.data")
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    context = data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    context.target_max_block_size = 1
    return data


def _validated_address(address: str) -> str:
    """An address as Ray takes it. Raises UserError for one where nothing answers."""
    if address in ("auto", "local"):
        return address
    if address.startswith("ray://"):
        remedy = "Run the command on a machine of the cluster, with HOST:PORT of its head or auto."
        raise UserError("this is the address of a Ray client.", where=address, remedy=remedy)
    host, _, port = address.partition(":")
    if not host or not (port or DEFAULT_PORT).isdecimal():
        raise UserError("this is no address.", where=address, remedy="Write HOST:PORT, or auto.")
    try:
        socket.create_connection((host, int(port or DEFAULT_PORT)), SECONDS_TO_ANSWER).close()
    except (OSError, OverflowError) as error:
        raise _no_cluster(address, str(error)) from error
    return f"{host}:{port or DEFAULT_PORT}"


def _no_cluster(address: str, reason: str) -> UserError:
    remedy = "Start Ray there (ray start --head), or name no address to use this machine alone."
    return UserError(f"there is no Ray cluster ({reason}).", where=address, remedy=remedy)


def _nodes(ray: Any) -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


def _gpus(ray: Any) -> int:
    return int(sum(node["Resources"].get("GPU", 0) for node in _nodes(ray)))


def _version() -> str:
    return __version__


def _validate_nodes(ray: Any) -> None:
    """Raise UserError for a node where textgraft is missing, or has another version."""
    strategies = import_module("ray.util.scheduling_strategies")
    answers = {}
    for node in _nodes(ray):
        strategy = strategies.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        remote = ray.remote(num_cpus=0, max_retries=1, scheduling_strategy=strategy)(_version)
        answers[remote.remote()] = node["NodeManagerHostname"]
    remedy = f"Install textgraft {__version__} on every machine of the cluster."
    ready, waiting = ray.wait(list(answers), num_returns=len(answers), timeout=SECONDS_TO_START)
    if waiting:
        message = f"no process has started in {SECONDS_TO_START:.0f} seconds."
        raise UserError(message, where=answers[waiting[0]], remedy="See what `ray status` says.")
    for answer in ready:
        try:
            version = ray.get(answer)
        except ray.exceptions.RayError as error:
            raise UserError("textgraft cannot be imported there.", where=answers[answer], remedy=remedy) from error
        if version != __version__:
            message = f"textgraft has version {version} there, and {__version__} here."
            raise UserError(message, where=answers[answer], remedy=remedy)


@contextlib.contextmanager
def _silent_stderr() -> Iterator[None]:
    """Context in which compiled code prints nothing: Ray says there which variables it has read."""
    before = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(nowhere)


@contextlib.contextmanager
def _as_user_errors(ray: Any) -> Iterator[None]:
    """Convert Ray's own errors, such as that of a cluster that is gone."""
    try:
        yield
    except ray.exceptions.RayTaskError:
        raise  # a bug in the work
    except (ray.exceptions.RayError, ConnectionError) as error:
        reason = str(error).strip().splitlines()[0]
        remedy = "Run the same command again: it continues with what is missing."
        raise UserError(f"the cluster was lost ({reason}).", where="Ray", remedy=remedy) from error
