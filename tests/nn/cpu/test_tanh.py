"""The tangent of cells that are read, beside torch's."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from textgraft.nn.cpu.tanh import tanh, tanh_

WITHIN = {torch.float64: 1e-15, torch.float32: 3e-7, torch.bfloat16: 2**-8, torch.float16: 2**-10}
"""How far off at most: of narrow numbers, one step near 1."""
NUMBERS = st.lists(st.floats(-1e4, 1e4, width=16) | st.floats(-1, 1, width=16), min_size=1, max_size=40)


@pytest.mark.parametrize("dtype", WITHIN, ids=str)
@given(numbers=NUMBERS)
def test_it_is_torchs(dtype: torch.dtype, numbers: list[float]) -> None:
    x = torch.tensor(numbers, dtype=dtype)
    found = tanh(x)
    assert found.dtype == dtype
    assert (found.double() - x.double().tanh()).abs().max() <= WITHIN[dtype]
    assert tanh_(x) is x
    assert torch.equal(x, found)


@pytest.mark.parametrize("dtype", WITHIN, ids=str)
def test_what_is_no_number_stays_none(dtype: torch.dtype) -> None:
    x = torch.tensor([math.inf, -math.inf, math.nan, 0.0], dtype=dtype)
    found = tanh(x)
    assert found[:2].tolist() == [1, -1]
    assert found[2].isnan()
    assert found[3] == 0


def test_in_place_within_a_larger_one() -> None:
    gates = torch.linspace(-3, 3, 60).view(5, 12)
    expected = gates.clone()
    expected[:, 4:8] = expected[:, 4:8].tanh()
    tanh_(gates[:, 4:8])
    assert torch.allclose(gates, expected, atol=3e-7)
