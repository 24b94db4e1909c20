"""AWD-LSTM (Merity, Keskar & Socher 2018), the language model of ULMFiT, and MultiFiT's QRNN as its other cell.

Three recurrent layers over a word (piece) embedding, the last one as wide as the embedding so that input and output
tables can be tied. Regularisation is all dropout: whole words of the embedding, the input, the recurrent weights,
between layers (here) and on the output (in the language-model head). Differs from the published code in three ways:
the input can be scaled up, as a tied table should start small; one bias stands for each gate's two; and one
variational mask holds for a whole document instead of one for each window of it.
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
    """The shape of an AWD-LSTM and its dropouts.

    `input_scale` multiplies the embeddings (1 in the paper); of √D it makes the inputs of a fresh model, whose table
    has rows of unit length for the output layer's sake, numbers of unit variance, which an LSTM wants. `truncate`
    stops gradients in time at every so many steps of a long document (0: never), ULMFiT's "BPTT for text
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
    """Token ids to one vector a position, read from the left, or from the right for a backward model.

    Raises UserError for a cell or direction that it does not have.
    """

    config: AWDLSTMConfig

    def __init__(self, config: AWDLSTMConfig) -> None:
        super().__init__()
        for setting, value, known in (("cell", config.cell, CELLS), ("direction", config.direction, DIRECTIONS)):
            if value not in known:
                raise UserError(f"unknown {setting} '{value}'.", remedy=did_you_mean(value, known))
        self.config, self.direction, self.output_dim = config, config.direction, config.embedding_dim
        self.embedding = nn.Embedding(config.vocab_size, config.embedding_dim)
        nn.init.normal_(self.embedding.weight, std=config.embedding_dim**-0.5)
        layers: list[nn.Module]
        if config.cell == "lstm":
            layers = [LSTMLayer(a, b, weight_dropout=config.weight_dropout) for a, b in pairwise(self.widths)]
        else:
            # MultiFiT: the first layer looks at two inputs, the others at one.
            layers = [
                QRNNLayer(a, b, window=2 if i == 0 else 1, weight_dropout=config.weight_dropout)
                for i, (a, b) in enumerate(pairwise(self.widths))
            ]
        self.layers = nn.ModuleList(layers)

    def forward(self, batch: Batch, state: State | None = None, *, keep: Literal["top", "all"] = "top") -> Encoded:
        """(B, T) ids -> (B, T, D). The state handed out is only meaningful where no row is padded."""
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
        dtype = self.embedding.weight.dtype  # under bf16 the layers speak bfloat16 among themselves only
        layers = (kept[0], *(h.to(dtype) for h in outputs)) if keep == "all" else ()
        return Encoded(top=outputs[-1].to(dtype), mask=batch.mask, layers=layers, state=tuple(new_state))

    @property
    def widths(self) -> tuple[int, ...]:
        """The layers between the first and the last may be wider than these."""
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
        """ULMFiT's head, which sees the words too."""
        return {"words_dim": self.config.embedding_dim}

    def layer_groups(self) -> list[LayerGroup]:
        groups = [LayerGroup("embedding", tuple(self.embedding.parameters()))]
        return groups + [LayerGroup(f"layer {i + 1}", tuple(layer.parameters())) for i, layer in enumerate(self.layers)]
