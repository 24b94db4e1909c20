"""The variational dropouts of AWD-LSTM: one mask per sequence, not one per position."""

from __future__ import annotations

import torch
from torch import Tensor


def variational_dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Drop the same features at every step of a sequence; x is (T, B, D), the mask (1, B, D).

    Gal & Ghahramani 2016; "locked dropout" in Merity et al. 2018.
    """
    if not training or p == 0:
        return x
    mask = torch.empty(1, *x.shape[1:], dtype=x.dtype, device=x.device).bernoulli_(1 - p).div_(1 - p)
    return x * mask


def embedding_dropout(vectors: Tensor, ids: Tensor, vocab_size: int, p: float, training: bool) -> Tensor:
    """Drop whole words: every occurrence of a dropped word in the batch is zero (Merity et al. 2018, §4.3).

    `vectors` is (..., D) for `ids` (...). The mask is drawn over the vocabulary and looked up, which costs V random
    numbers instead of a masked copy of the whole table.
    """
    if not training or p == 0:
        return vectors
    mask = torch.empty(vocab_size, dtype=vectors.dtype, device=vectors.device).bernoulli_(1 - p).div_(1 - p)
    return vectors * mask[ids].unsqueeze(-1)
