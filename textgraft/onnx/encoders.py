"""Encoder families as ONNX operators: ids and mask (B, T) to every layer, and the pooled vector.

BERT's segments (B, T) and ELMo's characters (U, C) are inputs named SEGMENTS and SPELLINGS.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from onnx import TensorProto

from textgraft.encoders.awd_lstm import AWDLSTM
from textgraft.encoders.base import Encoder
from textgraft.encoders.bert import BERT
from textgraft.encoders.cove import CoVe
from textgraft.encoders.elmo import ELMo
from textgraft.encoders.flair import Flair
from textgraft.encoders.gpt import GPT
from textgraft.encoders.llama import Llama
from textgraft.encoders.modernbert import ModernBERT
from textgraft.encoders.mpnet import MPNet, distance_buckets
from textgraft.encoders.roberta import RoBERTa
from textgraft.encoders.transformer_xl import TransformerXL
from textgraft.nn.qrnn import QRNNLayer
from textgraft.nn.rotary import frequencies
from textgraft.onnx.graph import Graph
from textgraft.onnx.layers import (
    after_blocks,
    attention,
    causal,
    characters,
    compressed_attention,
    distance_vectors,
    from_end,
    gated,
    layer_norm,
    lengths_of,
    linear,
    lstm,
    pooling,
    positions,
    projected_lstm,
    qrnn,
    relative_attention,
    rms_norm,
    rotary_attention,
    rotation,
    surrounding,
    within_blocks,
)

SEGMENTS, SPELLINGS = "segments", "spellings"
Read = tuple[list[str], str | None]
"""The layers (B, T, D_l), bottom (embeddings) to top, and the pooled vector (B, D), if there is one."""


def awd_lstm(g: Graph, encoder: Any, ids: str, mask: str) -> Read:
    """Merity et al. 2018: the scaled embedding, and each LSTM or QRNN layer."""
    x = g("Gather", g.weight(encoder.embedding.weight * encoder.config.input_scale), ids)
    return _recurrent(g, encoder, x, mask), None


def flair(g: Graph, encoder: Any, ids: str, mask: str) -> Read:
    """Akbik et al. 2018: characters and their LSTMs; a projection replaces the last layer."""
    layers = _recurrent(g, encoder, g("Gather", g.weight(encoder.embedding.weight), ids), mask)
    if encoder.projection is not None:
        layers[-1] = linear(g, encoder.projection, layers[-1])
    return layers, None


def _recurrent(g: Graph, encoder: Any, x: str, mask: str) -> list[str]:
    """The embeddings x (B, T, D) and the layers above them."""
    kept, lengths = [x], lengths_of(g, mask)
    x = g("Transpose", x, perm=[1, 0, 2])
    for layer in encoder.layers:
        x = (qrnn if isinstance(layer, QRNNLayer) else lstm)(g, layer, x, lengths, encoder.direction)
        kept.append(g("Transpose", x, perm=[1, 0, 2]))
    return kept


def bert(g: Graph, encoder: Any, ids: str, mask: str) -> Read:
    """Devlin et al. 2019 and its kin: every block, and tanh of a dense layer on the first position with a pooler."""
    x = g("Gather", g.weight(encoder.embedding.weight), ids)
    x = g("Add", x, g("Gather", g.weight(encoder.positions.weight), positions(g, ids)))
    if encoder.segments is not None:
        table = g.weight(encoder.segments.weight)
        segments = g("Min", SEGMENTS, encoder.config.num_segments - 1)
        x = g("Add", x, g("Gather", table, segments))
    x = layer_norm(g, encoder.embedding_norm, x)
    kept, attention_mask = [x], g("Unsqueeze", mask, [1, 2])
    bias = _bias_by_distance(g, encoder, ids) if isinstance(encoder, MPNet) else None
    for layer in encoder.layers:
        x = layer_norm(g, layer.attention_norm, g("Add", x, attention(g, layer.attention, x, attention_mask, bias)))
        widened = g("Gelu", linear(g, layer.feed_forward, x))
        x = layer_norm(g, layer.output_norm, g("Add", x, linear(g, layer.output, widened)))
        kept.append(x)
    if encoder.pooler is None:
        return kept, None
    return kept, g("Tanh", linear(g, encoder.pooler, g("Gather", x, 0, axis=1)))


def _bias_by_distance(g: Graph, encoder: MPNet, ids: str) -> str:
    """Bias (1, H, T, T) of each head by the distance of two positions, out of a table of all distances."""
    config = encoder.config
    distances = torch.arange(1 - config.max_length, config.max_length)
    buckets = distance_buckets(distances, config.num_buckets, config.max_distance)
    row = positions(g, ids)
    between = g("Sub", g("Unsqueeze", row, [0]), g("Unsqueeze", row, [1]))
    bias = g(
        "Gather", g.weight(encoder.distances.weight[buckets].t()), g("Add", between, config.max_length - 1), axis=1
    )
    return str(g("Unsqueeze", bias, [0]))


def gpt(g: Graph, encoder: Any, ids: str, mask: str) -> Read:
    """Radford et al. 2018 and 2019: every block, with causal attention."""
    config = encoder.config
    counted = g("CumSum", g("Cast", mask, to=TensorProto.INT64), 1)
    position_ids = g("Max", g("Sub", counted, 1), 0)
    x = g("Gather", g.weight(encoder.embedding.weight), ids)
    x = g("Add", x, g("Gather", g.weight(encoder.positions.weight), position_ids))
    kinds = [config.layer_attention(index) for index in range(config.num_layers)]
    masks: dict[str, Callable[[], str]] = {
        "dense": lambda: causal(g, mask),
        "banded": lambda: causal(g, mask, config.window),
        "local": lambda: within_blocks(g, mask, config.window),
        "compressed": lambda: after_blocks(g, mask, config.compression),
    }
    seen = {kind: masks[kind]() for kind in sorted(set(kinds))}
    kept = [x]
    for layer, kind in zip(encoder.layers, kinds, strict=True):
        y = layer_norm(g, layer.attention_norm, x) if layer.pre else x
        attended = compressed_attention if kind == "compressed" else attention
        x = g("Add", x, attended(g, layer.attention, y, seen[kind]))
        x = x if layer.pre else layer_norm(g, layer.attention_norm, x)
        y = layer_norm(g, layer.feed_forward_norm, x) if layer.pre else x
        y = linear(g, layer.narrow, g("Gelu", linear(g, layer.widen, y), approximate="tanh"))
        x = g("Add", x, y)
        x = x if layer.pre else layer_norm(g, layer.feed_forward_norm, x)
        kept.append(x)
    if encoder.norm is not None:
        kept[-1] = layer_norm(g, encoder.norm, x)
    return kept, None


def modernbert(g: Graph, encoder: Any, ids: str, mask: str) -> Read:
    """Warner et al. 2024: every block, with global or local attention; the transform at the top, and the pooler's."""
    config = encoder.config
    width = config.embedding_dim // config.num_heads
    bases = {True: config.global_rotary_base, False: config.local_rotary_base}
    rotations = {key: rotation(g, ids, frequencies(width, base)) for key, base in bases.items()}
    masks = {True: g("Unsqueeze", mask, [1, 2]), False: surrounding(g, mask, config.window)}
    x = layer_norm(g, encoder.embedding_norm, g("Gather", g.weight(encoder.embedding.weight), ids))
    kept = [x]
    for index, layer in enumerate(encoder.layers):
        y = x if layer.attention_norm is None else layer_norm(g, layer.attention_norm, x)
        is_global = config.is_global(index)
        x = g("Add", x, rotary_attention(g, layer.attention, y, rotations[is_global], masks[is_global]))
        x = g("Add", x, gated(g, layer.feed_forward, layer_norm(g, layer.feed_forward_norm, x)))
        kept.append(x)
    x = layer_norm(g, encoder.norm, x)
    kept[-1] = x if encoder.transform is None else _transformed(g, encoder.transform, x)
    if encoder.pooler is None:
        return kept, None
    return kept, _transformed(g, encoder.pooler, pooling(g, config.pooler, kept[-1], mask, "both"))


def _transformed(g: Graph, transform: Any, x: str) -> str:
    return layer_norm(g, transform.norm, g("Gelu", linear(g, transform.dense, x)))


def llama(g: Graph, encoder: Any, ids: str, mask: str) -> Read:
    """Touvron et al. 2023: every block, with causal attention."""
    config = encoder.config
    by = rotation(g, ids, frequencies(config.head_width, config.rotary_base, config.rotary_scaling))
    masks = {False: causal(g, mask)}
    if config.window is not None:
        masks[True] = causal(g, mask, config.window)
    x = g("Gather", g.weight(encoder.embedding.weight), ids)
    kept = [x]
    for index, layer in enumerate(encoder.layers):
        own = None if index in config.no_positions else by
        y = rms_norm(g, layer.attention_norm, x)
        x = g("Add", x, rotary_attention(g, layer.attention, y, own, masks[config.is_banded(index)]))
        x = g("Add", x, gated(g, layer.feed_forward, rms_norm(g, layer.feed_forward_norm, x)))
        kept.append(x)
    kept[-1] = rms_norm(g, encoder.norm, x)
    return kept, None


def transformer_xl(g: Graph, encoder: Any, ids: str, mask: str) -> Read:
    """Dai et al. 2019: a text is one window without a memory, as in prediction."""
    config = encoder.config
    with torch.no_grad():  # an adaptive embedding becomes a single table
        table = encoder.embedding(torch.arange(config.vocab_size)) * math.sqrt(config.embedding_dim)
    x = g("Gather", g.weight(table), ids)
    kept = [x]
    attention_mask = causal(g, mask, config.remembered(training=False) if config.same_length else None)
    distances = distance_vectors(g, ids, config.embedding_dim, config.clamp_length)
    for layer in encoder.layers:
        block_attention = layer.attention
        u, v = (encoder.u, encoder.v) if config.shared_biases else (block_attention.u, block_attention.v)
        y = layer_norm(g, layer.attention_norm, x) if layer.pre else x
        x = g("Add", x, relative_attention(g, block_attention, y, distances, attention_mask, g.weight(u), g.weight(v)))
        x = x if layer.pre else layer_norm(g, layer.attention_norm, x)
        y = layer_norm(g, layer.feed_forward_norm, x) if layer.pre else x
        x = g("Add", x, linear(g, layer.narrow, g("Relu", linear(g, layer.widen, y))))
        x = x if layer.pre else layer_norm(g, layer.feed_forward_norm, x)
        kept.append(x)
    return kept, None


def cove(g: Graph, encoder: Any, ids: str, mask: str) -> Read:
    """McCann et al. 2017: bidirectional LSTMs over the words, and the words beside the last layer."""
    words, lengths = g("Gather", g.weight(encoder.embedding.weight), ids), lengths_of(g, mask)
    kept, x = [words], g("Transpose", words, perm=[1, 0, 2])
    for layer in encoder.layers:
        sides = (lstm(g, layer.forward_lstm, x, lengths, "left"), lstm(g, layer.backward_lstm, x, lengths, "right"))
        x = g("Concat", *sides, axis=2)
        kept.append(g("Transpose", x, perm=[1, 0, 2]))
    return [*kept[:-1], g("Concat", words, kept[-1], axis=2)], None


def elmo(g: Graph, encoder: Any, ids: str, mask: str) -> Read:
    """Peters et al. 2018: words as characters, and independent LSTMs of both directions."""
    words = g("Gather", characters(g, encoder.characters, SPELLINGS), ids)
    kept, lengths = [g("Concat", words, words, axis=2)], lengths_of(g, mask)
    left = g("Transpose", words, perm=[1, 0, 2])
    sides = [left, from_end(g, left, lengths)]
    for number, pair in enumerate(zip(encoder.forwards, encoder.backwards, strict=True)):
        outputs = [projected_lstm(g, layer, side) for layer, side in zip(pair, sides, strict=True)]
        adds = number > 0 and encoder.config.skip_connections
        sides = [g("Add", new, old) for new, old in zip(outputs, sides, strict=True)] if adds else outputs
        both = g("Concat", sides[0], from_end(g, sides[1], lengths), axis=2)
        kept.append(g("Transpose", both, perm=[1, 0, 2]))
    return kept, None


ENCODERS: dict[type[Encoder], Callable[[Graph, Any, str, str], Read]] = {
    AWDLSTM: awd_lstm,
    Flair: flair,
    BERT: bert,
    RoBERTa: bert,
    MPNet: bert,
    GPT: gpt,
    ModernBERT: modernbert,
    Llama: llama,
    TransformerXL: transformer_xl,
    CoVe: cove,
    ELMo: elmo,
}
