"""Batch normalisation with bounds: torch's own in training and near the mean; far from it, an end."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from textgraft.encoders.base import Encoded
from textgraft.heads.classification import ClassificationConfig, ClassificationHead
from textgraft.nn.batch_norm import MAX_DEVIATIONS, BoundedBatchNorm

D = 5


def both() -> tuple[BoundedBatchNorm, nn.BatchNorm1d]:
    """The library's layer and torch's, with the same scales, shifts and statistics."""
    torch.manual_seed(3)
    ours, theirs = BoundedBatchNorm(D), nn.BatchNorm1d(D)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter)
    theirs.running_mean.normal_()
    theirs.running_var.uniform_(0.5, 2)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def test_in_training_it_is_torchs() -> None:
    ours, theirs = both()
    x = 100 * torch.randn(7, D)
    torch.testing.assert_close(ours(x), theirs(x), rtol=0, atol=0)
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict(), rtol=0, atol=0)


def test_near_the_mean_it_is_torchs() -> None:
    ours, theirs = (layer.eval() for layer in both())
    x = ours.running_mean + torch.randn(50, D).clamp(-3, 3)
    torch.testing.assert_close(ours(x), theirs(x))


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_beyond_the_bound_there_is_one_answer(side: float) -> None:
    ours, _ = both()
    expected = side * MAX_DEVIATIONS * ours.weight + ours.bias
    for far in (20.0, 1e6):
        found = ours.eval()(ours.running_mean + torch.full((2, D), side * far))
        torch.testing.assert_close(found, expected.expand(2, D))


@given(st.integers(2, 64), st.integers(0, 2**32 - 1), st.sampled_from([1.0, 1e6]))
def test_no_batch_of_64_reaches_the_bound_in_training(rows: int, seed: int, one: float) -> None:
    """The farthest that one value of B can be is the root of B - 1 deviations: all others alike (Samuelson 1968)."""
    torch.manual_seed(seed)
    x = torch.randn(rows, D, dtype=torch.float64)
    x[0] *= one
    layer = BoundedBatchNorm(D, affine=True).double()
    assert float(layer(x).detach().abs().max()) <= (rows - 1) ** 0.5 + 1e-6 <= MAX_DEVIATIONS + 1e-6


def encoded(top: Tensor) -> Encoded:
    """Texts (B, T, D) of which each token is there."""
    return Encoded(top=top, layers=(top,), mask=torch.ones(top.shape[:2], dtype=torch.bool))


def test_a_text_unlike_all_others_is_not_answered_with_a_certainty_that_none_of_them_had(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All training texts end alike, as questions do; then one comes that does not."""
    torch.manual_seed(0)
    texts = torch.randn(64, 4, D)
    texts[:, -1] = 0.3
    targets = (texts[:, :3].mean((1, 2)) > 0).long()
    head = ClassificationHead(ClassificationConfig(D, 2)).train()
    optimizer = torch.optim.AdamW(head.parameters(), lr=0.01)
    for _ in range(120):
        nn.functional.cross_entropy(head(encoded(texts)), targets).backward()
        optimizer.step()
        optimizer.zero_grad()
    head.eval()
    known = head(encoded(texts)).abs().max()
    other = texts[:1].clone()
    other[:, -1] = -0.3
    assert head(encoded(other)).abs().max() < 3 * known
    monkeypatch.setattr("textgraft.nn.batch_norm.MAX_DEVIATIONS", math.inf)
    assert head(encoded(other)).abs().max() > 10 * known
