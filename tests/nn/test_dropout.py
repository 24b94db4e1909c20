"""Dropout that draws four numbers at a time: how many stay, what they become, and what is handed back."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from textgraft.nn.dropout import dropout


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_share_is_dropped_and_the_mean_stays(p: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.ones(401, 503, dtype=dtype)
    found = dropout(x, p, training=True)
    assert found.dtype == dtype
    share = float((found == 0).double().mean())
    assert share == pytest.approx(p, abs=5 * (p * (1 - p) / x.numel()) ** 0.5 + 1e-4)
    assert float(found.double().mean()) == pytest.approx(1, abs=0.02)
    assert len(found.unique()) == 2


def test_neighbours_in_one_draw_have_nothing_to_do_with_one_another() -> None:
    torch.manual_seed(0)
    stays = (dropout(torch.ones(200_000, 4), 0.3, training=True) > 0).double()
    together = torch.corrcoef(stays.T)
    assert float((together - torch.eye(4)).abs().max()) < 0.012  # five standard errors


@settings(max_examples=30)
@given(shape=st.lists(st.integers(1, 7), min_size=0, max_size=4), seed=st.integers(0, 9))
def test_any_shape_the_same_seed_the_same_mask(shape: list[int], seed: int) -> None:
    x = torch.randn(shape)
    masks = []
    for _ in range(2):
        torch.manual_seed(seed)
        masks.append(dropout(x, 0.4, training=True))
    assert masks[0].shape == x.shape
    assert torch.equal(*masks)


def test_the_gradient_goes_where_the_numbers_went() -> None:
    torch.manual_seed(0)
    x = torch.randn(30, 30, requires_grad=True)
    found = dropout(x, 0.25, training=True)
    found.sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad * x, found)


def test_nothing_is_dropped_where_nothing_is_trained_and_everything_at_one() -> None:
    x = torch.randn(5, 5)
    assert dropout(x, 0.5, training=False) is x
    assert dropout(x, 0.0, training=True) is x
    assert not dropout(x, 1.0, training=True).any()
