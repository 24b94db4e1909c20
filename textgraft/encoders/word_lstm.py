"""The tagger's own network over words: given vectors, characters, and LSTMs that read both ways.

Akbik et al. 2018 (arXiv, COLING C18-1139), §2.3 and 3.2, after Huang et al. 2015 (arXiv:1508.01991): what frozen models
say of a word goes through a learned projection into a bidirectional LSTM. The word's characters are beside it, as a
convolution of three and its maximum (Ma & Hovy 2016, arXiv:1603.01354, §2.1). Differs from the published code in four
things: the projection may be narrower than what it projects; the marks around a sentence are positions, whose given
vectors are zeros; dropout between layers is variational too; and characters are the bytes of UTF-8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NoReturn

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from textgraft.core.errors import UserError
from textgraft.data.batch import Batch
from textgraft.data.sequences import Direction
from textgraft.encoders.base import Encoded, Encoder, LayerGroup, State
from textgraft.nn.cpu.precision import Linear
from textgraft.nn.dropout import variational_dropout
from textgraft.nn.recurrent import LSTMLayer, reversed_within
from textgraft.text.character_encoding import NUM_CHARACTERS, PADDING

FILTER_WIDTH = 3


@dataclass(frozen=True)
class WordLSTMConfig:
    """`vectors_dim` is the width of the vectors that come with a batch, `hidden_dim` that of each direction.

    `projection_dim` 0 hands the vectors on as they are; `character_filters` 0 leaves out how words are spelled. A
    `word_dropout` drops all that is known of a word, an `input_dropout` the same features of all words of a sentence,
    a `hidden_dropout` such after each layer. Raises UserError where there is nothing to read, or no layer.
    """

    vectors_dim: int = 0
    projection_dim: int = 256
    character_dim: int = 30
    character_filters: int = 30
    hidden_dim: int = 256
    num_layers: int = 1
    word_dropout: float = 0.05
    input_dropout: float = 0.5
    hidden_dropout: float = 0.5

    def __post_init__(self) -> None:
        if min(self.vectors_dim, self.projection_dim, self.character_filters) < 0:
            raise UserError("a width is below 0.", remedy="Give 0 to leave something out.")
        if not self.vectors_dim and not self.character_filters:
            raise UserError("this network has nothing to read.", remedy="Give it vectors, or character filters.")
        if min(self.hidden_dim, self.num_layers, self.character_dim) < 1:
            raise UserError("hidden_dim, num_layers or character_dim is below 1.", remedy="Give 1 or more.")


class Characters(nn.Module):
    """Spellings (U, C) to (U, filters): a convolution over three characters, its maximum over the word."""

    def __init__(self, config: WordLSTMConfig) -> None:
        super().__init__()
        self.embedding = nn.Embedding(NUM_CHARACTERS, config.character_dim, padding_idx=0)
        bound = (3 / config.character_dim) ** 0.5  # as Ma & Hovy draw them
        nn.init.uniform_(self.embedding.weight, -bound, bound)
        self.filters = nn.Conv1d(config.character_dim, config.character_filters, FILTER_WIDTH)

    def forward(self, character_ids: Tensor) -> Tensor:
        # Where all words are over, the filters see the same again and again: once is enough for their maximum.
        written = ((character_ids != PADDING) & (character_ids != 0)).any(dim=0).sum()
        read = self.embedding(character_ids[:, : int(written) + FILTER_WIDTH]).transpose(1, 2)
        features: Tensor = self.filters(read).amax(dim=2)
        return features


class WordLSTM(Encoder):
    """Words with given vectors and spellings to what a bidirectional LSTM says of them, one vector a word."""

    config: WordLSTMConfig
    direction: Direction = "both"
    uses_characters = True
    method = "word-lstm"

    def __init__(self, config: WordLSTMConfig) -> None:
        super().__init__()
        self.config, self.output_dim = config, 2 * config.hidden_dim
        given = config.vectors_dim and (config.projection_dim or config.vectors_dim)
        self.projection = Linear(config.vectors_dim, given) if given and config.projection_dim else None
        self.characters = Characters(config) if config.character_filters else None
        self._input_dim = given + config.character_filters
        inputs = [self._input_dim] + [self.output_dim] * (config.num_layers - 1)
        self.forwards = nn.ModuleList(LSTMLayer(width, config.hidden_dim) for width in inputs)
        self.backwards = nn.ModuleList(LSTMLayer(width, config.hidden_dim) for width in inputs)

    def forward(self, batch: Batch, state: State | None = None, *, keep: Literal["top", "all"] = "top") -> Encoded:
        """(B, T) numbers of `batch.character_ids` and `batch.vectors` (B, T, vectors_dim) -> (B, T, 2 hidden_dim).

        Raises UserError for a batch without what the network reads.
        """
        config = self.config
        x = self._input(batch)
        kept = [x]
        for ahead, back in zip(self.forwards, self.backwards, strict=True):
            left, _ = ahead(x.transpose(0, 1))
            right, _ = back(reversed_within(x, batch.mask).transpose(0, 1))
            both = torch.cat([left.transpose(0, 1), reversed_within(right.transpose(0, 1), batch.mask)], dim=2)
            x = self._locked(both.to(kept[0].dtype), config.hidden_dropout)
            kept.append(x)
        return Encoded(top=x, mask=batch.mask, layers=tuple(kept) if keep == "all" else ())

    def _input(self, batch: Batch) -> Tensor:
        """What is known of each word, (B, T, D): its given vector, projected, and its characters."""
        config, parts = self.config, []
        drops = self.training and config.word_dropout > 0
        whole = torch.rand(batch.ids.shape, device=batch.ids.device) >= config.word_dropout if drops else None
        if config.vectors_dim:
            if batch.vectors is None or batch.vectors.shape[2] != config.vectors_dim:
                found = "none" if batch.vectors is None else f"{batch.vectors.shape[2]} numbers"
                message = f"this model reads words' vectors of {config.vectors_dim} numbers, and was given {found}."
                raise UserError(message, remedy="Use it to tag words, with the models that it came with.")
            vectors = self._dropped(batch.vectors.to(self.dtype), whole)
            parts.append(vectors if self.projection is None else self.projection(vectors).to(self.dtype))
        if self.characters is not None:
            if batch.character_ids is None:
                remedy = "Encode texts with the tokenizer that came with the model."
                raise UserError("this model reads how words are spelled, and was given token ids.", remedy=remedy)
            words = F.embedding(batch.ids, self.characters(batch.character_ids).to(self.dtype))
            parts.append(self._dropped(words, whole))
        return torch.cat(parts, dim=2)

    def _dropped(self, x: Tensor, whole: Tensor | None) -> Tensor:
        """The vectors without some words, those where `whole` (B, T) is False, and without some features."""
        return self._locked(x if whole is None else x * whole[:, :, None], self.config.input_dropout)

    def _locked(self, x: Tensor, p: float) -> Tensor:
        return variational_dropout(x.transpose(0, 1), p, self.training).transpose(0, 1)

    @property
    def dtype(self) -> torch.dtype:
        layer = self.forwards[0]
        assert isinstance(layer, LSTMLayer)
        return layer.bias.dtype

    @property
    def widths(self) -> tuple[int, ...]:
        """The input's width, then those of the layers."""
        return (self._input_dim, *(self.output_dim,) * self.config.num_layers)

    def tied(self) -> NoReturn:
        """Raises UserError: there is no table of tokens."""
        remedy = "Give the head a table of its own (tied = false)."
        raise UserError("this model spells its words and has no table of them to share.", remedy=remedy)

    def layer_groups(self) -> list[LayerGroup]:
        """What is known of words by themselves, then both directions of each layer."""
        inputs = [part for part in (self.projection, self.characters) if part is not None]
        groups = [LayerGroup("words", tuple(p for part in inputs for p in part.parameters()))] if inputs else []
        pairs = zip(self.forwards, self.backwards, strict=True)
        return groups + [
            LayerGroup(f"layer {i + 1}", (*ahead.parameters(), *back.parameters()))
            for i, (ahead, back) in enumerate(pairs)
        ]
