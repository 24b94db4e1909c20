"""The short texts of `latency` with the products in eight bits, as `--precision int8` reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from race import Turn

from rows import latency

ROW = replace(
    latency.ROW,
    title="the same, products in int8",
    means="a quarter of the bytes of weights, where the processor has VNNI; checked in the turn that does not count",
)
prepare, peer = latency.prepare, latency.peer
ours: Callable[[dict[str, Any]], Callable[[int], Turn]] = partial(latency.ours, precision="int8")
