"""MPNet: masked and permuted pretraining for language understanding.

The network is BERT's without segments, and with positions twice: a learned table that is added to the tokens, as there,
and a learned bias of each head on its attention scores, by the distance between two positions. Distances are grouped
into buckets, as in T5 (Raffel et al. 2020, §2.1): short ones each by itself, longer ones by their logarithm. All blocks
share the biases. As in encoders.roberta, positions start at 0.

Source: Song et al. 2020 (arXiv:2004.09297), and its published code.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from textgraft.data.batch import Batch
from textgraft.encoders.base import LayerGroup
from textgraft.encoders.bert import BERT, BERTConfig
from textgraft.encoders.roberta import dense_tanh
from textgraft.nn.attention import additive_mask


@dataclass(frozen=True)
class MPNetConfig(BERTConfig):
    """Shape and dropouts as in BERTConfig; the defaults are MPNet-base.

    Args:
        num_buckets: Number of groups of distances, half of them for each direction.
        max_distance: Distance from which on all are in one bucket.
    """

    num_segments: int = 0
    pooler: bool = False
    layer_norm_eps: float = 1e-5
    num_buckets: int = 32
    max_distance: int = 128


class MPNet(BERT):
    """Token ids to one vector a position, as BERT, with biases by distance (num_buckets, H)."""

    config: MPNetConfig
    method = "mpnet"

    def __init__(self, config: MPNetConfig) -> None:
        super().__init__(config)
        self.distances = nn.Embedding(config.num_buckets, config.num_heads)
        nn.init.normal_(self.distances.weight, std=0.02)

    def _attention_mask(self, batch: Batch) -> Tensor:
        """What is added to the attention scores of all blocks: (1, H, T, T), with padding (B, H, T, T)."""
        bias = self.bias_by_distance(batch.ids.shape[1])[None]
        mask = super()._attention_mask(batch)
        return bias if mask is None else bias + additive_mask(mask, bias.dtype)

    def bias_by_distance(self, length: int) -> Tensor:
        """Bias (H, T, T) of each head for a query's position (rows) and a key's (columns)."""
        positions = torch.arange(length, device=self.distances.weight.device)
        buckets = distance_buckets(positions - positions[:, None], self.config.num_buckets, self.config.max_distance)
        return self.distances(buckets).permute(2, 0, 1)

    def classifier(self) -> dict[str, Any]:
        """As RoBERTa's."""
        return dense_tanh(self.output_dim, self.config.hidden_dropout)

    def layer_groups(self) -> list[LayerGroup]:
        """BERT's; the biases by distance are with the embeddings."""
        first, *rest = super().layer_groups()
        return [LayerGroup(first.name, (*first.parameters, *self.distances.parameters())), *rest]


def distance_buckets(distances: Tensor, num_buckets: int, max_distance: int) -> Tensor:
    """Bucket of each distance from a query to a key; keys after the query are in the upper half of the buckets.

    A quarter of the buckets are for the distances 0, 1, 2, ... and another for those up to `max_distance`, each a fixed
    factor wider than the one before.

    >>> distance_buckets(torch.tensor([0, -1, 1, -7, -8, -12, -500, 500]), 32, 128).tolist()
    [0, 1, 17, 7, 8, 9, 15, 31]
    """
    half = num_buckets // 2
    exact = half // 2
    size = distances.abs()
    factor = math.log(max_distance / exact)
    logarithmic = exact + (torch.log(size.clamp(min=1).float() / exact) / factor * (half - exact)).long()
    bucket = torch.where(size < exact, size, logarithmic.clamp(max=half - 1))
    return bucket + half * (distances > 0)
