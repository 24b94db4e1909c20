"""Flair (Akbik, Blythe & Vollgraf 2018, "Contextual String Embeddings"): a language model that knows only characters.

A small embedding of characters, dropout, an LSTM of 2048 as published (one layer; their files may have more), and
before the output layer, where a file has it, a projection. One direction is one model, and its output layer is tied
to the embedding only where both happen to be of one width. What stands for a word is the
state at a position, which data/words.py finds by what the character tokenizer says of words: that of a model from the
left at the space after the word, that of one from the right at the space before it. Differs from the published code in
two ways: one bias stands for each gate's two, and the output's dropout (in the language-model head) is one mask for a
whole window.
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
    """The shape of a character language model and its dropouts, which are published as one rate.

    `projection_dim` is the width of a linear layer over the LSTM (0: none; `nout` in Flair's files). `truncate` stops
    gradients in time at every so many characters of a long text (0: never); they trained on windows of 250.
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
    """Character ids to one vector a position, read from the left, or from the right for a backward model.

    Raises UserError for a direction that it does not have.
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
        """(B, T) ids -> (B, T, D). The state handed out is only meaningful where no row is padded."""
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
        dtype = self.embedding.weight.dtype  # under bf16 the layers speak bfloat16 among themselves only
        shown = kept[1:] if keep == "all" else kept[-1:]
        outputs = [self._in_reading_order(h.transpose(0, 1), batch.mask).to(dtype) for h in shown]
        layers = (kept[0], *outputs) if keep == "all" else ()
        return Encoded(top=outputs[-1], mask=batch.mask, layers=layers, state=tuple(new_state))

    @property
    def widths(self) -> tuple[int, ...]:
        """The last layer is shown projected, where there is a projection."""
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
        """A projection trains with the last LSTM."""
        groups = [LayerGroup("embedding", tuple(self.embedding.parameters()))]
        groups += [LayerGroup(f"layer {i + 1}", tuple(layer.parameters())) for i, layer in enumerate(self.layers)]
        if self.projection is not None:
            groups[-1] = LayerGroup(groups[-1].name, (*groups[-1].parameters, *self.projection.parameters()))
        return groups
