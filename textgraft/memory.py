"""Memory that is free and that the process still holds."""

from __future__ import annotations

import ctypes
import sys


def give_back_memory() -> None:
    """Have glibc hand the holes in its heap back to the system; with another allocator nothing happens.

    Batches of ever other shapes leave holes that no later one fits, and a long stream would be held to grow.
    """
    if sys.platform != "linux":
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # musl has none
    if trim is not None:
        trim(0)
