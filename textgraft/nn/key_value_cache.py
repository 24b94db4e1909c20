"""State of a left-to-right Transformer between windows: keys and values of the text so far.

It is ((mask (B, S),), (keys, values), … one pair a layer), the pairs (B, H, S or more, d), or () at the beginning.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from textgraft.core.errors import UserError

Cache = tuple[tuple[Tensor, ...], ...]
CACHE_ROOM = 128
"""Free positions at the end of the cache of a text in generation, before it is copied into a larger one."""


def empty_cache(rows: int, layers: int, device: torch.device) -> Cache:
    """The state before the first token: no positions."""
    return ((torch.ones(rows, 0, dtype=torch.bool, device=device),), *((),) * layers)


def cache_with_room(state: Cache) -> Cache:
    """Keys and values with free positions at the end, if there are none: the caller may write there, and nobody else.

    Most tokens then need no copy of the whole cache.
    """
    (before,), *caches = state
    filled = before.shape[1]
    if not caches or caches[0][0].shape[2] > filled:
        return state
    longer = (0, 0, 0, CACHE_ROOM)
    return ((before,), *(tuple(F.pad(part[:, :, :filled], longer) for part in cache) for cache in caches))


def position_ids(real: Tensor, maximum: int) -> Tensor:
    """Position ids (B, S) over the real tokens of a mask (B, S); arbitrary at padding, which is masked.

    Raises:
        UserError: A text has more than `maximum` tokens.
    """
    if real.shape[1] > maximum and (longest := int(real.sum(dim=1).max())) > maximum:
        raise UserError(
            f"a text of {longest:,} tokens is longer than the {maximum:,} positions of this model.",
            remedy=f"Cut it to {maximum:,} tokens (max_tokens, where there is such an option).",
        )
    return (real.cumsum(dim=1) - 1).clamp(min=0, max=maximum - 1)
