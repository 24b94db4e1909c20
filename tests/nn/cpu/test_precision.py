"""Which number format `auto` means on which processor."""

from __future__ import annotations

import pytest
import torch

from textgraft.core.errors import UserError
from textgraft.nn.cpu.precision import resolve


@pytest.mark.parametrize(
    ("capabilities", "format"),
    [
        ({"cpu_name": "Intel Xeon", "avx512_bf16": True, "amx_bf16": True}, "bf16"),
        ({"cpu_name": "Intel Xeon", "avx512_bf16": True, "amx_bf16": False}, "fp32"),
        ({"cpu_name": "AMD EPYC", "avx512_bf16": True, "amx_bf16": False}, "bf16"),
        ({"cpu_name": "AMD EPYC", "avx512_bf16": False}, "fp32"),
        ({"architecture": "aarch64"}, "fp32"),
    ],
)
def test_auto_is_bfloat16_where_products_are_faster_in_it(monkeypatch, capabilities, format):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert resolve("auto") == format
    assert resolve("bf16") == "bf16"
    assert resolve("fp32") == "fp32"


def test_a_misspelt_format_is_refused():
    with pytest.raises(UserError, match="bf61"):
        resolve("bf61")
