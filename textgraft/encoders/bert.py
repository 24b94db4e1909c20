"""BERT: a bidirectional transformer encoder.

The blocks are those of Vaswani et al. 2017, §3.1: attention, then a feed-forward layer, each added to its input and
normalised after the sum ("post-norm"). Token, position and segment embeddings are learned; their sum is the input of
the first block. DistilBERT (Sanh et al. 2019) is the same with half the layers, no segments and no pooler; the small
BERTs (Turc et al. 2019) differ in size only, see BERT_SHAPES.

Source: Devlin, Chang, Lee & Toutanova 2019.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from textgraft.core.errors import UserError
from textgraft.data.batch import Batch
from textgraft.encoders.base import ONE_LAYER, Encoded, Encoder, LayerGroup, State
from textgraft.nn.attention import Attention
from textgraft.nn.cpu.precision import Linear
from textgraft.nn.dropout import dropout
from textgraft.nn.embedding import Embedding
from textgraft.nn.unpadding import Unpadding, padded, unpadded


@dataclass(frozen=True)
class BERTConfig:
    """Shape and dropouts of a BERT; the defaults are BERT-base.

    Args:
        embedding_dim: Width D of every layer.
        num_segments: Number of segments; 0 leaves the segment table out.
        pooler: Add a dense layer over the first position.
        hidden_dropout: Dropout after the embeddings and each sublayer.
    """

    vocab_size: int
    embedding_dim: int = 768
    num_layers: int = 12
    num_heads: int = 12
    feed_forward_dim: int = 3072
    max_length: int = 512
    num_segments: int = 2
    pooler: bool = True
    hidden_dropout: float = 0.1
    attention_dropout: float = 0.1
    layer_norm_eps: float = 1e-12


BERT_SHAPES = {
    f"bert-{layers}-{width}": {
        "num_layers": layers,
        "embedding_dim": width,
        "num_heads": width // 64,
        "feed_forward_dim": 4 * width,
    }
    for layers in (2, 4, 6, 8, 10, 12)
    for width in (128, 256, 512, 768)
}
"""The 24 sizes of Turc et al. 2019 (arXiv:1908.08962), as fields of a config; bert-12-768 is BERT-base."""


class Block(nn.Module):
    """Attention and a feed-forward layer with an exact GELU, each followed by dropout, residual and layer norm."""

    def __init__(self, config: BERTConfig) -> None:
        super().__init__()
        width, eps = config.embedding_dim, config.layer_norm_eps
        self.dropout = config.hidden_dropout
        self.attention = Attention(width, config.num_heads, dropout=config.attention_dropout)
        self.attention_norm = nn.LayerNorm(width, eps=eps)
        self.feed_forward = Linear(width, config.feed_forward_dim)
        self.output = Linear(config.feed_forward_dim, width)
        self.output_norm = nn.LayerNorm(width, eps=eps)

    def forward(self, x: Tensor, mask: Tensor | None, unpadding: Unpadding | None) -> Tensor:
        """x (B, T, D) -> (B, T, D), or (N, D) -> (N, D); `mask` and `unpadding` as in `Attention`."""
        attended, _ = self.attention(x, mask, unpadding=unpadding)
        x = self.attention_norm(x + dropout(attended, self.dropout, self.training))
        widened = F.gelu(self.feed_forward(x))
        normed: Tensor = self.output_norm(x + dropout(self.output(widened), self.dropout, self.training))
        return normed


class BERT(Encoder):
    """Token ids, and segments for pairs, to one vector a position; also one a text if there is a pooler.

    `Encoded.pooled` is tanh of a dense layer over the first position, [CLS]. Weights start normal with standard
    deviation 0.02, biases at 0. Raises UserError for a number of heads that does not divide the width.
    """

    config: BERTConfig
    direction = "both"
    recurrent = False
    method = "bert"

    def __init__(self, config: BERTConfig) -> None:
        super().__init__()
        width = config.embedding_dim
        if config.num_heads < 1 or width % config.num_heads:
            message = f"{config.num_heads} heads cannot share a width of {width} evenly."
            raise UserError(message, remedy="Choose a num_heads that divides embedding_dim.")
        self.config, self.output_dim, self.max_length = config, width, config.max_length
        self.embedding = Embedding(config.vocab_size, width)
        self.positions = nn.Embedding(config.max_length, width)
        self.segments = nn.Embedding(config.num_segments, width) if config.num_segments else None
        self.embedding_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.pooler = Linear(width, width) if config.pooler else None
        self.apply(_init_weights)

    def forward(self, batch: Batch, state: State | None = None, *, keep: Literal["top", "all"] = "top") -> Encoded:
        """Encode (B, T) ids as (B, T, D); without `batch.segments` all tokens are of the first. `state` is not used.

        Raises:
            UserError: A text is longer than the position table.
        """
        mask, unpadding = self._attention_mask(batch), Unpadding.where_it_pays(batch.mask)
        x = unpadded(self._embedded(batch), unpadding)
        kept = [x]
        for layer in self.layers:
            x = layer(x, mask, unpadding)
            kept.append(x)
        layers = tuple(padded(one, unpadding) for one in (kept if keep == "all" else [x]))
        top = layers[-1]
        pooled = None if self.pooler is None else torch.tanh(self.pooler(top[:, 0])).to(top.dtype)
        return Encoded(top=top, mask=batch.mask, layers=layers if keep == "all" else (), pooled=pooled)

    def _attention_mask(self, batch: Batch) -> Tensor | None:
        """The mask of `Attention` for all blocks (B, 1, 1, T); None where no text is padded."""
        # On a GPU the test would force a synchronisation.
        unpadded = batch.mask.device.type == "cpu" and bool(batch.mask.all())
        return None if unpadded else batch.mask[:, None, None, :]

    def _embedded(self, batch: Batch) -> Tensor:
        """Input of the first block (B, T, D)."""
        length, config = batch.ids.shape[1], self.config
        if length > config.max_length:
            message = f"a text of {length} tokens is longer than the {config.max_length} positions that this model has."
            raise UserError(message, remedy=f"Cut texts to at most {config.max_length} tokens.")
        x = self.embedding(batch.ids) + self.positions.weight[:length]
        if self.segments is not None:
            # A table of one segment does not distinguish the texts of a pair.
            segments = batch.segments if batch.segments is None else batch.segments.clamp(max=config.num_segments - 1)
            x = x + (self.segments.weight[0] if segments is None else self.segments(segments))
        return dropout(self.embedding_norm(x), config.hidden_dropout, self.training)

    def classifier(self) -> dict[str, Any]:
        """One linear layer on the pooler's output, or on [CLS] itself (Devlin et al. 2019, §4.1)."""
        pooling = "first" if self.pooler is None else "pooled"
        return {**ONE_LAYER, "pooling": pooling, "input_dropout": self.config.hidden_dropout}

    def layer_groups(self) -> list[LayerGroup]:
        below = (self.embedding, self.positions, self.segments, self.embedding_norm)
        embedding = tuple(p for module in below if module is not None for p in module.parameters())
        groups = [LayerGroup("embedding", embedding)]
        groups += [LayerGroup(f"layer {i + 1}", tuple(layer.parameters())) for i, layer in enumerate(self.layers)]
        return groups if self.pooler is None else [*groups, LayerGroup("pooler", tuple(self.pooler.parameters()))]


def _init_weights(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
