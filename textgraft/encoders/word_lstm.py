"""Word-level encoder for tagging: pretrained word vectors, characters, and a bidirectional LSTM.

The vectors of frozen models go through a learned projection into a bidirectional LSTM, concatenated with a convolution
of three over the word's characters and its maximum (Ma & Hovy 2016, arXiv:1603.01354, §2.1).

Source: Akbik et al. 2018 (arXiv, COLING C18-1139), §2.3 and 3.2, after Huang et al. 2015 (arXiv:1508.01991).
Differences from the published code: the projection may be narrower than its input; the begin and end of a sentence are
positions, whose vectors are zeros; dropout between layers is variational too; and characters are the bytes of UTF-8.
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
    """Configuration of the encoder.

    Args:
        vectors_dim: Width of the vectors in a batch.
        projection_dim: Width of their projection; 0 for none.
        character_filters: Number of character filters; 0 leaves characters out.
        hidden_dim: Width of each direction.
        num_layers: Number of LSTM layers; 0 for none, which leaves the input to the head.
        word_dropout: Dropout of all features of a word.
        input_dropout: Dropout of the same features of all words of a sentence.
        hidden_dropout: The same after each layer.

    Raises:
        UserError: There is no input, or a size is too small.
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
            raise UserError("this network has no input.", remedy="Set vectors_dim or character_filters.")
        if self.num_layers < 0:
            raise UserError(f"num_layers is {self.num_layers}.", remedy="Give 0 or more.")
        if min(self.hidden_dim, self.character_dim) < 1:
            raise UserError("hidden_dim or character_dim is below 1.", remedy="Give 1 or more.")


class Characters(nn.Module):
    """Character ids (U, C) to (U, filters): a convolution over three characters, its maximum over the word."""

    def __init__(self, config: WordLSTMConfig) -> None:
        super().__init__()
        self.embedding = nn.Embedding(NUM_CHARACTERS, config.character_dim, padding_idx=0)
        bound = (3 / config.character_dim) ** 0.5  # as in Ma & Hovy
        nn.init.uniform_(self.embedding.weight, -bound, bound)
        self.filters = nn.Conv1d(config.character_dim, config.character_filters, FILTER_WIDTH)

    def forward(self, character_ids: Tensor) -> Tensor:
        # Behind the end of all words the filter outputs repeat: one of them is enough for the maximum.
        longest = ((character_ids != PADDING) & (character_ids != 0)).any(dim=0).sum()
        embedded = self.embedding(character_ids[:, : int(longest) + FILTER_WIDTH]).transpose(1, 2)
        features: Tensor = self.filters(embedded).amax(dim=2)
        return features


class WordLSTM(Encoder):
    """Words with vectors and characters to the outputs of a bidirectional LSTM, one vector a word."""

    config: WordLSTMConfig
    direction: Direction = "both"
    uses_characters = True
    method = "word-lstm"

    def __init__(self, config: WordLSTMConfig) -> None:
        super().__init__()
        self.config = config
        vectors_width = config.vectors_dim and (config.projection_dim or config.vectors_dim)
        self.projection = Linear(config.vectors_dim, vectors_width) if vectors_width and config.projection_dim else None
        self.characters = Characters(config) if config.character_filters else None
        self._input_dim = vectors_width + config.character_filters
        self.output_dim = 2 * config.hidden_dim if config.num_layers else self._input_dim
        inputs = [self._input_dim, *[self.output_dim] * config.num_layers][: config.num_layers]
        self.forwards = nn.ModuleList(LSTMLayer(width, config.hidden_dim) for width in inputs)
        self.backwards = nn.ModuleList(LSTMLayer(width, config.hidden_dim) for width in inputs)

    def forward(self, batch: Batch, state: State | None = None, *, keep: Literal["top", "all"] = "top") -> Encoded:
        """Encode (B, T) numbers of `batch.character_ids` and `batch.vectors` (B, T, vectors_dim) as (B, T, 2
        hidden_dim).

        Raises:
            UserError: The batch lacks an input of the network.
        """
        config = self.config
        x = self._input(batch)
        kept = [x]
        for ahead, back in zip(self.forwards, self.backwards, strict=True):
            left, _ = ahead(x.transpose(0, 1))
            right, _ = back(reversed_within(x, batch.mask).transpose(0, 1))
            both = torch.cat([left.transpose(0, 1), reversed_within(right.transpose(0, 1), batch.mask)], dim=2)
            x = self._variational(both.to(kept[0].dtype), config.hidden_dropout)
            kept.append(x)
        return Encoded(top=x, mask=batch.mask, layers=tuple(kept) if keep == "all" else ())

    def _input(self, batch: Batch) -> Tensor:
        """Input (B, T, D) of the LSTM: projected vectors and character features."""
        config, parts = self.config, []
        drops = self.training and config.word_dropout > 0
        kept_words = torch.rand(batch.ids.shape, device=batch.ids.device) >= config.word_dropout if drops else None
        if config.vectors_dim:
            if batch.vectors is None or batch.vectors.shape[2] != config.vectors_dim:
                batch_vectors = "none" if batch.vectors is None else f"{batch.vectors.shape[2]} numbers"
                message = (
                    f"this model needs word vectors of {config.vectors_dim} numbers; the batch has {batch_vectors}."
                )
                raise UserError(message, remedy="Use it as a tagger, with the models that came with it.")
            vectors = self._dropped(batch.vectors.to(self.dtype), kept_words)
            parts.append(vectors if self.projection is None else self.projection(vectors).to(self.dtype))
        if self.characters is not None:
            if batch.character_ids is None:
                remedy = "Encode texts with the tokenizer that came with the model."
                raise UserError("this model needs words as characters, not token ids.", remedy=remedy)
            words = F.embedding(batch.ids, self.characters(batch.character_ids).to(self.dtype))
            parts.append(self._dropped(words, kept_words))
        return torch.cat(parts, dim=2)

    def _dropped(self, x: Tensor, kept_words: Tensor | None) -> Tensor:
        """Word dropout, where `kept_words` (B, T) is False, and variational dropout."""
        return self._variational(x if kept_words is None else x * kept_words[:, :, None], self.config.input_dropout)

    def _variational(self, x: Tensor, p: float) -> Tensor:
        return variational_dropout(x.transpose(0, 1), p, self.training).transpose(0, 1)

    @property
    def dtype(self) -> torch.dtype:
        return next((parameter.dtype for parameter in self.parameters()), torch.float32)

    @property
    def widths(self) -> tuple[int, ...]:
        """The width of the input, then those of the layers."""
        return (self._input_dim, *(self.output_dim,) * self.config.num_layers)

    def tied(self) -> NoReturn:
        """Raise UserError: there is no token table."""
        remedy = "Give the head a table of its own (tied = false)."
        raise UserError("this model encodes words as characters and has no token table to share.", remedy=remedy)

    def layer_groups(self) -> list[LayerGroup]:
        """The word-level inputs, then both directions of each layer."""
        inputs = [part for part in (self.projection, self.characters) if part is not None]
        groups = [LayerGroup("words", tuple(p for part in inputs for p in part.parameters()))] if inputs else []
        pairs = zip(self.forwards, self.backwards, strict=True)
        return groups + [
            LayerGroup(f"layer {i + 1}", (*ahead.parameters(), *back.parameters()))
            for i, (ahead, back) in enumerate(pairs)
        ]
