"""Pooling against plain loops over the real positions."""

import pytest
import torch

from textgraft.core.errors import UserError
from textgraft.data.sequences import Direction
from textgraft.nn.pooling import POOLINGS, pool, pooled_dim, validate_pooling

LENGTHS = [5, 1, 3, 0]


def example() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    hidden = torch.randn(len(LENGTHS), 5, 2, dtype=torch.float64) - 3  # negative, so that a 0 would show as a maximum
    mask = torch.arange(5) < torch.tensor(LENGTHS)[:, None]
    return hidden.masked_fill(~mask[..., None], torch.nan), mask


def by_loop(hidden: torch.Tensor, name: str, direction: Direction) -> torch.Tensor:
    rows = []
    for row, length in zip(hidden, LENGTHS, strict=True):
        real = [row[t] for t in range(length)] or [torch.zeros(2, dtype=hidden.dtype)]
        parts = {
            "first": real[0],
            "last": real[0] if direction == "right" else real[-1],
            "max": torch.stack([torch.stack([v[d] for v in real]).max() for d in range(2)]),
            "mean": sum(real, torch.zeros(2, dtype=hidden.dtype)) / len(real),
            "mean_sqrt": sum(real, torch.zeros(2, dtype=hidden.dtype)) / len(real) ** 0.5,
            "weighted_mean": sum((i * v for i, v in enumerate(real, 1)), torch.zeros(2, dtype=hidden.dtype))
            / sum(range(1, len(real) + 1)),
        }
        rows.append(torch.cat([parts[k] for k in (("last", "max", "mean") if name == "concat" else (name,))]))
    return torch.stack(rows)


@pytest.mark.parametrize("direction", ["left", "right", "both"])
@pytest.mark.parametrize("name", sorted(POOLINGS))
def test_pooling_is_the_loop_and_never_sees_padding(name: str, direction: Direction) -> None:
    hidden, mask = example()
    pooled = POOLINGS[name](hidden, mask, direction)
    assert pooled.shape == (4, pooled_dim(name, 2))
    torch.testing.assert_close(pooled, by_loop(hidden, name, direction))


def test_concat_pooling_is_last_then_max_then_mean() -> None:
    hidden = torch.tensor([[[1.0], [4.0], [1.0]]])
    pooled = POOLINGS["concat"](hidden, torch.ones(1, 3, dtype=torch.bool), "left")
    assert pooled.tolist() == [[1.0, 4.0, 2.0]]


@pytest.mark.parametrize("name", sorted(POOLINGS))
def test_gradients_are_finite_and_zero_at_padding(name: str) -> None:
    hidden, mask = example()
    hidden = hidden.nan_to_num(7.0).requires_grad_()
    (POOLINGS[name](hidden, mask, "left") ** 2).sum().backward()
    assert hidden.grad is not None
    assert hidden.grad.isfinite().all()
    assert (hidden.grad[~mask] == 0).all()


def test_names_joined_by_a_plus_are_side_by_side() -> None:
    hidden, mask = example()
    both = pool("max+first", hidden, mask)
    torch.testing.assert_close(
        both, torch.cat([POOLINGS["max"](hidden, mask, "left"), by_loop(hidden, "first", "left")], 1)
    )
    assert pooled_dim("max+first", 2) == 4
    validate_pooling("max+first")
    validate_pooling("pooled", "pooled")
    with pytest.raises(UserError, match=r"unknown pooling 'men'.*Did you mean 'mean'"):
        validate_pooling("first+men")
