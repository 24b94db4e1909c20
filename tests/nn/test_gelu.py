"""The activation of GPT beside the formula that it has for GELU, and beside GELU."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from textgraft.nn.gelu import gelu

NUMBERS = st.lists(st.floats(-1e3, 1e3, width=16) | st.floats(-6, 6, width=16), min_size=1, max_size=40)


@given(numbers=NUMBERS)
def test_in_full_width_it_is_the_formula_with_the_tangent(numbers: list[float]) -> None:
    x = torch.tensor(numbers, dtype=torch.float64)
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    torch.testing.assert_close(gelu(x), 0.5 * x * (1 + inner.tanh()))


@given(numbers=NUMBERS)
def test_in_bfloat16_it_is_gelu_and_no_further_from_the_formula_than_rounding(numbers: list[float]) -> None:
    x = torch.tensor(numbers, dtype=torch.bfloat16)
    exact = x.double() * 0.5 * (1 + torch.erf(x.double() / math.sqrt(2)))
    found = gelu(x)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.double(), exact, rtol=2**-8, atol=1e-5)
    assert ((found.double() - gelu(x.double())).abs() <= 0.0005 + 2**-8 * exact.abs()).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_it_has_gradients(dtype: torch.dtype) -> None:
    x = torch.linspace(-3, 3, 25, dtype=dtype).requires_grad_()
    gelu(x).sum().backward()
    wide = x.detach().double().requires_grad_()
    gelu(wide).sum().backward()
    assert x.grad is not None
    assert wide.grad is not None
    torch.testing.assert_close(x.grad.double(), wide.grad, rtol=2**-7, atol=2e-3)
