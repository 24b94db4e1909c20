"""ModernBERT: a bidirectional encoder with rotary positions, and local attention in most layers.

Every third layer, the first one included, attends to the whole text; the others to 64 positions on either side, with
faster rotations. Blocks normalise before attention and before a GeGLU feed-forward layer ("pre-norm"), but for the
first one's attention, whose input is normalised already. No layer has a bias. Only the output layer of a language model
or classifier does.

Source: Warner et al. 2024, arXiv:2412.13663. Differs from the published code in attention, for which the texts of a
batch are padded to the same length, where that code joins them into one sequence; all other layers leave out the
padding as there (nn.unpadding).
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
from textgraft.encoders.base import ONE_LAYER, Encoded, Encoder, LayerGroup, State
from textgraft.nn.attention import surrounding
from textgraft.nn.cpu.precision import Linear
from textgraft.nn.dropout import dropout
from textgraft.nn.embedding import Embedding
from textgraft.nn.gated import GatedFeedForward
from textgraft.nn.pooling import POOLINGS
from textgraft.nn.rotary import Rotation, frequencies, rotation
from textgraft.nn.rotary_attention import RotaryAttention
from textgraft.nn.unpadding import Unpadding, padded, unpadded

POOLERS = ("first", "mean")
MIN_WINDOWS = 6
"""Length of a text, in windows, from which local attention is faster in blocks: with 8 in 0.6 of the time of a mask
over the whole text, with 32 in a ninth.
"""


@dataclass(frozen=True)
class ModernBERTConfig:
    """Shape and dropouts of a ModernBERT; the defaults are ModernBERT-base.

    Args:
        embedding_dim: Width D of every layer.
        feed_forward_dim: Width of the gate of a feed-forward layer.
        global_every: Layers 1, 1 + n, 1 + 2n, … attend to the whole text; with 1 all do.
        window: Positions on either side that the other layers attend to.
        global_rotary_base: Base of the rotary positions (nn.rotary) of layers that attend to the whole text.
        local_rotary_base: The same of the other layers.
        pooler: "first" or "mean": add a transform (dense layer, GELU, layer norm) of that pooling of the text; False:
            none.
        transform: Add a transform of every position on top, as the published taggers have.
        hidden_dropout: Dropout inside the feed-forward layers.
        attention_dropout: Dropout of the attention weights, and of what attention adds.

    Raises:
        UserError: A value is impossible.
    """

    vocab_size: int
    embedding_dim: int = 768
    num_layers: int = 22
    num_heads: int = 12
    feed_forward_dim: int = 1152
    max_length: int = 8192
    global_every: int = 3
    window: int = 64
    global_rotary_base: float = 160_000.0
    local_rotary_base: float = 10_000.0
    pooler: str | Literal[False] = False
    transform: bool = False
    embedding_dropout: float = 0.0
    hidden_dropout: float = 0.0
    attention_dropout: float = 0.0
    layer_norm_eps: float = 1e-5

    def __post_init__(self) -> None:
        if self.num_heads < 1 or self.embedding_dim % self.num_heads:
            message = f"{self.num_heads} heads cannot share a width of {self.embedding_dim} evenly."
            raise UserError(message, where="num_heads", remedy="Choose a num_heads that divides embedding_dim.")
        if self.pooler and self.pooler not in POOLERS:
            raise UserError(f"unknown pooler '{self.pooler}'.", remedy=did_you_mean(str(self.pooler), POOLERS))
        for name in ("global_every", "window"):
            if getattr(self, name) < 1:
                raise UserError(f"{getattr(self, name)} is out of range.", where=name, remedy="Give 1 or more.")

    def is_global(self, index: int) -> bool:
        """True if the layer of this index attends to the whole text."""
        return index % self.global_every == 0


class Block(nn.Module):
    """Attention and a GeGLU feed-forward layer, each added to its input; the first block does not normalise its own."""

    def __init__(self, config: ModernBERTConfig, *, first: bool) -> None:
        super().__init__()
        width, heads = config.embedding_dim, config.num_heads
        self.dropout = config.attention_dropout
        self.attention_norm = None if first else _norm(config)
        self.attention = RotaryAttention(width, heads, heads, width // heads, dropout=config.attention_dropout)
        self.feed_forward_norm = _norm(config)
        self.feed_forward = GatedFeedForward(width, config.feed_forward_dim, "gelu", dropout=config.hidden_dropout)

    def forward(
        self, x: Tensor, mask: Tensor | None, by: Rotation, window: int | None, unpadding: Unpadding | None
    ) -> Tensor:
        """x (B, T, D) -> (B, T, D), or (N, D) -> (N, D); the other arguments as in `RotaryAttention`."""
        y = x if self.attention_norm is None else self.attention_norm(x)
        attended, _ = self.attention(y, mask, by, window=window, unpadding=unpadding)
        x = x + dropout(attended, self.dropout, self.training)
        added: Tensor = x + self.feed_forward(self.feed_forward_norm(x))
        return added


class Transform(nn.Module):
    """A dense layer without a bias, an exact GELU and a layer norm: the published head below its output layer."""

    def __init__(self, config: ModernBERTConfig) -> None:
        super().__init__()
        self.dense = Linear(config.embedding_dim, config.embedding_dim, bias=False)
        self.norm = _norm(config)

    def forward(self, x: Tensor) -> Tensor:
        """x (…, D) -> (…, D)."""
        normed: Tensor = self.norm(F.gelu(self.dense(x)).to(x.dtype))
        return normed


def _norm(config: ModernBERTConfig) -> nn.LayerNorm:
    return nn.LayerNorm(config.embedding_dim, eps=config.layer_norm_eps, bias=False)


class ModernBERT(Encoder):
    """Token ids to one vector a position, from both sides; also one a text if there is a pooler.

    Padding is on the right. Weights start normal with standard deviation 0.02, and those that end a residual branch
    with 0.02 / √(2 layers).
    """

    config: ModernBERTConfig
    direction = "both"
    recurrent = False
    method = "modernbert"

    def __init__(self, config: ModernBERTConfig) -> None:
        super().__init__()
        self.config, self.output_dim, self.max_length = config, config.embedding_dim, config.max_length
        self.embedding = Embedding(config.vocab_size, config.embedding_dim)
        self.embedding_norm = _norm(config)
        self.layers = nn.ModuleList(Block(config, first=i == 0) for i in range(config.num_layers))
        self.norm = _norm(config)
        self.transform = Transform(config) if config.transform else None
        self.pooler = Transform(config) if config.pooler else None
        self._init_weights()

    @torch.no_grad()
    def _init_weights(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
        for module in self.modules():
            if isinstance(module, Block):
                for last in (module.attention.output, module.feed_forward.narrow):
                    last.weight /= math.sqrt(2 * self.config.num_layers)

    def forward(self, batch: Batch, state: State | None = None, *, keep: Literal["top", "all"] = "top") -> Encoded:
        """Encode (B, T) ids as (B, T, D). `state` is not used.

        Raises:
            UserError: A text is longer than the model's maximum length.
        """
        config, length = self.config, batch.ids.shape[1]
        if length > config.max_length:
            message = f"a text of {length} tokens is longer than the {config.max_length} positions that this model has."
            raise UserError(message, remedy=f"Cut texts to at most {config.max_length} tokens.")
        unpadding = Unpadding.where_it_pays(batch.mask)
        x = self.embedding_norm(unpadded(self.embedding(batch.ids), unpadding))
        x = dropout(x, config.embedding_dropout, self.training)
        kept, masks, rotations = [x], self._masks(batch.mask), self._rotations(length, batch.ids.device)
        for index, layer in enumerate(self.layers):
            mask, window = masks[config.is_global(index)]
            x = layer(x, mask, rotations[config.is_global(index)], window, unpadding)
            kept.append(x)
        x = self.norm(x)
        x = kept[-1] = x if self.transform is None else self.transform(x)
        layers = tuple(padded(one, unpadding) for one in (kept if keep == "all" else [x]))
        top = layers[-1]
        pooled = None
        if self.pooler is not None:
            pooled = self.pooler(POOLINGS[str(config.pooler)](top, batch.mask, "both"))
        return Encoded(top=top, mask=batch.mask, layers=layers if keep == "all" else (), pooled=pooled)

    def _masks(self, mask: Tensor) -> dict[bool, tuple[Tensor | None, int | None]]:
        """Attention masks of global layers (True) and of local ones (False), None where all may attend to all; and the
        window of local layers, where they are computed in blocks.
        """
        length, window = mask.shape[1], self.config.window
        # Without padding no mask is needed; on a GPU the test would force a synchronisation.
        unpadded = mask.device.type == "cpu" and bool(mask.all())
        real = None if unpadded else mask[:, None, None, :]
        if length <= window + 1:
            return {True: (real, None), False: (real, None)}
        if length >= MIN_WINDOWS * window:
            everywhere = mask.new_ones(1, 1, 1, length) if real is None else real
            return {True: (real, None), False: (everywhere, window)}
        near = surrounding(length, window, mask.device)[None, None]
        return {True: (real, None), False: (near if real is None else near & real, None)}

    def _rotations(self, length: int, device: torch.device) -> dict[bool, Rotation]:
        """Rotations (T, d / 2) of global layers (True) and of local ones (False)."""
        config, positions = self.config, torch.arange(length, device=device)
        bases = {True: config.global_rotary_base, False: config.local_rotary_base}
        width = config.embedding_dim // config.num_heads
        return {key: rotation(positions, frequencies(width, base, device=device)) for key, base in bases.items()}

    def classifier(self) -> dict[str, Any]:
        """One linear layer on the pooler's output, or on the mean: the first position of a long text sees little of it
        in local layers.
        """
        pooling = "pooled" if self.pooler is not None else "mean"
        return {**ONE_LAYER, "pooling": pooling, "input_dropout": 0.1}

    def masked_language_model(self) -> dict[str, Any]:
        """A transform without biases, with the epsilon of the encoder's norms."""
        return {"transform_bias": False, "layer_norm_eps": self.config.layer_norm_eps}

    def layer_groups(self) -> list[LayerGroup]:
        """The embedding, the blocks, the norm and the transform at the top with the last of them, and the pooler."""
        parts: list[list[nn.Module]] = [[self.embedding, self.embedding_norm], *([layer] for layer in self.layers)]
        parts[-1] += [self.norm, *([] if self.transform is None else [self.transform])]
        names = ["embedding", *(f"layer {i + 1}" for i in range(len(self.layers)))]
        groups = [
            LayerGroup(name, tuple(p for module in part for p in module.parameters()))
            for name, part in zip(names, parts, strict=True)
        ]
        return groups if self.pooler is None else [*groups, LayerGroup("pooler", tuple(self.pooler.parameters()))]
