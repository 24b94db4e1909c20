"""The one seam: every family of language model meets every task as an `Encoder`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from textgraft.data.batch import Batch
from textgraft.data.sequences import Direction
from textgraft.data.tags import SubwordPooling
from textgraft.nn.embedding import AdaptiveEmbedding

State = tuple[tuple[Tensor, ...], ...]
"""What an encoder hands from one window of text to the next: per layer a tuple of (B, ...) tensors.

A recurrent state, or a memory of bounded length, has one size and always comes out; training and evaluation on long
texts hand it on. One that grows with the text (a Transformer's keys and values) comes out only where one went in, so
that each window starts afresh unless somebody begins with `Encoder.initial_state`.
"""


ONE_LAYER = {"hidden_dim": 0, "batch_norm": False}
"""A classification head without a hidden layer, as the transformers were published."""


@dataclass
class Encoded:
    """What an encoder says of a batch of B texts, T positions each."""

    top: Tensor  # (B, T, D) the last layer
    mask: Tensor  # (B, T) bool, True = a real position
    layers: tuple[Tensor, ...] = ()  # every layer (B, T, D_l), bottom (embeddings) -> top, when keep="all"
    state: State | None = None  # goes in and out, is never kept on the module
    groups: Tensor | None = None  # (B,) which example each row is of, as Batch.groups; the model passes it to the head
    pooled: Tensor | None = None  # (B, D) the whole text, where the family has weights of its own for that (BERT)


@dataclass(frozen=True)
class LayerGroup:
    """A named slice of the encoder's parameters, the unit that staged fine-tuning freezes and thaws."""

    name: str
    parameters: tuple[nn.Parameter, ...]


class Encoder(nn.Module):
    """Token ids in, one vector a position out.

    `direction` says what a position may look at: "left" (what came before it), "right" (what comes after) or "both".
    `output_dim` is D, the width of `Encoded.top`. The config is a frozen dataclass that JSON can hold and the only
    constructor argument. `max_length` is how many tokens of a text it can look at (None: any number). `uses_characters`
    says that it wants words by their characters (text.character_encoding), not token ids; `recurrent` that it takes a
    step for each position, which costs the less a text the more texts go through together. `subword_pooling` is which of a word's
    pieces speaks for it, where that does not follow from the direction (data.words). `method` is what fine-tuning it is
    called in tables.
    """

    config: Any
    output_dim: int
    direction: Direction
    max_length: int | None = None
    uses_characters: ClassVar[bool] = False
    recurrent: ClassVar[bool] = True
    subword_pooling: ClassVar[SubwordPooling | None] = None
    method: ClassVar[str] = "ulmfit"

    def forward(self, batch: Batch, state: State | None = None, *, keep: Literal["top", "all"] = "top") -> Encoded:
        raise NotImplementedError

    @property
    def widths(self) -> tuple[int, ...]:
        """The width of each of `Encoded.layers`, bottom (embeddings) -> top."""
        return (self.output_dim,) * (1 + self.config.num_layers)

    def initial_state(self, rows: int) -> State:
        """What stands before the first token of `rows` texts; handed in, it asks for a state to go on from."""
        raise NotImplementedError

    def begin(self, batch: Batch) -> Encoded:
        """Read beginnings of texts padded on the left, so that all end in the last column, from where to go on."""
        return self(batch, self.initial_state(len(batch.ids)))

    def with_room(self, state: State) -> State:
        """A state of one's own to go on from token by token, where it may be written into."""
        return state

    def remembers(self, tokens: int) -> bool:
        """Whether a text that goes on from the state after so many tokens is read as if it had never been parted."""
        return True

    @property
    def compares(self) -> bool:
        """Whether its weights were made to compare whole texts by one vector each."""
        return False

    def classifier(self) -> dict[str, Any]:
        """Settings of the classification head that the family's paper puts on it, where they are not ULMFiT's."""
        return {}

    def tied(self) -> nn.Parameter | AdaptiveEmbedding:
        """What an output layer shares when it is tied: the token table (V, D), or an embedding of several tables."""
        embedding: Any = self.embedding
        return embedding if isinstance(embedding, AdaptiveEmbedding) else embedding.weight

    def layer_groups(self) -> list[LayerGroup]:
        """Bottom -> top, disjoint, covering every parameter exactly once."""
        raise NotImplementedError


def begin_by_length(encoder: Encoder, batch: Batch) -> Encoded:
    """`Encoder.begin` of a recurrent family: padding would move the state, so rows of one length are read together."""
    top = next(encoder.parameters()).new_zeros(*batch.ids.shape, encoder.output_dim)
    state: list[list[Tensor]] | None = None
    lengths = batch.mask.sum(dim=1)
    for length in lengths.unique().tolist():
        rows = (lengths == length).nonzero().squeeze(1)
        first = batch.ids.shape[1] - length
        read = encoder(Batch(ids=batch.ids[rows, first:], mask=batch.mask[rows, first:]))
        top[rows, first:] = read.top
        if state is None:
            state = [[t.new_zeros(len(lengths), *t.shape[1:]) for t in layer] for layer in read.state]
        for whole, layer in zip(state, read.state, strict=True):
            for target, values in zip(whole, layer, strict=True):
                target[rows] = values
    assert state is not None
    return Encoded(top=top, mask=batch.mask, state=tuple(map(tuple, state)))


def with_fresh_top(source: Encoder, copied: int, seed: int) -> Encoder:
    """An encoder with the first `copied` layer groups of `source`, and above them weights drawn anew for `seed`.

    The fresh weights are those that the encoder's own constructor gives after `torch.manual_seed(seed)`, whatever the
    number of groups copied; torch's random state and `source` stay as they were, and nothing is shared with it. The
    "AnB" of Yosinski et al. 2014 (arXiv:1411.1792), on layer groups where the paper has layers.

    Raises ValueError for a number of groups that the encoder does not have.
    """
    groups = source.layer_groups()
    if not 0 <= copied <= len(groups):
        raise ValueError(f"cannot copy {copied} of {len(groups)} layer groups")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = type(source)(source.config)
    with torch.no_grad():
        for target, group in zip(made.layer_groups()[:copied], groups[:copied], strict=True):
            for parameter, value in zip(target.parameters, group.parameters, strict=True):
                parameter.copy_(value)
    return made
