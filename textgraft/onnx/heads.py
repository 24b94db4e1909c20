"""The classification head as ONNX operators: from an encoder's layers to what a person reads."""

from __future__ import annotations

from torch import nn

from textgraft.heads.classification import POOLED, ClassificationHead
from textgraft.model import Model
from textgraft.onnx.encoders import Read
from textgraft.onnx.graph import Graph
from textgraft.onnx.layers import batch_norm, linear, pooling
from textgraft.onnx.readouts import read


def classification(g: Graph, model: Model, found: Read, mask: str) -> str:
    """(B, outputs) logits; of pairs in both orders, which come one after the other, (B / 2, outputs)."""
    head = model.head
    assert isinstance(head, ClassificationHead)
    config = head.config
    layers, pooler = found
    top = read(g, model.readout, layers)
    x = pooler if config.pooling == POOLED else pooling(g, config.pooling, top, mask, config.direction)
    assert x is not None
    if config.words_dim:
        words = (pooling(g, name, layers[0], mask, config.direction) for name in ("mean", "max"))
        x = g("Concat", x, *words, axis=1)
    if config.both_orders:
        width = next(layer.in_features for layer in head.layers if isinstance(layer, nn.Linear))
        x = g("ReduceSum", g("Reshape", x, [-1, 2, width]), [1], keepdims=0)
    for layer in head.layers:
        if isinstance(layer, nn.BatchNorm1d):
            x = batch_norm(g, layer, x)
        elif isinstance(layer, nn.Linear):
            x = linear(g, layer, x)
        elif isinstance(layer, nn.ReLU):
            x = g("Relu", x)
    return x


def answers(g: Graph, logits: str, kind: str, temperature: float) -> str:
    """Probabilities of one label or of many, or a numeric target's standardised value (training.calibration)."""
    if kind == "numeric":
        return logits
    scaled = g("Div", logits, float(temperature))
    return str(g("Softmax", scaled, axis=1) if kind == "single" else g("Sigmoid", scaled))
