"""The engines by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from textgraft.core.errors import UserError, did_you_mean
from textgraft.core.lazy import resolve
from textgraft.engines.base import Engine

ENGINES: Mapping[str, str] = {
    "local": "textgraft.engines.local:LocalEngine.of",
    "ray": "textgraft.engines.ray_engine:RayEngine.of",
}
"""Constructors of the engines by name, imported on first use: Ray is an optional library."""


@contextmanager
def open_engine(
    name: str = "local", *, address: str | None = None, workers: int | None = None, threads: int | None = None
) -> Iterator[Engine]:
    """Context with an engine, which is closed at the end.

    Args:
        name: A name in ENGINES.
        address: HOST:PORT of a Ray cluster's head, or "auto" for the one that this machine belongs to; None: Ray's
            variable RAY_ADDRESS, else this machine alone.
        workers: Maximum number of worker processes; None: as many as the cluster has processors or GPUs for.
        threads: Threads of each worker; None: 1 on a cluster.

    Raises:
        UserError: The name is unknown, an option is of another engine, or the cluster cannot be used.
    """
    if name not in ENGINES:
        raise UserError(f"unknown engine '{name}'.", where="engine", remedy=did_you_mean(name, ENGINES))
    engine: Engine = resolve(ENGINES[name])(address, workers, threads)
    try:
        yield engine
    finally:
        engine.close()
