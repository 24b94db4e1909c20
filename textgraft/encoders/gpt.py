"""GPT, GPT-2 and the attention patterns of GPT-3.

A left-to-right Transformer decoder: token and learned position embeddings, blocks of masked self-attention and a
feed-forward layer four times as wide, each with a residual connection. GPT normalises after each of these ("post");
GPT-2 before each, once more at the top, and initialises the weights that end a residual branch smaller ("pre"). GPT-3
is GPT-2 with every other layer locally banded. GELU is the tanh approximation that all three were trained with. For
long texts there are local and memory-compressed attention as well.

Source: Radford et al. 2018; Radford et al. 2019; Brown et al. 2020; Liu et al. 2018, arXiv:1801.10198, §4.2.4. Differs
from the papers in one thing: all weights start from N(0, 0.02), positions too, where GPT-2's code has 0.01.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from textgraft.core.errors import UserError, did_you_mean
from textgraft.data.batch import Batch
from textgraft.data.sequences import Direction
from textgraft.encoders.base import ONE_LAYER, Encoded, Encoder, LayerGroup, State
from textgraft.nn.attention import Attention, banded, causal
from textgraft.nn.block_attention import Blocks, CompressedAttention, LocalAttention
from textgraft.nn.cpu.precision import Linear
from textgraft.nn.dropout import dropout
from textgraft.nn.embedding import Embedding
from textgraft.nn.gelu import gelu
from textgraft.nn.key_value_cache import cache_with_room, empty_cache, position_ids

NORMS = ("post", "pre")
PATTERNS: dict[str, tuple[str, ...]] = {
    "dense": ("dense",),
    "banded": ("banded",),
    "alternating": ("dense", "banded"),
    "local": ("local",),
    "compressed": ("compressed",),
    "local-compressed": ("local", "compressed"),
}
"""The attention of the layers, from the bottom; the layers above repeat it."""


@dataclass(frozen=True)
class GPTConfig:
    """Shape and dropouts of a GPT; the defaults are the smallest GPT-2.

    Args:
        norm: "post" (GPT) or "pre" (GPT-2 and GPT-3).
        attention: "dense"; "banded", where a layer attends to `window` positions including the current one; "local",
            to the current block of `window` positions; "compressed", to every complete group of `compression`
            positions, as one; "alternating", where layers 2, 4, 6, … are banded and the others dense; or
            "local-compressed", where they are compressed and the others local.
        window: Positions of a band or a local block.
        compression: Positions that compressed attention makes one, kernel and stride of its convolution.
        hidden_dropout: Dropout of each residual branch.
    """

    vocab_size: int
    embedding_dim: int = 768
    num_layers: int = 12
    num_heads: int = 12
    max_length: int = 1024
    norm: Literal["post", "pre"] = "pre"
    attention: Literal["dense", "banded", "alternating", "local", "compressed", "local-compressed"] = "dense"
    window: int = 256
    compression: int = 3
    embedding_dropout: float = 0.1
    hidden_dropout: float = 0.1
    attention_dropout: float = 0.1
    layer_norm_eps: float = 1e-5

    def layer_attention(self, index: int) -> str:
        """The attention of layer `index`, counted from 0: dense, banded, local or compressed."""
        pattern = PATTERNS[self.attention]
        return pattern[index % len(pattern)]


def _new_attention(config: GPTConfig, kind: str) -> Attention:
    width, heads, dropout = config.embedding_dim, config.num_heads, config.attention_dropout
    if kind == "compressed":
        return CompressedAttention(width, heads, config.compression, dropout=dropout)
    return (LocalAttention if kind == "local" else Attention)(width, heads, dropout=dropout)


class Block(nn.Module):
    """Attention and a feed-forward layer, each with a residual connection."""

    def __init__(self, config: GPTConfig, index: int) -> None:
        super().__init__()
        width = config.embedding_dim
        self.pre, self.dropout = config.norm == "pre", config.hidden_dropout
        self.attention = _new_attention(config, config.layer_attention(index))
        self.attention_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.widen = Linear(width, 4 * width)
        self.narrow = Linear(4 * width, width)
        self.feed_forward_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)

    def forward(
        self, x: Tensor, reach: Tensor | Blocks, past: tuple[Tensor, ...], start: int
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """x (B, T, D) -> the same shape, and the keys and values so far, `start` positions of `past` first.

        `reach` is the mask of the attention, or the blocks of a local or compressed one.
        """
        y = self.attention_norm(x) if self.pre else x
        y, cache = self.attention(y, reach, past or None, start)
        x = x + dropout(y, self.dropout, self.training)
        x = x if self.pre else self.attention_norm(x)
        y = self.feed_forward_norm(x) if self.pre else x
        y = self.narrow(gelu(self.widen(y)))
        x = x + dropout(y, self.dropout, self.training)
        return x if self.pre else self.feed_forward_norm(x), cache


class GPT(Encoder):
    """Token ids to one vector a position, each from the tokens before it.

    Padding may be on either side; positions are counted over real tokens.

    Raises:
        UserError: The norm, attention pattern or window is unknown, or the number of heads does not divide the width.
    """

    config: GPTConfig
    direction: Direction = "left"
    recurrent = False
    method = "gpt"

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        for setting, value, choices in (("norm", config.norm, NORMS), ("attention", config.attention, PATTERNS)):
            if value not in choices:
                raise UserError(f"unknown {setting} '{value}'.", remedy=did_you_mean(value, choices))
        if config.num_heads < 1 or config.embedding_dim % config.num_heads:
            message = f"{config.num_heads} heads do not divide a width of {config.embedding_dim}."
            raise UserError(message, where="num_heads", remedy="Make embedding_dim a multiple of num_heads.")
        if config.attention != "dense" and config.window < 1:
            raise UserError(f"{config.window} is out of range.", where="window", remedy="Give 1 or more.")
        if config.compression < 1:
            raise UserError(f"{config.compression} is out of range.", where="compression", remedy="Give 1 or more.")
        self.config, self.output_dim, self.max_length = config, config.embedding_dim, config.max_length
        self.embedding = Embedding(config.vocab_size, config.embedding_dim)
        self.positions = nn.Embedding(config.max_length, config.embedding_dim)
        self.layers = nn.ModuleList(Block(config, index) for index in range(config.num_layers))
        self.norm = nn.LayerNorm(config.embedding_dim, eps=config.layer_norm_eps) if config.norm == "pre" else None
        self._init_weights()

    @torch.no_grad()
    def _init_weights(self) -> None:
        """N(0, 0.02), zero biases; as in GPT-2, weights at the end of residual branches are divided by √(2 layers)."""
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)
        for module in self.modules():
            if isinstance(module, Block) and module.pre:
                for layer in (module.attention.output, module.narrow):
                    layer.weight /= math.sqrt(2 * self.config.num_layers)

    def initial_state(self, rows: int) -> State:
        """The empty state (nn.key_value_cache)."""
        return empty_cache(rows, self.config.num_layers, self.embedding.weight.device)

    def with_room(self, state: State) -> State:
        """A cache with free positions at the end; attention in blocks keeps too little to need them."""
        in_blocks = any(isinstance(layer.attention, LocalAttention) for layer in self.layers)
        return state if in_blocks else cache_with_room(state)

    def forward(self, batch: Batch, state: State | None = None, *, keep: Literal["top", "all"] = "top") -> Encoded:
        """Encode (B, T) ids as (B, T, D); a state is returned only where one is passed in (`initial_state` begins).

        The state is the mask (B, S) of the S positions so far and each layer's keys and values (B, H, S or more, D /
        H): it grows with the text, a cost that training windows do not need. Local layers keep those of the current
        block alone, and compressed ones a `compression`-th of all (nn.block_attention).

        Raises:
            UserError: A text has more than `max_length` tokens.
        """
        config = self.config
        (before,), *caches = state if state is not None else ((batch.mask[:, :0],), *((),) * config.num_layers)
        real = torch.cat([before, batch.mask], dim=1)
        start = before.shape[1]
        x = self.embedding(batch.ids) + self.positions(position_ids(real, config.max_length)[:, start:])
        x = dropout(x, config.embedding_dropout, self.training)
        kinds = [config.layer_attention(index) for index in range(config.num_layers)]
        reaches = {kind: self._reach(kind, before, batch.mask, real) for kind in set(kinds)}
        kept, new_state = [x], [(real,)]
        for layer, kind, past in zip(self.layers, kinds, caches, strict=True):
            x, cache = layer(x, reaches[kind], past, start)
            new_state.append(cache)
            kept.append(x)
        if self.norm is not None:
            x = kept[-1] = self.norm(x)
        dtype = self.embedding.weight.dtype  # bfloat16 is used between layers only
        layers = tuple(h.to(dtype) for h in kept) if keep == "all" else ()
        out = tuple(new_state) if state is not None else None
        return Encoded(top=x.to(dtype), mask=batch.mask, layers=layers, state=out)

    def _reach(self, kind: str, before: Tensor, new: Tensor, real: Tensor) -> Tensor | Blocks:
        """The attention mask (B, 1, T, S) of the T new positions, or their blocks, for layers of this attention."""
        if kind in ("local", "compressed"):
            return Blocks(self.config.window if kind == "local" else self.config.compression, before, new)
        steps, keys = new.shape[1], real.shape[1]
        dense = kind == "dense"
        pattern = causal(steps, keys, real.device) if dense else banded(steps, keys, self.config.window, real.device)
        return pattern & real[:, None, None, :]

    def classifier(self) -> dict[str, Any]:
        """One linear layer on the last token's vector (Radford et al. 2018, §3.2)."""
        return {**ONE_LAYER, "pooling": "last", "input_dropout": self.config.hidden_dropout}

    def layer_groups(self) -> list[LayerGroup]:
        """The two embedding tables, then the blocks; the norm at the top belongs to the last."""
        parts: list[list[nn.Module]] = [[self.embedding, self.positions], *([layer] for layer in self.layers)]
        if self.norm is not None:
            parts[-1].append(self.norm)
        names = ["embedding", *(f"layer {i + 1}" for i in range(len(self.layers)))]
        return [
            LayerGroup(name, tuple(p for module in part for p in module.parameters()))
            for name, part in zip(names, parts, strict=True)
        ]
