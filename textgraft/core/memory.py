"""Memory that is free and that the process still holds."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4
LARGE, AS_LARGE_AS_EVER = 1 << 20, 32 << 20
"""Bytes from which memory is apart from the heap; the latter is where glibc's own rule ends, and would have come to."""
NEVER = (1 << 31) - 1
"""The largest number of bytes that glibc takes for a threshold."""
PARTS_APART = 1 << 16
"""So many parts glibc holds apart by its own rule."""
BY_HAND = "MALLOC_MMAP_THRESHOLD_"


def _of_glibc(name: str) -> Any:
    """The function of glibc's; None with another library, and on other systems."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None


@contextmanager
def mmap_large_blocks() -> Iterator[None]:
    """Inside, glibc takes each part of over a megabyte from the system, and returns it as soon as it is free.

    Else it keeps parts of up to 32 MB in its heap, where those of ever other sizes leave holes; but taking one from the
    system costs time, which is much where a model makes many of them. Who has set the variable BY_HAND has chosen.
    """
    mallopt = None if BY_HAND in os.environ else _of_glibc("mallopt")
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGE)
    try:
        yield
    finally:
        if mallopt is not None:
            mallopt(M_MMAP_THRESHOLD, AS_LARGE_AS_EVER)


@contextmanager
def keep_freed_memory() -> Iterator[None]:
    """Inside, glibc keeps what is freed, however large, for the next one who asks; afterwards it gives it back.

    Else every part of over 32 MB goes back to the system at once, and so does the heap's end: a training, of whose
    steps each asks for what the last one freed, would have its memory cleared for it page by page at every step. Where
    shapes vary, what is kept has holes. Who has set the variable BY_HAND has chosen.
    """
    mallopt = None if BY_HAND in os.environ else _of_glibc("mallopt")
    if mallopt is not None:
        mallopt(M_MMAP_MAX, 0)  # and not by its threshold, which before glibc 2.35 may not be over 32 MB
        mallopt(M_TRIM_THRESHOLD, NEVER)
    try:
        yield
    finally:
        if mallopt is not None:
            mallopt(M_MMAP_MAX, PARTS_APART)
            mallopt(M_MMAP_THRESHOLD, AS_LARGE_AS_EVER)
            mallopt(M_TRIM_THRESHOLD, 2 * AS_LARGE_AS_EVER)  # as glibc's own rule has it
            release_free_memory()


def release_free_memory() -> None:
    """Have glibc hand the holes in its heap back to the system; with another allocator nothing happens.

    Batches of ever other shapes leave holes that no later one fits, and a long stream would be held to grow.
    """
    trim = _of_glibc("malloc_trim")
    if trim is not None:
        trim(0)
