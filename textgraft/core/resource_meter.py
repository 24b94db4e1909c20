"""Measurement of wall-clock time and peak memory."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

import psutil


class Meter:
    """Context that measures `seconds` and `peak_mb`, the process's peak resident memory, sampled 20 times a second."""

    seconds = 0.0
    peak_mb = 0.0

    def __enter__(self) -> Self:
        self._stop = threading.Event()
        self._process = psutil.Process()
        self._started = time.perf_counter()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while True:
            self.peak_mb = max(self.peak_mb, self._process.memory_info().rss / 2**20)
            if self._stop.wait(0.05):
                return

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self.seconds = time.perf_counter() - self._started
