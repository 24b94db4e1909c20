"""ELMo (Peters et al. 2018, arXiv:1802.05365): a language model of each direction over words read as characters.

A word is a convolution over its characters (Kim et al. 2016), highway layers and a projection; over that lie the LSTMs
of either direction, each projected and with its input added to its output but for the first. The two directions never
meet: what a layer shows of a word is the forward one's vector beside the backward one's. Differs from the published
code in three things: the marks around a text are positions like its words; dropout is bilm-tf's (on what each LSTM
reads), which AllenNLP's copy has elsewhere; and training may read the text from both its ends at a time
(`Batch.from_right`), so that each direction goes on from its own state.
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
WORDS_AT_A_TIME = 128
"""Small parts stay in the caches, and leave no large holes in memory."""


def _published_filters() -> list[list[int]]:
    return [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]]


@dataclass(frozen=True)
class ELMoConfig:
    """The shape of an ELMo and its dropout; the defaults are the original model's.

    `filters` are [width in characters, how many] each. `hidden_dim` is the number of an LSTM's cells, in each direction
    of each layer; what comes out is `projection_dim` wide, and a representation, both directions, twice that. Clips of
    0 do not clip. Raises UserError for values that cannot be.
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
    num_characters: int = NUM_CHARACTERS

    def __post_init__(self) -> None:
        object.__setattr__(self, "filters", [list(pair) for pair in self.filters])  # as JSON gives it back
        if not self.filters or any(len(pair) != 2 or min(pair) < 1 for pair in self.filters):
            message = f"{self.filters} are no filters."
            raise UserError(message, where="filters", remedy="Give [width, how many] for each width.")
        if self.activation not in ACTIVATIONS:
            remedy = did_you_mean(self.activation, ACTIVATIONS)
            raise UserError(f"unknown activation '{self.activation}'.", where="activation", remedy=remedy)
        least = {"character_dim": 1, "num_highways": 0, "projection_dim": 1, "hidden_dim": 1, "num_layers": 1}
        for name, low in {**least, "cell_clip": 0, "projection_clip": 0, "num_characters": NUM_CHARACTERS}.items():
            if getattr(self, name) < low:
                raise UserError(f"{getattr(self, name)} is out of range.", where=name, remedy=f"Give {low} or more.")


class Highway(nn.Module):
    """t * relu(W x + b) + (1 - t) * x with t = sigmoid(W' x + b') (Srivastava et al. 2015); carries x on at first."""

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
    """Spellings to one vector a word: filters over characters, the maximum over time, highways, a projection."""

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
        """(U, C) character ids -> (U, P)."""
        lengths, order = ((character_ids != PADDING) & (character_ids != 0)).sum(dim=1).sort(stable=True)
        # Words of like length together, few at a time: most are short, and filters over all would fill gigabytes.
        parts = [
            self._features(character_ids[words], int(length[-1]))
            for words, length in zip(order.split(WORDS_AT_A_TIME), lengths.split(WORDS_AT_A_TIME), strict=True)
        ]
        vectors: Tensor = self.projection(self.highways(torch.cat(parts)))
        return vectors[order.argsort()]

    def _features(self, character_ids: Tensor, longest: int) -> Tensor:
        """(U, F) maxima of the filters over words of at most so many characters."""
        # Where all words are over, every filter sees the same again and again: once is enough for its maximum.
        characters = self.embedding(character_ids[:, : longest + self.widest]).transpose(1, 2)
        return torch.cat([self.activation(conv(characters).amax(dim=2)) for conv in self.filters], dim=1)


class ELMo(Encoder):
    """Spelled words to two language models' vectors side by side, one a position; padding lies on the right."""

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
        """(B, T) numbers of `batch.character_ids` -> (B, T, 2P), and the state of either direction after its last word.

        `layers` are the words' vectors twice, side by side, and each LSTM layer's of both directions. The state is
        (h, c) of the forward direction and (h, c) of the backward one for each layer, (B, P) and (B, H). One of fewer
        rows goes on with zeros, one of more keeps what it has for the others, as in the published code, whose batches
        are contiguous streams of text that end one after another. Raises UserError for a batch without spellings.
        """
        if batch.character_ids is None:
            remedy = "Encode texts with the tokenizer that came with the model."
            raise UserError("this model reads how words are spelled, and was given token ids.", remedy=remedy)
        words = self.characters(batch.character_ids).to(self.dtype)
        left = F.embedding(batch.ids, words)
        right = left if batch.from_right is None else F.embedding(batch.from_right, words)
        shown = [torch.cat([left, right], dim=2)]
        sides = [left.transpose(0, 1), reversed_within(right, batch.mask).transpose(0, 1)]
        lengths, rows = batch.mask.sum(dim=1), len(batch.ids)
        new_state: list[tuple[Tensor, ...]] = []
        layers: Any = zip(self.forwards, self.backwards, state or self.initial_state(0), strict=True)
        for *pair, before in layers:
            before = [F.pad(part, (0, 0, 0, max(0, rows - len(part)))) for part in before]
            after: list[Tensor] = []
            for side, layer in enumerate(pair):
                read = F.dropout(sides[side], self.config.hidden_dropout, self.training)
                h, c = before[2 * side : 2 * side + 2]
                out, new = layer(read, lengths, (h[:rows], c[:rows]))
                sides[side] = out + read if new_state else out
                after += [torch.cat([now, old[rows:]]) for now, old in zip(new, (h, c), strict=True)]
            new_state.append(tuple(after))
            back = reversed_within(sides[1].transpose(0, 1), batch.mask)
            top = torch.cat([sides[0].transpose(0, 1), back], dim=2).to(self.dtype)
            shown = [*shown, top] if keep == "all" else [top]
        return Encoded(
            top=shown[-1], mask=batch.mask, layers=tuple(shown) if keep == "all" else (), state=tuple(new_state)
        )

    @property
    def dtype(self) -> torch.dtype:
        return self.characters.embedding.weight.dtype

    def initial_state(self, rows: int) -> State:
        layers: Any = zip(self.forwards, self.backwards, strict=True)
        return tuple((*ahead.initial_state(rows), *back.initial_state(rows)) for ahead, back in layers)

    def tied(self) -> NoReturn:
        """Raises UserError: there is no table of tokens."""
        remedy = "Give the head a table of its own (tied = false)."
        raise UserError("this model spells its words and has no table of them to share.", remedy=remedy)

    def classifier(self) -> dict[str, Any]:
        """ULMFiT's head, which sees the words too."""
        return {"words_dim": self.output_dim}

    def layer_groups(self) -> list[LayerGroup]:
        """The words, then both directions of each layer."""
        groups = [LayerGroup("characters", tuple(self.characters.parameters()))]
        pairs = zip(self.forwards, self.backwards, strict=True)
        return groups + [
            LayerGroup(f"layer {i + 1}", (*ahead.parameters(), *back.parameters()))
            for i, (ahead, back) in enumerate(pairs)
        ]
