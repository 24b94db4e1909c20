"""Free memory: how much there is, and control of glibc's allocator, which holds what is free."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from textgraft.core.errors import UserError

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4
LARGE_BLOCK, MAX_DYNAMIC_THRESHOLD = 1 << 20, 32 << 20
"""Sizes in bytes from which blocks are mapped separately instead of taken from the heap; the second is the maximum of
glibc's dynamic threshold.
"""
MAX_THRESHOLD = (1 << 31) - 1
"""Largest threshold in bytes that glibc accepts."""
DEFAULT_MMAP_MAX = 1 << 16
"""glibc's default limit of separately mapped blocks."""
CONTROL_GROUPS = (
    (Path("/sys/fs/cgroup"), "memory.max", "memory.current"),
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes"),
)
"""Folders of Linux's control groups, version 2 and 1, with the names of a container's limit and use of memory."""
USER_VARIABLE = "MALLOC_MMAP_THRESHOLD_"


def _glibc_function(name: str) -> Any:
    """A function of glibc; None with another C library or system."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None


@contextmanager
def mmap_large_blocks() -> Iterator[None]:
    """Context in which glibc maps each block of over a megabyte separately, and returns it to the system when freed.

    By default blocks of up to 32 MB come from the heap, where varying sizes leave holes; mapping costs time, which
    matters where a model allocates many. Does nothing if the user has set USER_VARIABLE.
    """
    mallopt = None if USER_VARIABLE in os.environ else _glibc_function("mallopt")
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK)
    try:
        yield
    finally:
        if mallopt is not None:
            mallopt(M_MMAP_THRESHOLD, MAX_DYNAMIC_THRESHOLD)


@contextmanager
def keep_freed_memory() -> Iterator[None]:
    """Context in which glibc keeps freed memory of any size for reuse; it is returned afterwards.

    By default every block of over 32 MB and the end of the heap are returned at once: a training loop, whose steps each
    need what the last one freed, would get its memory zeroed page by page at every step. With varying shapes the kept
    memory has holes. Does nothing if the user has set USER_VARIABLE.
    """
    mallopt = None if USER_VARIABLE in os.environ else _glibc_function("mallopt")
    if mallopt is not None:
        mallopt(M_MMAP_MAX, 0)  # not the threshold, which is limited to 32 MB before glibc 2.35
        mallopt(M_TRIM_THRESHOLD, MAX_THRESHOLD)
    try:
        yield
    finally:
        if mallopt is not None:
            mallopt(M_MMAP_MAX, DEFAULT_MMAP_MAX)
            mallopt(M_MMAP_THRESHOLD, MAX_DYNAMIC_THRESHOLD)
            mallopt(M_TRIM_THRESHOLD, 2 * MAX_DYNAMIC_THRESHOLD)  # as in glibc's dynamic rule
            release_free_memory()


def release_free_memory() -> None:
    """Return the free parts of glibc's heap to the system; does nothing with other allocators.

    Batches of varying shapes leave holes that no later one fits, so the memory of a long stream would seem to grow.
    """
    trim = _glibc_function("malloc_trim")
    if trim is not None:
        trim(0)


def available_memory() -> int:
    """Bytes of memory that a process can still take: the system's, or a container's where that has less."""
    free = [int(psutil.virtual_memory().available)]
    for folder, limit, used in CONTROL_GROUPS:
        try:
            statistics = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            cached = int(statistics.get("inactive_file", 0))  # given back when memory is needed
            free.append(int((folder / limit).read_text()) - int((folder / used).read_text()) + cached)
        except (OSError, ValueError):  # no such group, or "max" for no limit
            continue
    return max(0, min(free))


def validate_memory(needed: int, where: str) -> None:
    """Raise UserError where loading a model takes more bytes than are available."""
    available = available_memory()
    if needed > available:
        gigabytes = f"{needed / 1e9:,.1f} GB of memory, and {available / 1e9:,.1f} GB are free"
        remedy = "End other programs, use a machine with more memory, or choose a smaller model."
        raise UserError(f"loading this model takes about {gigabytes}.", where=where, remedy=remedy)
