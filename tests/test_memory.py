"""Holes in the heap go back to the system."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

HOLES = """
from pathlib import Path
from textgraft.memory import give_back_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6

blocks = [bytearray(64_000) for _ in range(2_000)]
full = resident()
del blocks[:-1]  # the last one keeps what lies below it
before = resident()
give_back_memory()
print(full - before, full - resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be asked to")
def test_holes_in_the_heap_go_back_to_the_system() -> None:
    done = subprocess.run([sys.executable, "-c", HOLES], capture_output=True, text=True, check=True)
    freed, given_back = map(float, done.stdout.split())
    assert freed < 64  # MB, of 128: or there was nothing to give back
    assert given_back > 100
