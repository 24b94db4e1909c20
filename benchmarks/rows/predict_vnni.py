"""The reviews of `predict` with the products in eight bits, as `--precision int8` reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from race import Turn

from rows import predict

ROW = replace(
    predict.ROW,
    title="the same, products in int8",
    means="products of whole numbers where the processor has VNNI; checked in the turn that does not count",
)
prepare, peer = predict.prepare, predict.peer
ours: Callable[[dict[str, Any]], Callable[[int], Turn]] = partial(predict.ours, precision="int8")
