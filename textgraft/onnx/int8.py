"""A graph with weights of eight bits, written only where the answers on some texts stay."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from textgraft.data.examples import TargetKind

AGREEMENT = 0.99
"""Of int8's answers, and those of the original."""
LEAST_TEXTS = 50


def agreement(kind: TargetKind, before: np.ndarray, after: np.ndarray) -> float:
    """The share of texts (N, C) that keep their label, or all of many labels; of numbers (N,) their correlation."""
    if kind == "numeric":
        return float(np.corrcoef(before, after)[0, 1])
    if kind == "multi":
        return float(((before >= 0.5) == (after >= 0.5)).all(axis=1).mean())
    return float((before.argmax(1) == after.argmax(1)).mean())


def quantized(graph: bytes) -> bytes:
    """The graph with weights of matrix products, LSTMs and tables as int8; what goes in is quantised as it comes.

    Of the eight bits seven are used: processors without VNNI add two products in sixteen bits, which eight would
    overflow.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with tempfile.TemporaryDirectory() as folder, _quiet():
        whole, small = Path(folder) / "whole.onnx", Path(folder) / "small.onnx"
        whole.write_bytes(graph)
        quantize_dynamic(whole, small, weight_type=QuantType.QInt8, per_channel=True, reduce_range=True)
        return small.read_bytes()


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the advice that onnxruntime gives to the root logger."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(level)
