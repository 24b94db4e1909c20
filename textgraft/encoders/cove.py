"""CoVe: the encoder of a translation model, concatenated with its word vectors.

A bidirectional LSTM of two layers is trained as the encoder of an attentional decoder (heads/translation.py); tasks use
its outputs beside each word's static vector: [GloVe(w); CoVe(w)] (§4).

Source: McCann, Bradbury, Xiong & Socher 2017, arXiv:1708.00107.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from textgraft.core.errors import UserError
from textgraft.data.batch import Batch
from textgraft.data.sequences import Direction
from textgraft.encoders.base import Encoded, Encoder, LayerGroup, State
from textgraft.nn.recurrent import LSTMLayer, reversed_within


@dataclass(frozen=True)
class CoVeConfig:
    """Word vectors of width `embedding_dim` (E), and LSTMs of `hidden_dim` (H) in each direction.

    Dropout is applied to the input of each layer (`input_dropout` to the words) and to the output of the last.
    """

    vocab_size: int
    embedding_dim: int = 300
    hidden_dim: int = 300
    num_layers: int = 2
    input_dropout: float = 0.2
    hidden_dropout: float = 0.2


class BidirectionalLayer(nn.Module):
    """An LSTM in each direction, outputs concatenated; padding is excluded."""

    def __init__(self, input_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.forward_lstm, self.backward_lstm = LSTMLayer(input_dim, hidden_dim), LSTMLayer(input_dim, hidden_dim)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """x (B, T, D) -> (B, T, 2 H), left-to-right first; arbitrary at padding."""
        ahead, _ = self.forward_lstm(x.transpose(0, 1))
        back, _ = self.backward_lstm(reversed_within(x, mask).transpose(0, 1))
        return torch.cat([ahead.transpose(0, 1), reversed_within(back.transpose(0, 1), mask)], dim=2)


class CoVe(Encoder):
    """Token ids to [w; h], a word's vector beside the LSTM outputs: D = E + 2 H.

    `keep="all"` returns the word vectors (E), each lower LSTM layer (2 H), and last the output (E + 2 H). The embedding
    is the lowest layer group, so phases decide whether it stays frozen, as published.

    Raises:
        UserError: There are no layers.
    """

    config: CoVeConfig
    direction: Direction = "both"
    subword_pooling = "last"  # the first may be a capitalisation token, whose vector is not the word's
    method = "cove"

    def __init__(self, config: CoVeConfig) -> None:
        super().__init__()
        if config.num_layers < 1:
            raise UserError(f"num_layers is {config.num_layers}.", remedy="Give 1 or more (McCann et al.: 2).")
        self.config = config
        self.output_dim = config.embedding_dim + 2 * config.hidden_dim
        self.embedding = nn.Embedding(config.vocab_size, config.embedding_dim)
        nn.init.normal_(self.embedding.weight, std=config.embedding_dim**-0.5)
        below = [config.embedding_dim] + [2 * config.hidden_dim] * (config.num_layers - 1)
        self.layers = nn.ModuleList(BidirectionalLayer(width, config.hidden_dim) for width in below)

    def forward(self, batch: Batch, state: State | None = None, *, keep: Literal["top", "all"] = "top") -> Encoded:
        """Encode (B, T) ids as (B, T, E + 2 H). There is no state, since the context is bidirectional."""
        config = self.config
        words: Tensor = self.embedding(batch.ids)
        kept, x = [words], F.dropout(words, config.input_dropout, self.training)
        for layer in self.layers:
            x = layer(x, batch.mask)
            kept.append(x.to(words.dtype))
            x = F.dropout(x, config.hidden_dropout, self.training)
        top = torch.cat([words, x.to(words.dtype)], dim=2)
        return Encoded(top=top, mask=batch.mask, layers=(*kept[:-1], top) if keep == "all" else ())

    @property
    def widths(self) -> tuple[int, ...]:
        lower = (2 * self.config.hidden_dim,) * (self.config.num_layers - 1)
        return (self.config.embedding_dim, *lower, self.output_dim)

    def layer_groups(self) -> list[LayerGroup]:
        groups = [LayerGroup("embedding", tuple(self.embedding.parameters()))]
        return groups + [LayerGroup(f"layer {i + 1}", tuple(layer.parameters())) for i, layer in enumerate(self.layers)]


class StaticVectors(Protocol):
    """Words with vectors, most frequent first, as textgraft.vectors loads them."""

    words: Sequence[str]

    @property
    def dimensions(self) -> int: ...

    def place(self, word: str) -> int | None:
        """Index of a word; None where it has no vector of its own."""

    def vectors(self, words: Sequence[str]) -> np.ndarray:
        """Vectors (N, dimensions)."""


@torch.no_grad()
def init_from_word_vectors(encoder: CoVe, tokens: Sequence[str], vectors: StaticVectors) -> tuple[int, int]:
    """Initialise the embedding table from static vectors.

    Args:
        encoder: The encoder to initialise in place.
        tokens: The vocabulary in the order of ids.
        vectors: Word vectors of the table's width.

    Returns:
        The numbers of tokens with and without a vector.

    Raises:
        UserError: The vectors have another width than the table.
    """
    width = encoder.config.embedding_dim
    if vectors.dimensions != width:
        message = f"these vectors have {vectors.dimensions} dimensions and the table {width}."
        raise UserError(message, where="embedding_dim", remedy="Set embedding_dim to the width of the vectors.")
    indices = [i for i, token in enumerate(tokens) if vectors.place(token) is not None]
    if indices:
        rows = np.asarray(vectors.vectors([tokens[i] for i in indices]), dtype=np.float32)
        encoder.embedding.weight[indices] = torch.from_numpy(rows)
    return len(indices), len(tokens) - len(indices)
