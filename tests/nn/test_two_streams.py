"""The masks of two-stream attention, against loops over the factorisation order."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from textgraft.nn.two_streams import at_positions, permutation_mask, target_mapping


def orders(rows: int = 20, length: int = 11) -> torch.Tensor:
    """Places of a random number of tokens in each row, at least one."""
    generator = np.random.default_rng(0)
    order = np.zeros((rows, length), dtype=np.int64)
    for row in order:
        chosen = generator.permutation(length)[: generator.integers(1, length)]
        row[chosen] = np.arange(1, len(chosen) + 1)
    return torch.from_numpy(order)


def test_the_permutation_mask_is_that_of_a_loop_over_the_order() -> None:
    """§2.2: the token at z_t sees z_1, ..., z_(t-1); context, which is before all that is predicted, sees itself."""
    order = orders()
    expected = torch.ones(*order.shape, order.shape[1])
    for row, places in enumerate(order.tolist()):
        context = [i for i, place in enumerate(places) if place == 0]
        seen = list(context)
        for i in context:
            expected[row, i, context] = 0
        for _, position in sorted((place, i) for i, place in enumerate(places) if place):
            expected[row, position, seen] = 0
            seen.append(position)
    assert torch.equal(permutation_mask(order), expected)


def test_the_target_mapping_selects_each_predicted_token_once_by_position() -> None:
    order = orders()
    mapping = target_mapping(order)
    assert mapping.shape == (20, int((order > 0).sum(1).max()), 11)
    for row, places in enumerate(order.tolist()):
        predicted = [i for i, place in enumerate(places) if place]
        assert [one.nonzero().squeeze(1).tolist() for one in mapping[row]] == [
            *([i] for i in predicted),
            *([] for _ in range(mapping.shape[1] - len(predicted))),
        ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_vectors_return_to_the_positions_they_are_of(dtype: torch.dtype) -> None:
    order = orders()
    whole = torch.randn(*order.shape, 3).to(dtype)
    selected = (target_mapping(order).double() @ whole.double()).to(dtype)
    assert torch.equal(at_positions(selected, order), whole * (order > 0)[..., None])
