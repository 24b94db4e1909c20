"""The layers of nn/ as ONNX operators, in evaluation mode (without dropout)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from onnx import TensorProto
from torch import Tensor, nn

from textgraft.data.sequences import Direction
from textgraft.encoders.elmo import CharacterCNN, Highway
from textgraft.encoders.transformer_xl import RelativeAttention
from textgraft.nn.attention import Attention
from textgraft.nn.batch_norm import MAX_DEVIATIONS, BoundedBatchNorm
from textgraft.nn.block_attention import CompressedAttention
from textgraft.nn.gated import GatedFeedForward
from textgraft.nn.pooling import JOIN
from textgraft.nn.projected_lstm import ProjectedLSTMLayer
from textgraft.nn.qrnn import QRNNLayer
from textgraft.nn.recurrent import LSTMLayer
from textgraft.nn.rms_norm import RMSNorm
from textgraft.nn.rotary_attention import RotaryAttention
from textgraft.onnx.graph import Graph

LOWEST = float(torch.finfo(torch.float32).min)


def linear(g: Graph, layer: nn.Linear, x: str) -> str:
    """x (…, D) -> (…, outputs)."""
    product: str = g("MatMul", x, g.weight(layer.weight.t()))
    return product if layer.bias is None else str(g("Add", product, g.weight(layer.bias)))


def layer_norm(g: Graph, layer: nn.LayerNorm, x: str) -> str:
    """Layer norm over the last axis."""
    weights = [g.weight(w) for w in (layer.weight, layer.bias) if w is not None]
    return str(g("LayerNormalization", x, *weights, axis=-1, epsilon=layer.eps))


def rms_norm(g: Graph, layer: RMSNorm, x: str) -> str:
    """RMS norm over the last axis."""
    assert layer.eps is not None
    mean_square = g("ReduceMean", g("Mul", x, x), [-1])
    return str(g("Mul", g("Div", x, g("Sqrt", g("Add", mean_square, float(layer.eps)))), g.weight(layer.weight)))


def gated(g: Graph, layer: GatedFeedForward, x: str) -> str:
    """A gated feed-forward layer."""
    width = layer.narrow.in_features
    gate, values = g("Split", linear(g, layer.wide, x), [width, width], outputs=2, axis=2)
    gate = g("Gelu", gate) if layer.activation == "gelu" else g("Mul", gate, g("Sigmoid", gate))
    return linear(g, layer.narrow, g("Mul", gate, values))


def activation(g: Graph, name: str, x: str) -> str:
    """nn.dense.ACTIVATIONS."""
    if name == "identity":
        return x
    if name == "silu":
        return str(g("Mul", x, g("Sigmoid", x)))
    return str(g(name.capitalize(), x))


def batch_norm(g: Graph, layer: BoundedBatchNorm, x: str) -> str:
    """x (B, D) normalised with the training statistics."""
    assert layer.running_var is not None
    assert layer.running_mean is not None
    normalised = g("Div", g("Sub", x, g.weight(layer.running_mean)), g.weight((layer.running_var + layer.eps).sqrt()))
    bounded = g("Clip", normalised, -MAX_DEVIATIONS, MAX_DEVIATIONS)
    return str(g("Add", g("Mul", bounded, g.weight(layer.weight)), g.weight(layer.bias)))


def lstm(g: Graph, layer: LSTMLayer, x: str, lengths: str, direction: Direction) -> str:
    """x (T, B, D) -> (T, B, H), zeros at padding; right-to-left rows begin at the end of their text."""
    weights = [_gates_of_onnx(w)[None] for w in (layer.weight_ih, layer.weight_hh)]
    bias = _gates_of_onnx(layer.bias)[None]
    both = torch.cat([bias, torch.zeros_like(bias)], dim=1)
    named = [g.weight(w) for w in (*weights, both)]
    way = "reverse" if direction == "right" else "forward"
    count = g("Cast", lengths, to=TensorProto.INT32)
    outputs = g("LSTM", x, *named, count, hidden_size=layer.hidden_dim, direction=way)
    return str(g("Squeeze", outputs, [1]))


def _gates_of_onnx(weight: Tensor) -> Tensor:
    """Gates in ONNX's order i, o, f, g; torch's is i, f, g, o."""
    i, f, g, o = weight.chunk(4)
    return torch.cat([i, o, f, g])


def qrnn(g: Graph, layer: QRNNLayer, x: str, lengths: str, direction: Direction) -> str:
    """x (T, B, D) -> (T, B, H), as nn.qrnn."""
    if direction == "right":
        x = from_end(g, x, lengths)
    gate_inputs = x
    if layer.window == 2:
        zeros = g("Mul", g("Slice", x, [0], [1], [0]), 0.0)
        gate_inputs = g("Concat", x, g("Slice", g("Concat", zeros, x, axis=0), [0], [-1], [0]), axis=2)
    gates = g("Add", g("MatMul", gate_inputs, g.weight(layer.weight.t())), g.weight(layer.bias))
    sizes = [layer.hidden_dim] * (len(layer.bias) // layer.hidden_dim)
    z, f, *o = g("Split", gates, sizes, outputs=len(sizes), axis=2)
    z, f = g("Tanh", z), g("Sigmoid", f)
    if layer.zoneout:
        f = g("Add", g("Mul", f, 1 - layer.zoneout), layer.zoneout)
    update = g("Mul", g("Sub", 1.0, f), z)
    before = g("Squeeze", g("Mul", g("Slice", f, [0], [1], [0]), 0.0), [0])

    def forget_and_add(step: Graph, earlier: str, f: str, update: str) -> tuple[list[str], list[str]]:
        now = step("Add", step("Mul", earlier, f), update)
        return [now], [now]

    _, cell = g.scan(forget_and_add, [before], [f, update])
    h = g("Mul", cell, g("Sigmoid", o[0])) if o else cell
    return from_end(g, h, lengths) if direction == "right" else str(h)


def from_end(g: Graph, x: str, lengths: str) -> str:
    """Each row of x (T, B, D) reversed within its own length."""
    return str(g("ReverseSequence", x, lengths, time_axis=0, batch_axis=1))


def projected_lstm(g: Graph, layer: ProjectedLSTMLayer, x: str) -> str:
    """x (T, B, D) -> (T, B, P), as nn.projected_lstm: cell states and outputs are clipped."""
    projected, hidden = layer.projection.shape
    input_weight, recurrent_weight = layer.weight[:, :-projected], layer.weight[:, -projected:]
    gates = g("Add", g("MatMul", x, g.weight(input_weight.t())), g.weight(layer.bias))
    back, down = g.weight(recurrent_weight.t()), g.weight(layer.projection.t())

    def clipped(step: Graph, value: str, most: float) -> str:
        return str(step("Clip", value, -most, most)) if most else value

    def recurrence(step: Graph, h: str, c: str, gate: str) -> tuple[list[str], list[str]]:
        i, f, new, o = step("Split", step("Add", gate, step("MatMul", h, back)), [hidden] * 4, outputs=4, axis=1)
        update = step("Mul", step("Sigmoid", i), step("Tanh", new))
        c = clipped(step, step("Add", step("Mul", c, step("Sigmoid", f)), update), layer.clips[0])
        wide = step("Mul", step("Sigmoid", o), step("Tanh", c))
        h = clipped(step, step("MatMul", wide, down), layer.clips[1])
        return [h, c], [h]

    rows = g("Slice", g("Shape", x), [1], [2])
    zeros = [g("ConstantOfShape", g("Concat", rows, [width], axis=0)) for width in (projected, hidden)]
    return g.scan(recurrence, zeros, [gates])[-1]


def characters(g: Graph, layer: CharacterCNN, character_ids: str) -> str:
    """Character ids (U, C) -> a vector (U, P) of each word."""
    embedded = g("Transpose", g("Gather", g.weight(layer.embedding.weight), character_ids), perm=[0, 2, 1])
    kind = "Relu" if layer.activation is torch.relu else "Tanh"
    features = []
    for convolution in layer.filters:
        assert isinstance(convolution, nn.Conv1d)
        assert convolution.bias is not None
        convolved = g("Conv", embedded, g.weight(convolution.weight), g.weight(convolution.bias))
        features.append(g(kind, g("ReduceMax", convolved, [2], keepdims=0)))
    x = g("Concat", *features, axis=1)
    for highway in layer.highways:
        assert isinstance(highway, Highway)
        gate = g("Sigmoid", linear(g, highway.gate, x))
        new = g("Mul", gate, g("Relu", linear(g, highway.transform, x)))
        x = g("Add", new, g("Mul", g("Sub", 1.0, gate), x))
    return linear(g, layer.projection, x)


def attention(g: Graph, layer: Attention, x: str, mask: str, bias: str | None = None) -> str:
    """x (B, T, D) -> (B, T, D); positions attend where the mask, (B, 1, 1 or T, T) bool, is True.

    A `bias` (1, H, T, T) is added to the scores.
    """
    width = layer.output.out_features
    parts = g("Split", linear(g, layer.inputs, x), [width] * 3, outputs=3, axis=2)
    return _joined(g, layer, _attended(g, layer.num_heads, width, parts, mask, bias))


def compressed_attention(g: Graph, layer: CompressedAttention, x: str, mask: str) -> str:
    """x (B, T, D) -> (B, T, D), as nn.block_attention; the mask is that of `after_blocks`."""
    width = layer.output.out_features
    query, key, value = g("Split", linear(g, layer.inputs, x), [width] * 3, outputs=3, axis=2)
    size = layer.keys.in_features // width
    key, value = (
        linear(g, convolution, _grouped(g, part, size, width))
        for convolution, part in ((layer.keys, key), (layer.values, value))
    )
    attended = _attended(g, layer.num_heads, width, (query, key, value), mask)
    has_block = g("Slice", mask, [0], [1], [3])  # a position before the first complete block attends to nothing
    return _joined(g, layer, g("Where", has_block, attended, 0.0))


def _grouped(g: Graph, x: str, size: int, width: int) -> str:
    """x (B, T, D) -> (B, blocks, size D): the positions of each block as one, with zeros after the last."""
    length = g("Slice", g("Shape", x), [1], [2])
    whole = g("Mul", g("Div", g("Add", length, size - 1), size), size)
    padded = g("Pad", x, [0, 0, 0, 0, size - 1, 0], 0.0)
    return str(g("Reshape", g("Slice", padded, [0], whole, [1]), [0, -1, size * width]))


def _attended(g: Graph, heads: int, width: int, parts: Sequence[str], mask: str, bias: str | None = None) -> str:
    """Queries (B, T, D), keys and values (B, S, D) -> (B, H, T, D / H)."""
    shape = [0, 0, heads, width // heads]
    query, key, value = (g("Reshape", part, shape) for part in parts)
    query = g("Mul", g("Transpose", query, perm=[0, 2, 1, 3]), float(shape[3] ** -0.5))
    scores = g("MatMul", query, g("Transpose", key, perm=[0, 2, 3, 1]))
    scores = scores if bias is None else g("Add", scores, bias)
    weights = g("Softmax", g("Where", mask, scores, LOWEST), axis=-1)
    return str(g("MatMul", weights, g("Transpose", value, perm=[0, 2, 1, 3])))


def _joined(g: Graph, layer: Attention, attended: str) -> str:
    """Heads (B, H, T, D / H) -> the output (B, T, D) of an attention layer."""
    width = layer.output.out_features
    return linear(g, layer.output, g("Reshape", g("Transpose", attended, perm=[0, 2, 1, 3]), [0, 0, width]))


def rotation(g: Graph, ids: str, rates: Tensor) -> tuple[str, str]:
    """Cosines and sines (T, d / 2) of nn.rotary for the positions 0, 1, …."""
    row = g("Unsqueeze", g("Cast", positions(g, ids), to=TensorProto.FLOAT), [1])
    angles = g("Mul", row, g.weight(rates))
    return g("Cos", angles), g("Sin", angles)


def rotary_attention(g: Graph, layer: RotaryAttention, x: str, by: tuple[str, str] | None, mask: str) -> str:
    """x (B, T, D) -> (B, T, D), as nn.rotary_attention; `mask` as in `attention`."""
    d, heads, shared = layer.head_dim, layer.num_heads, layer.num_key_value_heads
    sizes = [heads * d, shared * d, shared * d]
    parts = g("Split", linear(g, layer.inputs, x), sizes, outputs=3, axis=2)
    query, key, value = (g("Reshape", part, [0, 0, -1, d]) for part in parts)
    if layer.query_norm is not None and layer.key_norm is not None:
        query, key = rms_norm(g, layer.query_norm, query), rms_norm(g, layer.key_norm, key)
    query, key, value = (g("Transpose", part, perm=[0, 2, 1, 3]) for part in (query, key, value))
    if by is not None:
        query, key = _rotated(g, query, d, by), _rotated(g, key, d, by)
    if heads != shared:  # query heads of a group are next to each other
        index = [head // (heads // shared) for head in range(heads)]
        key, value = (g("Gather", part, index, axis=1) for part in (key, value))
    query = g("Mul", query, float(d**-0.5))
    scores = g("MatMul", query, g("Transpose", key, perm=[0, 1, 3, 2]))
    attended = g("MatMul", g("Softmax", g("Where", mask, scores, LOWEST), axis=-1), value)
    return linear(g, layer.output, g("Reshape", g("Transpose", attended, perm=[0, 2, 1, 3]), [0, 0, heads * d]))


def _rotated(g: Graph, x: str, d: int, by: tuple[str, str]) -> str:
    cos, sin = by
    first, second = g("Split", x, [d // 2, d // 2], outputs=2, axis=3)
    turned_first = g("Sub", g("Mul", first, cos), g("Mul", second, sin))
    turned_second = g("Add", g("Mul", second, cos), g("Mul", first, sin))
    return str(g("Concat", turned_first, turned_second, axis=3))


def surrounding(g: Graph, mask: str, width: int) -> str:
    """Local mask (B, 1, T, T): at most `width` real positions on either side."""
    row = positions(g, mask)
    distance = g("Abs", g("Sub", g("Unsqueeze", row, [1]), g("Unsqueeze", row, [0])))
    return str(g("And", g("LessOrEqual", distance, width), g("Unsqueeze", mask, [1, 2])))


def relative_attention(g: Graph, layer: RelativeAttention, x: str, distances: str, mask: str, u: str, v: str) -> str:
    """x (B, T, D) without a memory -> (B, T, D), as encoders.transformer_xl; `distances` (T, D) of T - 1, …, 0."""
    width = layer.num_heads * layer.head_dim
    shape = [0, 0, layer.num_heads, layer.head_dim]
    query, key, value = (
        g("Reshape", part, shape) for part in g("Split", linear(g, layer.inputs, x), [width] * 3, outputs=3, axis=2)
    )
    by_distance = g("Reshape", linear(g, layer.distances, distances), [0, layer.num_heads, layer.head_dim])
    position_query = g("Transpose", g("Add", query, v), perm=[0, 2, 1, 3])
    scores = g("MatMul", position_query, g("Transpose", by_distance, perm=[1, 2, 0]))
    content = g("Transpose", g("Add", query, u), perm=[0, 2, 1, 3])
    scores = g("Add", _shifted(g, scores), g("MatMul", content, g("Transpose", key, perm=[0, 2, 3, 1])))
    scores = g("Where", mask, g("Mul", scores, float(layer.head_dim**-0.5)), LOWEST)
    attended = g("MatMul", g("Softmax", scores, axis=-1), g("Transpose", value, perm=[0, 2, 1, 3]))
    return linear(g, layer.output, g("Reshape", g("Transpose", attended, perm=[0, 2, 1, 3]), [0, 0, width]))


def _shifted(g: Graph, scores: str) -> str:
    """Scores (B, H, T, T) by distance -> by position: prepend a column, flatten the rows, drop the first T."""
    shape = g("Shape", scores)
    flat = g("Reshape", g("Pad", scores, [0, 0, 0, 1, 0, 0, 0, 0], 0.0), [0, 0, -1])
    length = g("Slice", shape, [2], [3], [0])
    return str(g("Reshape", g("Slice", flat, length, [1 << 60], [2]), shape))


def distance_vectors(g: Graph, ids: str, dim: int, most: int) -> str:
    """Sines and cosines (T, D) of the distances T - 1, …, 0, clamped to `most`, if that is not 0."""
    length = g("Gather", g("Shape", ids), 1)
    back = g("Sub", g("Sub", length, 1), positions(g, ids))
    back = g("Min", back, most) if most else back
    frequencies = 10_000 ** -(torch.arange(0, dim, 2) / dim)
    angles = g("Mul", g("Unsqueeze", g("Cast", back, to=TensorProto.FLOAT), [1]), g.weight(frequencies))
    return str(g("Concat", g("Sin", angles), g("Cos", angles), axis=1))


def causal(g: Graph, mask: str, width: int | None = None) -> str:
    """Causal mask (B, 1, T, T) of real positions; with a `width` at most that many, the current one included."""
    row = positions(g, mask)
    back = g("Sub", g("Unsqueeze", row, [1]), g("Unsqueeze", row, [0]))
    allowed = g("GreaterOrEqual", back, 0)
    allowed = allowed if width is None else g("And", allowed, g("Less", back, width))
    return str(g("And", allowed, g("Unsqueeze", mask, [1, 2])))


def within_blocks(g: Graph, mask: str, size: int) -> str:
    """Causal mask (B, 1, T, T) of the real positions of the same block of `size`; padding is on the right."""
    block = g("Div", positions(g, mask), size)
    same = g("Equal", g("Unsqueeze", block, [1]), g("Unsqueeze", block, [0]))
    return str(g("And", causal(g, mask), same))


def after_blocks(g: Graph, mask: str, size: int) -> str:
    """Mask (1, 1, T, blocks) of the blocks of `size` positions that end with each position or before it."""
    ends = g("Sub", g("Mul", g("Add", g("Div", positions(g, mask), size), 1), size), 1)
    ends = g("Slice", ends, [0], [1 << 60], [0], [size])  # every position has its block's; once for each block
    return str(g("Unsqueeze", g("LessOrEqual", ends, g("Unsqueeze", positions(g, mask), [1])), [0, 1]))


def pooling(g: Graph, name: str, hidden: str, mask: str, direction: Direction) -> str:
    """nn.pooling: hidden (B, T, D) -> (B, D), (B, 3 D) for "concat", or as many more as names are joined by +."""
    if JOIN in name:
        return str(g("Concat", *(pooling(g, n, hidden, mask, direction) for n in name.split(JOIN)), axis=1))
    if name == "concat":
        return str(g("Concat", *(pooling(g, n, hidden, mask, direction) for n in ("last", "max", "mean")), axis=1))
    if name == "first" or (name == "last" and direction == "right"):
        return str(g("Gather", hidden, 0, axis=1))
    present = g("Unsqueeze", mask, [2])
    if name == "max":
        return str(g("ReduceMax", g("Where", present, hidden, LOWEST), [1], keepdims=0))
    if name in ("mean", "mean_sqrt"):
        total = g("ReduceSum", g("Where", present, hidden, 0.0), [1], keepdims=0)
        length = g("Cast", lengths_of(g, mask, keep=1), to=TensorProto.FLOAT)
        return str(g("Div", total, length if name == "mean" else g("Sqrt", length)))
    if name == "weighted_mean":
        weights = g("Mul", g("Add", positions(g, mask), 1), g("Cast", mask, to=TensorProto.INT64))
        weights = g("Cast", weights, to=TensorProto.FLOAT)
        total = g(
            "ReduceSum", g("Mul", g("Where", present, hidden, 0.0), g("Unsqueeze", weights, [2])), [1], keepdims=0
        )
        return str(g("Div", total, g("ReduceSum", weights, [1], keepdims=1)))
    at_end = g("Equal", positions(g, mask), g("Sub", lengths_of(g, mask, keep=1), 1))
    return str(g("ReduceSum", g("Where", g("Unsqueeze", at_end, [2]), hidden, 0.0), [1], keepdims=0))


def lengths_of(g: Graph, mask: str, *, keep: int = 0) -> str:
    """Number of real positions of each text, (B,) or with `keep` (B, 1), int64."""
    return str(g("ReduceSum", g("Cast", mask, to=TensorProto.INT64), [1], keepdims=keep))


def positions(g: Graph, ids: str) -> str:
    """0, 1, … (T,) for (B, T)."""
    return str(g("Range", 0, g("Gather", g("Shape", ids), 1), 1))
