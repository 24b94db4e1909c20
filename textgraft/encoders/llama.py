"""Llama and the models built like it: Mistral, Qwen2, Qwen3, SmolLM.

A left-to-right Transformer decoder whose blocks normalise by the root mean square before attention and before a SwiGLU
feed-forward layer. Positions are rotary, and several query heads share a head of keys and values. Settings make the
others: a window of attention (Mistral), biases of queries, keys and values (Qwen2), norms of queries and keys (Qwen3),
layers without positions (SmolLM3).

Source: Touvron et al. 2023, arXiv:2302.13971 and arXiv:2307.09288; Jiang et al. 2023, arXiv:2310.06825; Yang et al.
2024, arXiv:2407.10671; Yang et al. 2025, arXiv:2505.09388. The papers have no dropout; `hidden_dropout`, of each
residual branch, is for fine-tuning.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from textgraft.core.errors import UserError, did_you_mean
from textgraft.data.batch import Batch
from textgraft.data.sequences import Direction
from textgraft.encoders.base import ONE_LAYER, Encoded, Encoder, LayerGroup, State
from textgraft.nn.attention import banded, causal
from textgraft.nn.dropout import dropout
from textgraft.nn.embedding import Embedding
from textgraft.nn.gated import GatedFeedForward
from textgraft.nn.key_value_cache import cache_with_room, empty_cache, position_ids
from textgraft.nn.rms_norm import RMSNorm
from textgraft.nn.rotary import Rotation, frequencies, rotation, validate_scaling
from textgraft.nn.rotary_attention import RotaryAttention

BIASES = ("none", "inputs", "all")


@dataclass(frozen=True)
class LlamaConfig:
    """Shape, positions and dropouts; the defaults are SmolLM-135M.

    Args:
        num_key_value_heads: Number of heads of keys and values, a divisor of num_heads.
        head_dim: Width of a head (default: embedding_dim / num_heads).
        feed_forward_dim: Width of the gate of a feed-forward layer.
        max_length: Most tokens of a text.
        rotary_base: Base of the rotary positions (nn.rotary).
        rotary_scaling: None, or how they are stretched: a type and settings of nn.rotary.SCALING_SETTINGS.
        no_positions: Indices of layers without positions, from 0.
        window: Positions that a layer attends to, the current one included (None: all).
        window_from: Index of the first layer with a window.
        attention_bias: Biases of attention: "none", of the "inputs" (queries, keys and values), or "all".
        feed_forward_bias: Biases of the feed-forward layers.
        query_key_norm: Norm queries and keys.

    Raises:
        UserError: A value is impossible.
    """

    vocab_size: int
    embedding_dim: int = 576
    num_layers: int = 30
    num_heads: int = 9
    num_key_value_heads: int = 3
    head_dim: int | None = None
    feed_forward_dim: int = 1536
    max_length: int = 2048
    rotary_base: float = 10_000.0
    rotary_scaling: dict[str, Any] | None = None
    no_positions: list[int] = field(default_factory=list)
    window: int | None = None
    window_from: int = 0
    attention_bias: Literal["none", "inputs", "all"] = "none"
    feed_forward_bias: bool = False
    query_key_norm: bool = False
    embedding_dropout: float = 0.0
    hidden_dropout: float = 0.0
    attention_dropout: float = 0.0
    norm_eps: float = 1e-5

    def __post_init__(self) -> None:
        object.__setattr__(self, "no_positions", list(self.no_positions))  # JSON returns lists
        if self.attention_bias not in BIASES:
            remedy = did_you_mean(self.attention_bias, BIASES)
            raise UserError(f"unknown attention_bias '{self.attention_bias}'.", remedy=remedy)
        if self.num_heads < 1 or (self.head_dim is None and self.embedding_dim % self.num_heads):
            message = f"{self.num_heads} heads do not divide a width of {self.embedding_dim}."
            raise UserError(message, where="num_heads", remedy="Choose another number of heads, or give head_dim.")
        if self.window is not None and self.window < 1:
            raise UserError(f"{self.window} is out of range.", where="window", remedy="Give 1 or more.")
        if self.rotary_scaling is not None:
            validate_scaling(self.rotary_scaling)

    @property
    def head_width(self) -> int:
        """Width of a head."""
        return self.head_dim or self.embedding_dim // self.num_heads

    def is_banded(self, index: int) -> bool:
        """True if the layer of this index attends to a window."""
        return self.window is not None and index >= self.window_from


class Block(nn.Module):
    """Attention and a SwiGLU feed-forward layer, each normalised before and added to its input."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        width, eps = config.embedding_dim, config.norm_eps
        self.dropout = config.hidden_dropout
        self.attention_norm = RMSNorm(width, eps=eps)
        self.attention = RotaryAttention(
            width,
            config.num_heads,
            config.num_key_value_heads,
            config.head_width,
            input_bias=config.attention_bias != "none",
            output_bias=config.attention_bias == "all",
            norm_eps=eps if config.query_key_norm else None,
            dropout=config.attention_dropout,
        )
        self.feed_forward_norm = RMSNorm(width, eps=eps)
        self.feed_forward = GatedFeedForward(width, config.feed_forward_dim, "silu", bias=config.feed_forward_bias)

    def forward(
        self, x: Tensor, mask: Tensor | None, by: Rotation | None, past: tuple[Tensor, ...], start: int
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """x (B, T, D) -> the same shape, and the keys and values of all positions, `start` of `past` first."""
        cached = (past[0], past[1]) if past else None
        attended, cache = self.attention(self.attention_norm(x), mask, by, cached, start)
        x = x + dropout(attended, self.dropout, self.training)
        return x + dropout(self.feed_forward(self.feed_forward_norm(x)), self.dropout, self.training), cache


class Llama(Encoder):
    """Token ids to one vector a position, each from the tokens before it.

    Padding may be on either side; positions are counted over real tokens. Weights start from N(0, 0.02), biases at 0.
    """

    config: LlamaConfig
    direction: Direction = "left"
    recurrent = False
    method = "llama"

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.config, self.output_dim, self.max_length = config, config.embedding_dim, config.max_length
        self.embedding = Embedding(config.vocab_size, config.embedding_dim)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.norm = RMSNorm(config.embedding_dim, eps=config.norm_eps)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def initial_state(self, rows: int) -> State:
        """The empty state (nn.key_value_cache)."""
        return empty_cache(rows, self.config.num_layers, self.embedding.weight.device)

    def with_room(self, state: State) -> State:
        """A cache with free positions at the end."""
        return cache_with_room(state)

    def forward(self, batch: Batch, state: State | None = None, *, keep: Literal["top", "all"] = "top") -> Encoded:
        """Encode (B, T) ids as (B, T, D); a state is returned only where one is passed in (`initial_state` begins).

        Raises:
            UserError: A text has more than `max_length` tokens.
        """
        config, steps = self.config, batch.ids.shape[1]
        (before,), *caches = state if state is not None else ((batch.mask[:, :0],), *((),) * config.num_layers)
        real = torch.cat([before, batch.mask], dim=1)
        start = before.shape[1]
        x = dropout(self.embedding(batch.ids), config.embedding_dropout, self.training)
        positions = position_ids(real, config.max_length)[:, start:]
        rates = frequencies(config.head_width, config.rotary_base, config.rotary_scaling, x.device)
        cos, sin = rotation(positions, rates)
        by = cos[:, None], sin[:, None]  # for all heads
        masks = self._attention_masks(steps, real)
        kept, new_state = [x], [(real,)]
        for index, (layer, past) in enumerate(zip(self.layers, caches, strict=True)):
            own = None if index in config.no_positions else by
            x, cache = layer(x, masks[config.is_banded(index)], own, past, start)
            new_state.append(cache)
            kept.append(x)
        x = kept[-1] = self.norm(x)
        dtype = self.embedding.weight.dtype  # bfloat16 is used between layers only
        layers = tuple(h.to(dtype) for h in kept) if keep == "all" else ()
        out = tuple(new_state) if state is not None else None
        return Encoded(top=x.to(dtype), mask=batch.mask, layers=layers, state=out)

    def _attention_masks(self, steps: int, real: Tensor) -> dict[bool, Tensor | None]:
        """Attention masks (1 or B, 1, steps, S) of the last `steps` positions, for layers with a window and without.

        None where all may attend to all: for a single new token after texts without padding.
        """
        length, device, window = real.shape[1], real.device, self.config.window
        # Without padding one mask serves all rows; on a GPU the test would force a synchronisation.
        unpadded = device.type == "cpu" and bool(real.all())
        masks: dict[bool, Tensor | None] = {}
        for is_banded in (False, True) if window is not None else (False,):
            if unpadded and steps == 1 and (not is_banded or length <= (window or 0)):
                masks[is_banded] = None
                continue
            pattern = banded(steps, length, window or 0, device) if is_banded else causal(steps, length, device)
            masks[is_banded] = pattern[None, None] if unpadded else pattern & real[:, None, None, :]
        return masks

    def classifier(self) -> dict[str, Any]:
        """One linear layer without a bias on the last token's vector, as the transformers library has it."""
        return {**ONE_LAYER, "pooling": "last", "input_dropout": 0.1, "bias": False}

    def layer_groups(self) -> list[LayerGroup]:
        """The embedding, then the blocks; the norm at the top belongs to the last."""
        parts: list[list[nn.Module]] = [[self.embedding], *([layer] for layer in self.layers)]
        parts[-1].append(self.norm)
        names = ["embedding", *(f"layer {i + 1}" for i in range(len(self.layers)))]
        return [
            LayerGroup(name, tuple(p for module in part for p in module.parameters()))
            for name, part in zip(names, parts, strict=True)
        ]
