"""GPT, GPT-2 and the attention patterns of GPT-3.

A left-to-right Transformer decoder: token and learned position embeddings, blocks of masked self-attention and a
feed-forward layer four times as wide, each with a residual connection. GPT normalises after each of these ("post");
GPT-2 before each, once more at the top, and initialises the weights that end a residual branch smaller ("pre"). GPT-3
is GPT-2 with every other layer locally banded. GELU is the tanh approximation that all three were trained with.

Source: Radford et al. 2018; Radford et al. 2019; Brown et al. 2020. Differs from the papers in one thing: all weights
start from N(0, 0.02), positions too, where GPT-2's code has 0.01.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from textgraft.core.errors import UserError, did_you_mean
from textgraft.data.batch import Batch
from textgraft.data.sequences import Direction
from textgraft.encoders.base import ONE_LAYER, Encoded, Encoder, LayerGroup, State
from textgraft.nn.attention import Attention, banded, causal
from textgraft.nn.cpu.precision import Linear
from textgraft.nn.dropout import dropout
from textgraft.nn.embedding import Embedding
from textgraft.nn.gelu import gelu

NORMS = ("post", "pre")
PATTERNS = ("dense", "banded", "alternating")
CACHE_ROOM = 128
"""Free positions at the end of the key-value cache of a text in generation, before it is copied into a larger one."""


@dataclass(frozen=True)
class GPTConfig:
    """Shape and dropouts of a GPT; the defaults are the smallest GPT-2.

    Args:
        norm: "post" (GPT) or "pre" (GPT-2 and GPT-3).
        attention: "dense"; "banded", where a layer attends to `window` positions including the current one; or
            "alternating", where layers 2, 4, 6, … are banded.
        hidden_dropout: Dropout of each residual branch.
    """

    vocab_size: int
    embedding_dim: int = 768
    num_layers: int = 12
    num_heads: int = 12
    max_length: int = 1024
    norm: Literal["post", "pre"] = "pre"
    attention: Literal["dense", "banded", "alternating"] = "dense"
    window: int = 256
    embedding_dropout: float = 0.1
    hidden_dropout: float = 0.1
    attention_dropout: float = 0.1
    layer_norm_eps: float = 1e-5


class Block(nn.Module):
    """Attention and a feed-forward layer, each with a residual connection."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        width = config.embedding_dim
        self.pre, self.dropout = config.norm == "pre", config.hidden_dropout
        self.attention = Attention(width, config.num_heads, dropout=config.attention_dropout)
        self.attention_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.widen = Linear(width, 4 * width)
        self.narrow = Linear(4 * width, width)
        self.feed_forward_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)

    def forward(
        self, x: Tensor, mask: Tensor, past: tuple[Tensor, ...], start: int
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """x (B, T, D) -> the same shape, and the keys and values of all positions, `start` of `past` first."""
        y = self.attention_norm(x) if self.pre else x
        y, cache = self.attention(y, mask, (past[0], past[1]) if past else None, start)
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
        self.config, self.output_dim, self.max_length = config, config.embedding_dim, config.max_length
        self.embedding = Embedding(config.vocab_size, config.embedding_dim)
        self.positions = nn.Embedding(config.max_length, config.embedding_dim)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.num_layers))
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
        """The empty state: ((mask (rows, 0),), (), … one for each layer)."""
        empty = torch.ones(rows, 0, dtype=torch.bool, device=self.embedding.weight.device)
        return ((empty,), *((),) * self.config.num_layers)

    def with_room(self, state: State) -> State:
        """Keys and values with free positions at the end, if there are none: the caller may write there, and nobody
        else.

        Most tokens then need no copy of the whole cache.
        """
        (before,), *caches = state
        filled = before.shape[1]
        if caches[0][0].shape[2] > filled:
            return state
        longer = (0, 0, 0, CACHE_ROOM)
        return ((before,), *(tuple(F.pad(part[:, :, :filled], longer) for part in cache) for cache in caches))

    def forward(self, batch: Batch, state: State | None = None, *, keep: Literal["top", "all"] = "top") -> Encoded:
        """Encode (B, T) ids as (B, T, D); a state is returned only where one is passed in (`initial_state` begins).

        The state is the mask (B, S) of the S positions so far and each layer's keys and values (B, H, S or more, D /
        H): it grows with the text, a cost that training windows do not need.

        Raises:
            UserError: A text has more than `max_length` tokens.
        """
        config, steps = self.config, batch.ids.shape[1]
        (before,), *caches = state if state is not None else ((batch.mask[:, :0],), *((),) * config.num_layers)
        real = torch.cat([before, batch.mask], dim=1)
        start = before.shape[1]
        x = self.embedding(batch.ids) + self.positions(self._position_ids(real)[:, start:])
        x = dropout(x, config.embedding_dropout, self.training)
        masks = self._attention_masks(steps, real)
        kept, new_state = [x], [(real,)]
        for index, (layer, past) in enumerate(zip(self.layers, caches, strict=True)):
            x, cache = layer(x, masks[self._is_banded(index)], past, start)
            new_state.append(cache)
            kept.append(x)
        if self.norm is not None:
            x = kept[-1] = self.norm(x)
        dtype = self.embedding.weight.dtype  # bfloat16 is used between layers only
        layers = tuple(h.to(dtype) for h in kept) if keep == "all" else ()
        out = tuple(new_state) if state is not None else None
        return Encoded(top=x.to(dtype), mask=batch.mask, layers=layers, state=out)

    def _position_ids(self, real: Tensor) -> Tensor:
        """Position ids (B, S) over real tokens; arbitrary at padding, which is masked."""
        maximum = self.config.max_length
        if real.shape[1] > maximum and (longest := int(real.sum(dim=1).max())) > maximum:
            raise UserError(
                f"a text of {longest:,} tokens is longer than the {maximum:,} positions of this model.",
                remedy=f"Cut it to {maximum:,} tokens (max_tokens, where there is such an option).",
            )
        return (real.cumsum(dim=1) - 1).clamp(min=0, max=maximum - 1)

    def _is_banded(self, index: int) -> bool:
        return self.config.attention == "banded" or (self.config.attention == "alternating" and index % 2 == 1)

    def _attention_masks(self, steps: int, real: Tensor) -> dict[bool, Tensor]:
        """Attention masks (B, 1, steps, S) of the last `steps` positions, for banded layers and for dense ones."""
        patterns = {False: causal(steps, real.shape[1], real.device)}
        if self.config.attention != "dense":
            patterns[True] = banded(steps, real.shape[1], self.config.window, real.device)
        return {is_banded: pattern & real[:, None, None, :] for is_banded, pattern in patterns.items()}

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
