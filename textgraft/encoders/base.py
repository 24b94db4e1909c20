"""Encoder interface, the one seam between families of language models and tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from textgraft.data.batch import Batch
from textgraft.data.sequences import Direction
from textgraft.data.tags import SubwordPooling
from textgraft.nn.embedding import AdaptiveEmbedding

State = tuple[tuple[Tensor, ...], ...]
"""State between consecutive windows of a text: for each layer a tuple of (B, ...) tensors.

A recurrent state, or a memory of bounded length, has a constant size and is always returned; training and evaluation on
long texts pass it on. One that grows with the text (a Transformer's keys and values) is returned only where one was
passed in, so that each window starts afresh unless the caller begins with `Encoder.initial_state`.
"""


ONE_LAYER = {"hidden_dim": 0, "batch_norm": False}
"""Settings of a classification head without a hidden layer, as transformers were published."""


@dataclass
class Encoded:
    """Output of an encoder for B texts of T positions."""

    top: Tensor  # (B, T, D) the last layer
    mask: Tensor  # (B, T) bool, True = a real position
    layers: tuple[Tensor, ...] = ()  # every layer (B, T, D_l), bottom (embeddings) -> top, when keep="all"
    state: State | None = None  # passed in and out, never kept on the module
    groups: Tensor | None = None  # (B,) example of each row, Batch.groups; set by the model for the head
    pooled: Tensor | None = None  # (B, D) vector of the text, for families with a pooler (BERT)


@dataclass(frozen=True)
class LayerGroup:
    """A named group of the encoder's parameters, the unit of gradual unfreezing."""

    name: str
    parameters: tuple[nn.Parameter, ...]


class Encoder(nn.Module):
    """Token ids to one vector a position. The config is a frozen, JSON-serialisable dataclass and the only constructor
    argument.

    Attributes:
        output_dim: D, the width of `Encoded.top`.
        direction: Context of a position: "left" (previous tokens), "right" (following tokens) or "both".
        max_length: Maximum number of tokens of a text (None: unlimited).
        uses_characters: The input is words as characters (text.character_encoding), not token ids.
        recurrent: The encoder takes a step for each position, so that larger batches cost less a text.
        subword_pooling: The subword that represents a word, where it does not follow from the direction (data.words).
        permuted: Its language model predicts tokens in a random order (`Batch.order`), not masked ones.
        method: Name of a model of the family in tables, once it is fine-tuned ("bert").
    """

    config: Any
    output_dim: int
    direction: Direction
    max_length: int | None = None
    uses_characters: ClassVar[bool] = False
    recurrent: ClassVar[bool] = True
    subword_pooling: ClassVar[SubwordPooling | None] = None
    permuted: bool = False
    method: ClassVar[str]

    def forward(self, batch: Batch, state: State | None = None, *, keep: Literal["top", "all"] = "top") -> Encoded:
        raise NotImplementedError

    @property
    def widths(self) -> tuple[int, ...]:
        """Width of each of `Encoded.layers`, bottom (embeddings) to top."""
        return (self.output_dim,) * (1 + self.config.num_layers)

    def initial_state(self, rows: int) -> State:
        """State before the first token of `rows` texts; passed to `forward`, it requests a state in return."""
        raise NotImplementedError

    def begin(self, batch: Batch) -> Encoded:
        """Encode beginnings of texts padded on the left, so that all end in the last column, and return a state to
        continue from.
        """
        return self(batch, self.initial_state(len(batch.ids)))

    def with_room(self, state: State) -> State:
        """A state that may be written into in place while continuing token by token."""
        return state

    def remembers(self, tokens: int) -> bool:
        """True if continuing from the state after `tokens` tokens equals encoding the whole text at once."""
        return True

    @property
    def not_adaptable(self) -> str:
        """Reason why the encoder cannot be trained further without labels; empty if it can."""
        return ""

    @property
    def languages(self) -> Mapping[str, int]:
        """Numbers of the languages that have an embedding of their own (XLM), by name; empty without such."""
        return {}

    @property
    def detects_replaced(self) -> bool:
        """True for an encoder that was pretrained by detecting replaced tokens (ELECTRA)."""
        return False

    def classifier(self) -> dict[str, Any]:
        """Settings of the classification head of the family's paper, where they differ from ULMFiT's."""
        return {}

    def masked_language_model(self) -> dict[str, Any]:
        """Settings of the masked-language-model head of the family's paper, where they differ from BERT's."""
        return {}

    def tied(self) -> nn.Parameter | AdaptiveEmbedding:
        """Weights that a tied output layer shares: the token table (V, D), or an adaptive embedding."""
        embedding: Any = self.embedding
        return embedding if isinstance(embedding, AdaptiveEmbedding) else embedding.weight

    def layer_groups(self) -> list[LayerGroup]:
        """Groups from bottom to top, disjoint, covering every parameter exactly once."""
        raise NotImplementedError


def begin_by_length(encoder: Encoder, batch: Batch) -> Encoded:
    """`Encoder.begin` of a recurrent family: padding would change the state, so rows of one length are encoded
    together.
    """
    top = next(encoder.parameters()).new_zeros(*batch.ids.shape, encoder.output_dim)
    state: list[list[Tensor]] | None = None
    lengths = batch.mask.sum(dim=1)
    for length in lengths.unique().tolist():
        rows = (lengths == length).nonzero().squeeze(1)
        first = batch.ids.shape[1] - length
        encoded = encoder(Batch(ids=batch.ids[rows, first:], mask=batch.mask[rows, first:]))
        top[rows, first:] = encoded.top
        if state is None:
            state = [[t.new_zeros(len(lengths), *t.shape[1:]) for t in layer] for layer in encoded.state]
        for whole, layer in zip(state, encoded.state, strict=True):
            for target, values in zip(whole, layer, strict=True):
                target[rows] = values
    assert state is not None
    return Encoded(top=top, mask=batch.mask, state=tuple(map(tuple, state)))


def with_fresh_top(source: Encoder, copied: int, seed: int) -> Encoder:
    """Copy the first `copied` layer groups of `source` into a new encoder; the layers above are initialised for `seed`.

    The fresh weights are those of the encoder's constructor after `torch.manual_seed(seed)`, whatever the number of
    groups copied; torch's random state and `source` are unchanged, and no weights are shared. This is "AnB" of Yosinski
    et al. 2014 (arXiv:1411.1792), with layer groups in place of layers.

    Raises:
        ValueError: The encoder does not have that many groups.
    """
    groups = source.layer_groups()
    if not 0 <= copied <= len(groups):
        raise ValueError(f"cannot copy {copied} of {len(groups)} layer groups")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = type(source)(source.config)
    with torch.no_grad():
        for target, group in zip(encoder.layer_groups()[:copied], groups[:copied], strict=True):
            for parameter, value in zip(target.parameters, group.parameters, strict=True):
                parameter.copy_(value)
    return encoder
