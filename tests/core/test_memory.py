"""Holes in the heap go back to the system, and large parts need leave none."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

HOLES = """
from pathlib import Path
from textgraft.core.memory import release_free_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6

blocks = [bytearray(64_000) for _ in range(2_000)]
full = resident()
del blocks[:-1]  # the last one keeps what lies below it
before = resident()
release_free_memory()
print(full - before, full - resident())
"""


APART = """
from pathlib import Path
from textgraft.core.memory import mmap_large_blocks

def heap():
    return sum(int(b, 16) - int(a, 16) for a, b in (
        line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines() if "[heap]" in line
    )) / 1e6

large = bytearray(20_000_000)  # once such a part has been freed, glibc keeps the next ones in its heap
del large
before = heap()
with mmap_large_blocks():
    inside = bytearray(20_000_000)
    grown_inside = heap() - before
outside = bytearray(20_000_000)
print(grown_inside, heap() - before)
"""

KEPT = """
from pathlib import Path
from textgraft.core.memory import keep_freed_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6

before = resident()
with keep_freed_memory():
    large = bytearray(b"1" * 100_000_000)
    del large
    kept = resident() - before
print(kept, resident() - before)
"""

only_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be asked to")


def measured(code: str, *, chosen: bool) -> tuple[float, float]:
    """The two numbers of megabytes that a program prints, with or without somebody's own threshold."""
    environment = {**os.environ, **({"MALLOC_MMAP_THRESHOLD_": str(1 << 25)} if chosen else {})}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    inside, outside = map(float, done.stdout.split())
    return inside, outside


@only_glibc
@pytest.mark.parametrize("chosen", [False, True])
def test_large_parts_are_apart_inside_and_not_where_somebody_chose(chosen: bool) -> None:
    inside, outside = measured(APART, chosen=chosen)
    assert (inside > 15) == chosen
    assert outside > 15


@only_glibc
def test_holes_in_the_heap_go_back_to_the_system() -> None:
    done = subprocess.run([sys.executable, "-c", HOLES], capture_output=True, text=True, check=True)
    freed, given_back = map(float, done.stdout.split())
    assert freed < 64  # MB, of 128: or there was nothing to give back
    assert given_back > 100


@only_glibc
@pytest.mark.parametrize("chosen", [False, True])
def test_what_is_freed_is_kept_inside_and_given_back_afterwards(chosen: bool) -> None:
    inside, outside = measured(KEPT, chosen=chosen)
    assert (inside > 90) != chosen
    assert outside < 20
