"""Attention beside loops that read like the formula, and masks beside what their docstrings say."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from textgraft.nn.attention import Attention, attend, attend_nearby, banded, causal, surrounding


@given(st.integers(1, 6), st.integers(0, 5), st.integers(1, 7))
def test_who_sees_whom(queries: int, before: int, width: int) -> None:
    keys = queries + before
    dense, band = causal(queries, keys), banded(queries, keys, width)
    for q in range(queries):
        for k in range(keys):
            distance = (before + q) - k
            assert dense[q, k] == (distance >= 0)
            assert band[q, k] == (0 <= distance < width)


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("before", [0, 3])
def test_the_formula_by_loops(heads: int, before: int) -> None:
    torch.manual_seed(0)
    attention, (b, t, d) = Attention(4, heads).double(), (2, 3, 4)
    x = torch.randn(b, before + t, d).double()
    past = attention(x[:, :before], None)[1] if before else None
    seen = causal(t, before + t)
    found, (keys, _) = attention(x[:, before:], seen, past)
    assert keys.shape == (b, heads, before + t, d // heads)

    w, bias = attention.inputs.weight, attention.inputs.bias
    q, k, v = (x @ w[i * d : (i + 1) * d].T + bias[i * d : (i + 1) * d] for i in range(3))
    size = d // heads
    for row in range(b):
        for position in range(before, before + t):
            mixed = []
            for head in range(heads):
                part = slice(head * size, (head + 1) * size)
                scores = [
                    (q[row, position, part] @ k[row, j, part]).item() / math.sqrt(size) for j in range(position + 1)
                ]
                shares = torch.softmax(torch.tensor(scores, dtype=torch.float64), 0)
                mixed.append(sum(shares[j] * v[row, j, part] for j in range(position + 1)))
            expected = attention.output(torch.cat(mixed))
            torch.testing.assert_close(found[row, position - before], expected)


def test_a_position_that_sees_nothing_gets_nothing_and_breaks_nothing() -> None:
    torch.manual_seed(0)
    attention = Attention(4, 2)
    x = torch.randn(1, 3, 4, requires_grad=True)
    seen = causal(3, 3).clone()
    seen[1] = False
    found, _ = attention(x, seen)
    torch.testing.assert_close(found[0, 1], attention.output.bias)
    found.sum().backward()
    assert x.grad is not None
    assert torch.isfinite(x.grad).all()


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(ValueError, match="3 heads"):
        Attention(4, 3)


@pytest.mark.parametrize("masked", [False, True])
def test_bfloat16_gradients_are_those_of_float32(masked: bool) -> None:
    """Where the products are written out: output and gradients are float32's to two per cent, as bfloat16 rounds."""
    torch.manual_seed(0)
    made = [torch.randn(2, 3, 17, 8) for _ in range(3)]
    seen = causal(17, 17) if masked else None
    results = []
    for dtype in (torch.float32, torch.bfloat16):
        query, key, value = (x.to(dtype, copy=True).requires_grad_() for x in made)
        mixed = attend(query, key, value, seen)
        assert mixed.dtype == dtype
        mixed.pow(2).sum().backward()
        results.append([mixed, query.grad, key.grad, value.grad])
    for exact, rounded in zip(*results, strict=True):
        assert (rounded.float() - exact).norm() < 0.02 * exact.norm()


def test_bfloat16_gradients_of_a_position_that_sees_nothing() -> None:
    torch.manual_seed(0)
    attention = Attention(8, 2)
    x = torch.randn(1, 3, 8, requires_grad=True)
    seen = causal(3, 3).clone()
    seen[1] = False
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, _ = attention(x, seen)
    torch.testing.assert_close(found[0, 1], attention.output.bias.to(found.dtype))
    found.float().sum().backward()
    assert x.grad is not None
    assert bool(x.grad.isfinite().all())


@pytest.mark.parametrize(("length", "width"), [(13, 2), (12, 4), (7, 3), (5, 5), (3, 8), (1, 1)])
def test_attention_in_blocks_is_attention_with_a_local_mask(length: int, width: int) -> None:
    """Outputs and gradients, for texts that end anywhere in a block."""
    torch.manual_seed(0)
    real = torch.arange(length) < torch.tensor([length, max(1, length - 3), 1])[:, None]
    results = []
    for blocks in (False, True):
        torch.manual_seed(1)
        query, key, value = (torch.randn(3, 2, length, 4, requires_grad=True) for _ in range(3))
        if blocks:
            attended = attend_nearby(query, key, value, real, width)
        else:
            attended = attend(query, key, value, surrounding(length, width) & real[:, None, None, :])
        attended = attended.transpose(1, 2)[real]
        attended.square().sum().backward()
        results.append((attended, query.grad, key.grad, value.grad))
    for found, expected in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)  # sums in another order, of values up to 10
