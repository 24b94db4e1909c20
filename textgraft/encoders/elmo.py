"""ELMo: a language model in each direction over words as characters.

A word is a convolution over its characters (Kim et al. 2016), highway layers and a projection; above are the LSTMs of
either direction, each projected and, if configured, with a residual connection but for the first. The two directions
are independent: a layer's output is the forward vector beside the backward one.

Source: Peters et al. 2018, arXiv:1802.05365. Differences from the published code: the begin and end of text are
positions like words; dropout is that of bilm-tf (on the input of each LSTM), which AllenNLP's copy has elsewhere; and
training may process the text from both its ends at a time (`Batch.from_right`), so that each direction continues from
its own state.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from textgraft.core.errors import UserError, did_you_mean
from textgraft.data.batch import Batch
from textgraft.data.sequences import Direction
from textgraft.encoders.base import Encoded, Encoder, LayerGroup, State
from textgraft.nn.projected_lstm import ProjectedLSTMLayer
from textgraft.nn.recurrent import reversed_within
from textgraft.text.character_encoding import NUM_CHARACTERS, PADDING

ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh}
WORDS_AT_ONCE = 128
"""Number of words per chunk: small chunks stay in the caches and do not fragment memory."""


def _published_filters() -> list[list[int]]:
    return [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]]


@dataclass(frozen=True)
class ELMoConfig:
    """Shape and dropout of an ELMo; the defaults are those of the original model.

    Args:
        filters: [width in characters, number of filters] each.
        hidden_dim: Number of cells of an LSTM, in each direction of each layer.
        projection_dim: Width of an LSTM's output; both directions together have twice that.
        cell_clip: Clip of cell states; 0 does not clip.
        projection_clip: Clip of outputs; 0 does not clip.
        skip_connections: Add the input of each LSTM but the first to its output.

    Raises:
        UserError: A value is impossible.
    """

    character_dim: int = 16
    filters: list[list[int]] = field(default_factory=_published_filters)
    num_highways: int = 2
    projection_dim: int = 512
    hidden_dim: int = 4096
    num_layers: int = 2
    activation: Literal["relu", "tanh"] = "relu"
    cell_clip: float = 3.0
    projection_clip: float = 3.0
    hidden_dropout: float = 0.1
    skip_connections: bool = True
    num_characters: int = NUM_CHARACTERS

    def __post_init__(self) -> None:
        object.__setattr__(self, "filters", [list(pair) for pair in self.filters])  # JSON returns lists
        if not self.filters or any(len(pair) != 2 or min(pair) < 1 for pair in self.filters):
            message = f"{self.filters} are not filters."
            raise UserError(message, where="filters", remedy="Give [width, number of filters] for each width.")
        if self.activation not in ACTIVATIONS:
            remedy = did_you_mean(self.activation, ACTIVATIONS)
            raise UserError(f"unknown activation '{self.activation}'.", where="activation", remedy=remedy)
        minima = {"character_dim": 1, "num_highways": 0, "projection_dim": 1, "hidden_dim": 1, "num_layers": 1}
        for name, minimum in {**minima, "cell_clip": 0, "projection_clip": 0, "num_characters": NUM_CHARACTERS}.items():
            if getattr(self, name) < minimum:
                raise UserError(
                    f"{getattr(self, name)} is out of range.", where=name, remedy=f"Give {minimum} or more."
                )


class Highway(nn.Module):
    """t * relu(W x + b) + (1 - t) * x with t = sigmoid(W' x + b') (Srivastava et al. 2015); starts close to the
    identity.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.transform, self.gate = nn.Linear(dim, dim), nn.Linear(dim, dim)
        for linear, bias in ((self.transform, 0.0), (self.gate, -2.0)):
            nn.init.normal_(linear.weight, std=dim**-0.5)
            nn.init.constant_(linear.bias, bias)

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.gate(x))
        return gate * torch.relu(self.transform(x)) + (1 - gate) * x


class CharacterCNN(nn.Module):
    """Character ids to one vector a word: filters over characters, the maximum over time, highways, a projection."""

    def __init__(self, config: ELMoConfig) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[config.activation]
        self.embedding = nn.Embedding(config.num_characters, config.character_dim, padding_idx=0)
        self.filters = nn.ModuleList(nn.Conv1d(config.character_dim, n, width) for width, n in config.filters)
        for (width, _), convolution in zip(config.filters, self.filters, strict=True):
            nn.init.normal_(convolution.weight, std=(width * config.character_dim) ** -0.5)  # type: ignore[arg-type]
            nn.init.zeros_(convolution.bias)  # type: ignore[arg-type]
        self.widest = max(width for width, _ in config.filters)
        features = sum(n for _, n in config.filters)
        self.highways = nn.Sequential(*(Highway(features) for _ in range(config.num_highways)))
        self.projection = nn.Linear(features, config.projection_dim)
        nn.init.normal_(self.projection.weight, std=features**-0.5)
        nn.init.zeros_(self.projection.bias)

    def forward(self, character_ids: Tensor) -> Tensor:
        """Character ids (U, C) -> (U, P)."""
        lengths, order = ((character_ids != PADDING) & (character_ids != 0)).sum(dim=1).sort(stable=True)
        # Words of similar length, few at a time: most are short, and all filter outputs at once would take gigabytes.
        parts = [
            self._features(character_ids[words], int(length[-1]))
            for words, length in zip(order.split(WORDS_AT_ONCE), lengths.split(WORDS_AT_ONCE), strict=True)
        ]
        vectors: Tensor = self.projection(self.highways(torch.cat(parts)))
        return vectors[order.argsort()]

    def _features(self, character_ids: Tensor, longest: int) -> Tensor:
        """Maxima (U, F) of the filters over words of at most `longest` characters."""
        # Behind the end of all words the filter outputs repeat: one of them is enough for the maximum.
        characters = self.embedding(character_ids[:, : longest + self.widest]).transpose(1, 2)
        return torch.cat([self.activation(conv(characters).amax(dim=2)) for conv in self.filters], dim=1)


class ELMo(Encoder):
    """Words as characters to the concatenated vectors of two language models, one a position; padding is
    on the right.
    """

    config: ELMoConfig
    direction: Direction = "both"
    uses_characters = True
    method = "elmo"

    def __init__(self, config: ELMoConfig) -> None:
        super().__init__()
        self.config, self.output_dim = config, 2 * config.projection_dim
        self.characters = CharacterCNN(config)
        self.forwards, self.backwards = (
            nn.ModuleList(
                ProjectedLSTMLayer(
                    config.projection_dim,
                    config.hidden_dim,
                    config.projection_dim,
                    cell_clip=config.cell_clip,
                    projection_clip=config.projection_clip,
                )
                for _ in range(config.num_layers)
            )
            for _ in range(2)
        )

    def forward(self, batch: Batch, state: State | None = None, *, keep: Literal["top", "all"] = "top") -> Encoded:
        """Encode (B, T) numbers of `batch.character_ids` as (B, T, 2P), with the state of either direction after its
        last word.

        `layers` are the word vectors twice, concatenated, and each LSTM layer of both directions. The state is (h, c)
        of the forward direction and (h, c) of the backward one for each layer, (B, P) and (B, H). A state of fewer rows
        is padded with zeros, one of more keeps its other rows, as in the published code, whose batches are contiguous
        streams of text that end one after another.

        Raises:
            UserError: The batch has no characters.
        """
        if batch.character_ids is None:
            remedy = "Encode texts with the tokenizer that came with the model."
            raise UserError("this model needs words as characters, not token ids.", remedy=remedy)
        words = self.characters(batch.character_ids).to(self.dtype)
        left = F.embedding(batch.ids, words)
        right = left if batch.from_right is None else F.embedding(batch.from_right, words)
        layer_outputs = [torch.cat([left, right], dim=2)]
        sides = [left.transpose(0, 1), reversed_within(right, batch.mask).transpose(0, 1)]
        lengths, rows = batch.mask.sum(dim=1), len(batch.ids)
        new_state: list[tuple[Tensor, ...]] = []
        layers: Any = zip(self.forwards, self.backwards, state or self.initial_state(0), strict=True)
        for *pair, old_state in layers:
            old_state = [F.pad(part, (0, 0, 0, max(0, rows - len(part)))) for part in old_state]
            new_layer_state: list[Tensor] = []
            for side, layer in enumerate(pair):
                inputs = F.dropout(sides[side], self.config.hidden_dropout, self.training)
                h, c = old_state[2 * side : 2 * side + 2]
                out, step_state = layer(inputs, lengths, (h[:rows], c[:rows]))
                sides[side] = out + inputs if new_state and self.config.skip_connections else out
                new_layer_state += [torch.cat([now, old[rows:]]) for now, old in zip(step_state, (h, c), strict=True)]
            new_state.append(tuple(new_layer_state))
            back = reversed_within(sides[1].transpose(0, 1), batch.mask)
            top = torch.cat([sides[0].transpose(0, 1), back], dim=2).to(self.dtype)
            layer_outputs = [*layer_outputs, top] if keep == "all" else [top]
        return Encoded(
            top=layer_outputs[-1],
            mask=batch.mask,
            layers=tuple(layer_outputs) if keep == "all" else (),
            state=tuple(new_state),
        )

    @property
    def dtype(self) -> torch.dtype:
        return self.characters.embedding.weight.dtype

    def initial_state(self, rows: int) -> State:
        layers: Any = zip(self.forwards, self.backwards, strict=True)
        return tuple((*ahead.initial_state(rows), *back.initial_state(rows)) for ahead, back in layers)

    def tied(self) -> NoReturn:
        """Raise UserError: there is no token table."""
        remedy = "Give the head a table of its own (tied = false)."
        raise UserError("this model encodes words as characters and has no token table to share.", remedy=remedy)

    def classifier(self) -> dict[str, Any]:
        """ULMFiT's head, with the embedding layer added."""
        return {"words_dim": self.output_dim}

    def layer_groups(self) -> list[LayerGroup]:
        """The character encoder, then both directions of each layer."""
        groups = [LayerGroup("characters", tuple(self.characters.parameters()))]
        pairs = zip(self.forwards, self.backwards, strict=True)
        return groups + [
            LayerGroup(f"layer {i + 1}", (*ahead.parameters(), *back.parameters()))
            for i, (ahead, back) in enumerate(pairs)
        ]
