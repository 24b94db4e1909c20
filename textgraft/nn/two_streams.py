"""Masks of two-stream attention (Yang et al. 2019, XLNet, §2.3), from the places of tokens in a factorisation order.

A place is 1, 2, ... for a token to predict, and 0 for one that all others see (`Batch.order`).
"""

from __future__ import annotations

import torch
from torch import Tensor


def permutation_mask(order: Tensor) -> Tensor:
    """Mask (B, T, T), 1 where token i may not see token j: j is to be predicted, and not before i in the order.

    A token's own content is hidden from its query, which is to predict it. The content stream sees itself all the same
    (the diagonal is the network's business).

    >>> permutation_mask(torch.tensor([[0, 2, 1]]))[0].int().tolist()
    [[0, 1, 1], [0, 1, 0], [0, 1, 1]]
    """
    hidden = (order[:, None, :] > 0) & (order[:, None, :] >= order[:, :, None])
    return hidden.float()


def target_mapping(order: Tensor) -> Tensor:
    """Selection (B, P, T) of each row's tokens to predict, by position; rows with fewer than P end in zeros."""
    predicted = order > 0
    number = predicted.cumsum(dim=1) - 1
    slots = torch.arange(int(predicted.sum(dim=1).amax()), device=order.device)
    return ((number[:, None, :] == slots[:, None]) & predicted[:, None, :]).float()


def at_positions(vectors: Tensor, order: Tensor) -> Tensor:
    """Vectors (B, P, D) of the selected tokens at their positions (B, T, D), 0 elsewhere."""
    predicted = order > 0
    present = torch.arange(vectors.shape[1], device=order.device) < predicted.sum(dim=1)[:, None]
    return vectors.new_zeros(*order.shape, vectors.shape[2]).masked_scatter(predicted[..., None], vectors[present])
