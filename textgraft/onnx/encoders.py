"""Each family of encoders as ONNX operators: ids and mask (B, T) to every layer, and what a pooler says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onnx import TensorProto

from textgraft.encoders.awd_lstm import AWDLSTM
from textgraft.encoders.base import Encoder
from textgraft.encoders.bert import BERT
from textgraft.encoders.flair import Flair
from textgraft.encoders.gpt import GPT
from textgraft.nn.qrnn import QRNNLayer
from textgraft.onnx.graph import Graph
from textgraft.onnx.layers import attention, layer_norm, lengths_of, linear, lstm, positions, qrnn

Read = tuple[list[str], str | None]
"""The layers (B, T, D_l), bottom (embeddings) -> top, and the pooled vector (B, D), if there is one."""


def awd_lstm(g: Graph, encoder: Any, ids: str, mask: str, segments: str | None) -> Read:
    x = g("Gather", g.weight(encoder.embedding.weight * encoder.config.input_scale), ids)
    return _recurrent(g, encoder, x, mask), None


def flair(g: Graph, encoder: Any, ids: str, mask: str, segments: str | None) -> Read:
    layers = _recurrent(g, encoder, g("Gather", g.weight(encoder.embedding.weight), ids), mask)
    if encoder.projection is not None:
        layers[-1] = linear(g, encoder.projection, layers[-1])
    return layers, None


def _recurrent(g: Graph, encoder: Any, x: str, mask: str) -> list[str]:
    kept, lengths = [x], lengths_of(g, mask)
    x = g("Transpose", x, perm=[1, 0, 2])
    for layer in encoder.layers:
        x = (qrnn if isinstance(layer, QRNNLayer) else lstm)(g, layer, x, lengths, encoder.direction)
        kept.append(g("Transpose", x, perm=[1, 0, 2]))
    return kept


def bert(g: Graph, encoder: Any, ids: str, mask: str, segments: str | None) -> Read:
    x = g("Gather", g.weight(encoder.embedding.weight), ids)
    x = g("Add", x, g("Gather", g.weight(encoder.positions.weight), positions(g, ids)))
    if encoder.segments is not None:
        assert segments is not None
        table = g.weight(encoder.segments.weight)
        of_pair = g("Min", segments, encoder.config.num_segments - 1)
        x = g("Add", x, g("Gather", table, of_pair))
    x = layer_norm(g, encoder.embedding_norm, x)
    kept, seen = [x], g("Unsqueeze", mask, [1, 2])
    for layer in encoder.layers:
        x = layer_norm(g, layer.attention_norm, g("Add", x, attention(g, layer.attention, x, seen)))
        widened = g("Gelu", linear(g, layer.feed_forward, x))
        x = layer_norm(g, layer.output_norm, g("Add", x, linear(g, layer.output, widened)))
        kept.append(x)
    if encoder.pooler is None:
        return kept, None
    return kept, g("Tanh", linear(g, encoder.pooler, g("Gather", x, 0, axis=1)))


def gpt(g: Graph, encoder: Any, ids: str, mask: str, segments: str | None) -> Read:
    config = encoder.config
    counted = g("CumSum", g("Cast", mask, to=TensorProto.INT64), 1)
    places = g("Max", g("Sub", counted, 1), 0)
    x = g("Gather", g.weight(encoder.embedding.weight), ids)
    x = g("Add", x, g("Gather", g.weight(encoder.positions.weight), places))
    kept, row = [x], positions(g, ids)
    back = g("Sub", g("Unsqueeze", row, [1]), g("Unsqueeze", row, [0]))
    real = g("Unsqueeze", mask, [1, 2])
    dense = g("And", g("GreaterOrEqual", back, 0), real)
    near = g("And", dense, g("Less", back, config.window)) if config.attention != "dense" else dense
    for index, layer in enumerate(encoder.layers):
        seen = near if encoder._is_banded(index) else dense
        y = layer_norm(g, layer.attention_norm, x) if layer.pre else x
        x = g("Add", x, attention(g, layer.attention, y, seen))
        x = x if layer.pre else layer_norm(g, layer.attention_norm, x)
        y = layer_norm(g, layer.feed_forward_norm, x) if layer.pre else x
        y = linear(g, layer.narrow, g("Gelu", linear(g, layer.widen, y), approximate="tanh"))
        x = g("Add", x, y)
        x = x if layer.pre else layer_norm(g, layer.feed_forward_norm, x)
        kept.append(x)
    if encoder.norm is not None:
        kept[-1] = layer_norm(g, encoder.norm, x)
    return kept, None


ENCODERS: dict[type[Encoder], Callable[[Graph, Any, str, str, str | None], Read]] = {
    AWDLSTM: awd_lstm,
    Flair: flair,
    BERT: bert,
    GPT: gpt,
}
