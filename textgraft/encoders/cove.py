"""CoVe (McCann, Bradbury, Xiong & Socher 2017, arXiv:1708.00107): the encoder of a translator, beside its word vectors.

A bidirectional LSTM of two layers learns to read while it feeds an attentional decoder (heads/translation.py); what it
says of a sentence, set beside each word's static vector, is what tasks get: [GloVe(w); CoVe(w)] (§4).
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

    Dropout is on what goes into each layer (`input_dropout` at the words) and on what comes out of the last.
    """

    vocab_size: int
    embedding_dim: int = 300
    hidden_dim: int = 300
    num_layers: int = 2
    input_dropout: float = 0.2
    hidden_dropout: float = 0.2


class BidirectionalLayer(nn.Module):
    """One LSTM from each side, the results side by side; neither sees padding."""

    def __init__(self, input_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.forward_lstm, self.backward_lstm = LSTMLayer(input_dim, hidden_dim), LSTMLayer(input_dim, hidden_dim)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """x (B, T, D) -> (B, T, 2 H), what was read from the left first; whatever stands at padding."""
        ahead, _ = self.forward_lstm(x.transpose(0, 1))
        back, _ = self.backward_lstm(reversed_within(x, mask).transpose(0, 1))
        return torch.cat([ahead.transpose(0, 1), reversed_within(back.transpose(0, 1), mask)], dim=2)


class CoVe(Encoder):
    """Token ids to [w; h], a word's vector beside what the LSTMs say of it: D = E + 2 H.

    `keep="all"` shows the word vectors (E), each lower LSTM layer (2 H), and last what tasks read (E + 2 H). Whether
    the table stays as it was read, as published, is a matter of phases: it is the lowest layer group.

    Raises UserError for an encoder without a layer.
    """

    config: CoVeConfig
    direction: Direction = "both"
    subword_pooling = "last"  # the first may be a mark that a capital follows, whose vector is not the word's
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
        """(B, T) ids -> (B, T, E + 2 H). There is no state: what follows is part of what is read."""
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
    """Words with vectors, most frequent first, as textgraft.vectors reads them."""

    words: Sequence[str]

    @property
    def dimensions(self) -> int: ...

    def place(self, word: str) -> int | None:
        """Where a word stands; None where it has no vector of its own."""

    def vectors(self, words: Sequence[str]) -> np.ndarray:
        """(N, dimensions)"""


@torch.no_grad()
def init_from_word_vectors(encoder: CoVe, tokens: Sequence[str], vectors: StaticVectors) -> tuple[int, int]:
    """Start the table from static vectors; how many of the tokens have one, and how many stay as they were drawn.

    `tokens` are the vocabulary in the order of ids. Raises UserError for vectors of another width than the table's.
    """
    width = encoder.config.embedding_dim
    if vectors.dimensions != width:
        message = f"these vectors have {vectors.dimensions} dimensions and the table {width}."
        raise UserError(message, where="embedding_dim", remedy="Make the encoder as wide as the vectors.")
    found = [i for i, token in enumerate(tokens) if vectors.place(token) is not None]
    if found:
        rows = np.asarray(vectors.vectors([tokens[i] for i in found]), dtype=np.float32)
        encoder.embedding.weight[found] = torch.from_numpy(rows)
    return len(found), len(tokens) - len(found)
