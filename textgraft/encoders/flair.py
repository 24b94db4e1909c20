"""Flair: a character-level language model.

A small embedding of characters, dropout, an LSTM of 2048 as published (one layer; published files may have more), and
before the output layer, in some files, a projection. One direction is one model, and its output layer is tied to the
embedding only where both have the same width. The vector of a word is the state at a position that data/words.py finds:
for a left-to-right model at the space after the word, for a right-to-left model at the space before it.

Source: Akbik, Blythe & Vollgraf 2018, "Contextual String Embeddings". Differences from the published code: one bias
replaces each gate's two, and the output's dropout (in the language-model head) is one mask for a whole window.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from torch import Tensor, nn
from torch.nn import functional as F

from textgraft.core.errors import UserError, did_you_mean
from textgraft.data.batch import Batch
from textgraft.data.sequences import Direction
from textgraft.encoders.base import Encoded, Encoder, LayerGroup, State, begin_by_length
from textgraft.nn.recurrent import LSTMLayer, reversed_within

DIRECTIONS = ("left", "right")


@dataclass(frozen=True)
class FlairConfig:
    """Shape and dropouts (published as one rate) of a character language model.

    Args:
        projection_dim: Width of a linear layer over the LSTM (0: none; `nout` in Flair's files).
        truncate: Gradients stop after this many characters of a long text (0: never); the paper trained on windows of
            250.
    """

    vocab_size: int
    embedding_dim: int = 100
    hidden_dim: int = 2048
    num_layers: int = 1
    projection_dim: int = 0
    direction: Direction = "left"
    input_dropout: float = 0.1
    hidden_dropout: float = 0.1
    truncate: int = 250


class Flair(Encoder):
    """Character ids to one vector a position, from left to right, or from right to left for a backward model.

    Raises:
        UserError: The direction is unknown.
    """

    config: FlairConfig
    method = "flair"

    def __init__(self, config: FlairConfig) -> None:
        super().__init__()
        if config.direction not in DIRECTIONS:
            remedy = did_you_mean(config.direction, DIRECTIONS)
            raise UserError(f"unknown direction '{config.direction}'.", remedy=remedy)
        self.config, self.direction = config, config.direction
        self.output_dim = config.projection_dim or config.hidden_dim
        self.embedding = nn.Embedding(config.vocab_size, config.embedding_dim)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        inner = (config.embedding_dim, *(config.hidden_dim,) * config.num_layers)
        self.layers = nn.ModuleList(LSTMLayer(a, b) for a, b in pairwise(inner))
        self.projection: nn.Linear | None = None
        if config.projection_dim:
            self.projection = nn.Linear(config.hidden_dim, config.projection_dim)
            nn.init.xavier_uniform_(self.projection.weight)

    def forward(self, batch: Batch, state: State | None = None, *, keep: Literal["top", "all"] = "top") -> Encoded:
        """Encode (B, T) ids as (B, T, D). The returned state is only meaningful where no row is padded."""
        config = self.config
        kept = [self.embedding(batch.ids)]
        x = F.dropout(kept[0], config.input_dropout, self.training)
        x = self._in_reading_order(x, batch.mask).transpose(0, 1)
        new_state = []
        for index, layer in enumerate(self.layers):
            x = F.dropout(x, config.hidden_dropout, self.training and index > 0)
            x, layer_state = layer(x, None if state is None else state[index], truncate=config.truncate)
            new_state.append(layer_state)
            kept.append(x)
        if self.projection is not None:
            kept[-1] = self.projection(x)
        dtype = self.embedding.weight.dtype  # bfloat16 is used between layers only
        selected = kept[1:] if keep == "all" else kept[-1:]
        outputs = [self._in_reading_order(h.transpose(0, 1), batch.mask).to(dtype) for h in selected]
        layers = (kept[0], *outputs) if keep == "all" else ()
        return Encoded(top=outputs[-1], mask=batch.mask, layers=layers, state=tuple(new_state))

    @property
    def widths(self) -> tuple[int, ...]:
        """Layer widths; the last layer is after the projection, where there is one."""
        config = self.config
        return (config.embedding_dim, *(config.hidden_dim,) * (config.num_layers - 1), self.output_dim)

    def initial_state(self, rows: int) -> State:
        layers: Any = self.layers
        return tuple(layer.initial_state(rows) for layer in layers)

    def begin(self, batch: Batch) -> Encoded:
        return begin_by_length(self, batch)

    def _in_reading_order(self, x: Tensor, mask: Tensor) -> Tensor:
        """For a backward model, each row of x (B, T, D) reversed within its own length; its own inverse."""
        return reversed_within(x, mask) if self.direction == "right" else x

    def layer_groups(self) -> list[LayerGroup]:
        """The embedding, then the layers; a projection is part of the last group."""
        groups = [LayerGroup("embedding", tuple(self.embedding.parameters()))]
        groups += [LayerGroup(f"layer {i + 1}", tuple(layer.parameters())) for i, layer in enumerate(self.layers)]
        if self.projection is not None:
            groups[-1] = LayerGroup(groups[-1].name, (*groups[-1].parameters, *self.projection.parameters()))
        return groups
