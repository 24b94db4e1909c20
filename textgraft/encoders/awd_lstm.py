"""AWD-LSTM, the language model of ULMFiT, with MultiFiT's QRNN as its other cell.

Three recurrent layers over a (sub)word embedding, the last one as wide as the embedding so that input and output tables
can be tied. Regularisation is all dropout: of whole words of the embedding, of the input, of the recurrent weights,
between layers (here) and of the output (in the language-model head).

Source: Merity, Keskar & Socher 2018. Differences from the published code: the input can be scaled up, as a tied table
should start small; one bias replaces each gate's two; and one variational mask is used for a whole document instead of
one for each window.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from torch import Tensor, nn

from textgraft.core.errors import UserError, did_you_mean
from textgraft.data.batch import Batch
from textgraft.data.sequences import Direction
from textgraft.encoders.base import Encoded, Encoder, LayerGroup, State, begin_by_length
from textgraft.nn.dropout import embedding_dropout, variational_dropout
from textgraft.nn.qrnn import QRNNLayer
from textgraft.nn.recurrent import LSTMLayer, reversed_within

CELLS = ("lstm", "qrnn")
DIRECTIONS = ("left", "right")


@dataclass(frozen=True)
class AWDLSTMConfig:
    """Shape and dropouts of an AWD-LSTM.

    Args:
        input_scale: Factor of the embeddings (1 in the paper). With √D the inputs of a fresh model, whose table has
            rows of unit length for the output layer, have unit variance, which suits an LSTM.
        truncate: Gradients stop after this many steps of a long document (0: never), ULMFiT's "BPTT for text
            classification".
    """

    vocab_size: int
    embedding_dim: int = 400
    hidden_dim: int = 1152
    num_layers: int = 3
    cell: Literal["lstm", "qrnn"] = "lstm"
    direction: Direction = "left"
    embedding_dropout: float = 0.02
    input_dropout: float = 0.25
    weight_dropout: float = 0.2
    hidden_dropout: float = 0.15
    input_scale: float = 1.0
    truncate: int = 140


class AWDLSTM(Encoder):
    """Token ids to one vector a position, from left to right, or from right to left for a backward model.

    Raises:
        UserError: The cell or direction is unknown.
    """

    config: AWDLSTMConfig
    method = "ulmfit"

    def __init__(self, config: AWDLSTMConfig) -> None:
        super().__init__()
        for setting, value, choices in (("cell", config.cell, CELLS), ("direction", config.direction, DIRECTIONS)):
            if value not in choices:
                raise UserError(f"unknown {setting} '{value}'.", remedy=did_you_mean(value, choices))
        self.config, self.direction, self.output_dim = config, config.direction, config.embedding_dim
        self.embedding = nn.Embedding(config.vocab_size, config.embedding_dim)
        nn.init.normal_(self.embedding.weight, std=config.embedding_dim**-0.5)
        layers: list[nn.Module]
        if config.cell == "lstm":
            layers = [LSTMLayer(a, b, weight_dropout=config.weight_dropout) for a, b in pairwise(self.widths)]
        else:
            # MultiFiT: the window of the first layer is two inputs, that of the others one.
            layers = [
                QRNNLayer(a, b, window=2 if i == 0 else 1, weight_dropout=config.weight_dropout)
                for i, (a, b) in enumerate(pairwise(self.widths))
            ]
        self.layers = nn.ModuleList(layers)

    def forward(self, batch: Batch, state: State | None = None, *, keep: Literal["top", "all"] = "top") -> Encoded:
        """Encode (B, T) ids as (B, T, D). The returned state is only meaningful where no row is padded."""
        config = self.config
        x = self.embedding(batch.ids)
        x = embedding_dropout(x, batch.ids, config.vocab_size, config.embedding_dropout, self.training)
        if config.input_scale != 1:
            x = x * config.input_scale
        kept = [x]
        x = self._in_reading_order(x, batch.mask).transpose(0, 1)
        x = variational_dropout(x, config.input_dropout, self.training)
        new_state = []
        for index, layer in enumerate(self.layers):
            x, layer_state = layer(x, None if state is None else state[index], truncate=config.truncate)
            new_state.append(layer_state)
            kept.append(x)
            if index + 1 < len(self.layers):
                x = variational_dropout(x, config.hidden_dropout, self.training)
        outputs = [self._in_reading_order(h.transpose(0, 1), batch.mask) for h in kept[1:]]
        dtype = self.embedding.weight.dtype  # bfloat16 is used between layers only
        layers = (kept[0], *(h.to(dtype) for h in outputs)) if keep == "all" else ()
        return Encoded(top=outputs[-1].to(dtype), mask=batch.mask, layers=layers, state=tuple(new_state))

    @property
    def widths(self) -> tuple[int, ...]:
        """Layer widths, bottom to top; layers between the first and the last may be wider."""
        outer = self.config.embedding_dim
        return (outer, *(self.config.hidden_dim,) * (self.config.num_layers - 1), outer)

    def initial_state(self, rows: int) -> State:
        layers: Any = self.layers
        return tuple(layer.initial_state(rows) for layer in layers)

    def begin(self, batch: Batch) -> Encoded:
        return begin_by_length(self, batch)

    def _in_reading_order(self, x: Tensor, mask: Tensor) -> Tensor:
        """For a backward model, each row of x (B, T, D) reversed within its own length; its own inverse."""
        return reversed_within(x, mask) if self.direction == "right" else x

    def classifier(self) -> dict[str, Any]:
        """ULMFiT's head, with the embedding layer added."""
        return {"words_dim": self.config.embedding_dim}

    def layer_groups(self) -> list[LayerGroup]:
        groups = [LayerGroup("embedding", tuple(self.embedding.parameters()))]
        return groups + [LayerGroup(f"layer {i + 1}", tuple(layer.parameters())) for i, layer in enumerate(self.layers)]
