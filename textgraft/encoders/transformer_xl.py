"""Transformer-XL: a Transformer with a memory of the text before its window.

Each layer attends to its own window and to the layer below at the last positions before it, the memory, without
gradients. Since a window may begin anywhere in a text, positions are relative: a score has four terms, of content, of
distance, and of two biases u and v that replace the query in either (§3.3).

Source: Dai et al. 2019, arXiv:1901.02860. Differences from the published code: the state before the beginning of a text
is empty and masked, where that of the TensorFlow code is zeros that are attended to; memories contain a row's real
positions without padding; and the last dropout is in the language-model head.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from textgraft.core.errors import UserError, did_you_mean
from textgraft.data.batch import Batch
from textgraft.data.sequences import Direction
from textgraft.encoders.base import Encoded, Encoder, LayerGroup, State
from textgraft.nn.attention import banded, causal
from textgraft.nn.cpu.precision import Linear, cast_once, compute_dtype
from textgraft.nn.dropout import dropout
from textgraft.nn.embedding import AdaptiveEmbedding

NORMS = ("post", "pre")


@dataclass(frozen=True)
class TransformerXLConfig:
    """Shape, memory and dropouts of a Transformer-XL; the defaults are the base model's.

    `memory_length`, `eval_memory_length`, `same_length` and `clamp_length` may change without new weights.

    Args:
        hidden_dim: Inner width of a feed-forward layer.
        head_dim: Width of a head (default: embedding_dim / num_heads).
        memory_length: Number of positions in memory in training.
        eval_memory_length: The same outside training (default: as in training).
        same_length: A position attends to itself and the memory_length - 1 before it, so that all positions of a window
            have the same context length.
        clamp_length: Distances above it count as that (§4, "we choose a larger memory"; 0: none do).
        norm: "post" or "pre".
        shared_biases: All layers share u and v, else each layer has its own (the code's `untie_r`).
        cutoffs: Cutoffs of an adaptive embedding (nn/embedding.py has `div_value` and `project_first`); token ids must
            then be sorted by falling frequency.
        embedding_dropout: Dropout of the embeddings and of the distance vectors.

    Raises:
        UserError: A value is impossible.
    """

    vocab_size: int
    embedding_dim: int = 410
    hidden_dim: int = 2100
    num_layers: int = 16
    num_heads: int = 10
    head_dim: int | None = None
    memory_length: int = 150
    eval_memory_length: int | None = None
    same_length: bool = False
    clamp_length: int = 0
    norm: Literal["post", "pre"] = "post"
    shared_biases: bool = True
    cutoffs: list[int] = field(default_factory=list)
    div_value: float = 1.0
    project_first: bool = False
    embedding_dropout: float = 0.1
    hidden_dropout: float = 0.1
    attention_dropout: float = 0.0
    layer_norm_eps: float = 1e-5

    def __post_init__(self) -> None:
        object.__setattr__(self, "cutoffs", list(self.cutoffs))  # JSON returns lists
        if self.norm not in NORMS:
            raise UserError(f"unknown norm '{self.norm}'.", remedy=did_you_mean(self.norm, NORMS))
        if self.embedding_dim % 2:
            message = f"{self.embedding_dim} is odd; distance vectors have as many sines as cosines."
            raise UserError(message, where="embedding_dim", remedy="Give an even number.")
        if self.num_heads < 1 or (self.head_dim is None and self.embedding_dim % self.num_heads):
            message = f"{self.num_heads} heads do not divide a width of {self.embedding_dim}."
            raise UserError(message, where="num_heads", remedy="Choose another number of heads, or give head_dim.")
        minima = {"memory_length": int(self.same_length), "clamp_length": 0}
        minima |= {} if self.eval_memory_length is None else {"eval_memory_length": int(self.same_length)}
        for name, minimum in minima.items():
            if getattr(self, name) < minimum:
                raise UserError(
                    f"{getattr(self, name)} is out of range.", where=name, remedy=f"Give {minimum} or more."
                )

    def remembered(self, training: bool) -> int:
        """Number of positions in memory."""
        return self.memory_length if training or self.eval_memory_length is None else self.eval_memory_length


def distance_vectors(distances: Tensor, dim: int) -> Tensor:
    """Distances (S,) -> (S, D): D / 2 sines, then as many cosines (Vaswani et al. 2017, §3.5, interleave them)."""
    frequencies = 10_000 ** -(torch.arange(0, dim, 2, device=distances.device, dtype=distances.dtype) / dim)
    angles = distances[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


def shifted(scores: Tensor) -> Tensor:
    """Scores by distance (…, T, S), column k for S - 1 - k, -> scores by position (…, T, S) (appendix B).

    Query i of the last T of S positions has key j at the distance S - T + i - j, so its row moves by T - 1 - i to the
    left. Entries after the query, j > S - T + i, have no distance and arbitrary values.
    """
    *rest, queries, keys = scores.shape
    padded = F.pad(scores, (1, 0)).reshape(*rest, keys + 1, queries)
    return padded[..., 1:, :].reshape(*rest, queries, keys)


class RelativeAttention(nn.Module):
    """Multi-head attention to the window and the memory before it by content and distance (§3.3).

    `inputs` gives queries, keys and values, in that order, heads concatenated in each; no weight has a bias.
    """

    def __init__(self, dim: int, num_heads: int, head_dim: int, *, own_biases: bool, dropout: float = 0.0) -> None:
        super().__init__()
        width = num_heads * head_dim
        self.num_heads, self.head_dim, self.dropout = num_heads, head_dim, dropout
        self.inputs = Linear(dim, 3 * width, bias=False)
        self.distances = Linear(dim, width, bias=False)
        self.output = Linear(width, dim, bias=False)
        self.u = nn.Parameter(torch.empty(num_heads, head_dim)) if own_biases else None
        self.v = nn.Parameter(torch.empty(num_heads, head_dim)) if own_biases else None

    def forward(
        self, x: Tensor, distances: Tensor, mask: Tensor, steps: int, shared: tuple[Tensor, Tensor] | None
    ) -> Tensor:
        """x (B, S, D) with the window as its last T = `steps` positions -> (B, T, D).

        Args:
            x: Memory and window.
            distances: Vectors (S, D) of the distances S - 1, …, 0.
            mask: Bool (B, 1, T, S), True where a position may attend.
            steps: T.
            shared: u and v, where the layer has none of its own.
        """
        u, v = shared if shared is not None else (self.u, self.v)
        assert u is not None
        assert v is not None
        rows, width = len(x), self.num_heads * self.head_dim
        weight = cast_once(self.inputs.weight, compute_dtype(x))
        query_weight, key_value_weight = weight.split([width, 2 * width])  # memory positions need no queries
        query = F.linear(x[:, -steps:], query_weight).view(rows, steps, self.num_heads, self.head_dim)
        key, value = (
            F.linear(x, key_value_weight).view(rows, -1, 2, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        )
        by_distance = self.distances(distances).view(-1, self.num_heads, self.head_dim)
        # The content term, (query + u) · key, is the fused product; the distance term is its attention bias.
        scale = 1 / math.sqrt(self.head_dim)
        by_position = shifted(((query + v) * scale).transpose(1, 2) @ by_distance.permute(1, 2, 0))
        bias = by_position.masked_fill(~mask, torch.finfo(by_position.dtype).min)
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention((query + u).transpose(1, 2), key, value, bias, dropout, scale=scale)
        return self.output(mixed.transpose(1, 2).reshape(rows, steps, width))


class Block(nn.Module):
    """Attention and a feed-forward layer, each with a residual connection."""

    def __init__(self, config: TransformerXLConfig) -> None:
        super().__init__()
        width = config.embedding_dim
        self.pre, self.dropout = config.norm == "pre", config.hidden_dropout
        self.attention = RelativeAttention(
            width,
            config.num_heads,
            config.head_dim or width // config.num_heads,
            own_biases=not config.shared_biases,
            dropout=config.attention_dropout,
        )
        self.attention_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.widen = Linear(width, config.hidden_dim)
        self.narrow = Linear(config.hidden_dim, width)
        self.feed_forward_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)

    def forward(
        self, x: Tensor, memory: Tensor, distances: Tensor, mask: Tensor, shared: tuple[Tensor, Tensor] | None
    ) -> Tensor:
        """x (B, T, D) after a memory (B, M, D) of this layer's inputs -> (B, T, D)."""
        y = torch.cat([memory.to(x.dtype), x], dim=1)
        y = self.attention_norm(y) if self.pre else y
        y = self.attention(y, distances, mask, x.shape[1], shared)
        x = x + dropout(y, self.dropout, self.training)
        x = x if self.pre else self.attention_norm(x)
        y = self.feed_forward_norm(x) if self.pre else x
        y = self.narrow(dropout(F.relu(self.widen(y)), self.dropout, self.training))
        x = x + dropout(y, self.dropout, self.training)
        return x if self.pre else self.feed_forward_norm(x)


class TransformerXL(Encoder):
    """Token ids to one vector a position, each from the tokens before it in this window and in the memory.

    Padding may be on the right, and on the left of texts that begin (`begin`).
    """

    config: TransformerXLConfig
    direction: Direction = "left"
    method = "transformer-xl"

    def __init__(self, config: TransformerXLConfig) -> None:
        super().__init__()
        self.config, self.output_dim = config, config.embedding_dim
        size, width = config.vocab_size, config.embedding_dim
        clusters: dict[str, Any] = {"cutoffs": config.cutoffs, "div_value": config.div_value}
        self.embedding = (
            AdaptiveEmbedding(size, width, **clusters, project_first=config.project_first)
            if config.cutoffs
            else nn.Embedding(size, width)
        )
        self.layers = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        shape = (config.num_heads, config.head_dim or config.embedding_dim // config.num_heads)
        self.u = nn.Parameter(torch.empty(shape)) if config.shared_biases else None
        self.v = nn.Parameter(torch.empty(shape)) if config.shared_biases else None
        self._init_weights()

    @torch.no_grad()
    def _init_weights(self) -> None:
        """N(0, 0.02) for every matrix and for u and v, as in the published code; zero biases."""
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
            if isinstance(module, RelativeAttention | TransformerXL):
                for bias in (module.u, module.v):
                    if bias is not None:
                        nn.init.normal_(bias, std=0.02)

    def initial_state(self, rows: int) -> State:
        """Empty memory: ((mask (rows, M),), (zeros (rows, M, D),), … one for each layer)."""
        size, table = self.config.remembered(self.training), next(self.parameters())
        empty = torch.zeros(rows, size, dtype=torch.bool, device=table.device)
        return ((empty,), *((table.new_zeros(rows, size, self.output_dim),) for _ in self.layers))

    def begin(self, batch: Batch) -> Encoded:
        """Encode beginnings of texts. Raises UserError where there is no memory, so that there is no state to continue
        from.
        """
        if not self.config.remembered(self.training):
            message = "this model has no memory, so it cannot continue a text."
            raise UserError(message, where="eval_memory_length", remedy="Set it to 1 or more.")
        return self(batch)

    def remembers(self, tokens: int) -> bool:
        """True while the text fits into the memory."""
        return tokens <= self.config.remembered(self.training)

    def forward(self, batch: Batch, state: State | None = None, *, keep: Literal["top", "all"] = "top") -> Encoded:
        """Encode (B, T) ids as (B, T, D), with the memory of the last M positions: a state of constant size is always
        returned.

        The state is the mask of its real positions, (B, M), and for each layer its inputs there, (B, M, D), without
        gradients. A state of any length may be passed in.
        """
        config, steps = self.config, batch.ids.shape[1]
        x = self.embedding(batch.ids) * math.sqrt(config.embedding_dim)
        x = dropout(x, config.embedding_dropout, self.training)
        remembered = config.remembered(self.training)
        if state is None:
            state = ((batch.mask[:, :0],), *((x[:, :0],) for _ in self.layers))
        (before,), *memories = state
        before = before[:, max(0, before.shape[1] - remembered) :]
        real = torch.cat([before, batch.mask], dim=1)
        distances, mask = self._distances(real), self._attention_mask(steps, real, remembered)
        # The last M real positions of each row, padding before them.
        last = F.pad(real, (remembered, 0)).to(torch.int8).argsort(dim=1, stable=True)[:, steps + before.shape[1] :]
        new_state: list[tuple[Tensor, ...]] = [(F.pad(real, (remembered, 0)).gather(1, last),)]
        shared = (self.u, self.v) if self.u is not None and self.v is not None else None
        kept = [x]
        for layer, (memory,) in zip(self.layers, memories, strict=True):
            memory = memory[:, max(0, memory.shape[1] - remembered) :]
            new_state.append((self._new_memory(memory, x, last),))
            x = layer(x, memory, distances, mask, shared)
            kept.append(x)
        dtype = next(self.parameters()).dtype  # bfloat16 is used between layers only
        layers = tuple(h.to(dtype) for h in kept) if keep == "all" else ()
        return Encoded(top=x.to(dtype), mask=batch.mask, layers=layers, state=tuple(new_state))

    def _distances(self, real: Tensor) -> Tensor:
        """Vectors (S, D) of the distances S - 1, …, 0."""
        dtype = next(self.parameters()).dtype
        distances = torch.arange(real.shape[1] - 1, -1, -1, device=real.device, dtype=dtype)
        if self.config.clamp_length:
            distances = distances.clamp(max=self.config.clamp_length)
        vectors = distance_vectors(distances, self.config.embedding_dim)
        return dropout(vectors, self.config.embedding_dropout, self.training)

    def _attention_mask(self, steps: int, real: Tensor, remembered: int) -> Tensor:
        """Attention mask (B, 1, T, S) of the window."""
        keys, device = real.shape[1], real.device
        pattern = banded(steps, keys, remembered, device) if self.config.same_length else causal(steps, keys, device)
        return pattern & real[:, None, None, :]

    @torch.no_grad()
    def _new_memory(self, memory: Tensor, x: Tensor, last: Tensor) -> Tensor:
        """Columns `last` (B, M, D) of zeros, memory and window, concatenated."""
        columns = torch.cat([memory.to(x.dtype), x], dim=1)
        columns = F.pad(columns, (0, 0, last.shape[1], 0))
        return columns.gather(1, last[:, :, None].expand(-1, -1, x.shape[2]))

    def layer_groups(self) -> list[LayerGroup]:
        """The embedding with the shared biases, then the blocks."""
        shared = tuple(p for p in (self.u, self.v) if p is not None)
        groups = [LayerGroup("embedding", (*self.embedding.parameters(), *shared))]
        return groups + [LayerGroup(f"layer {i + 1}", tuple(layer.parameters())) for i, layer in enumerate(self.layers)]
