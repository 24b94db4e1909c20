"""The heads as ONNX operators: from an encoder's layers to what a person reads, or searches in."""

from __future__ import annotations

from torch import nn

from textgraft.heads.classification import POOLED, ClassificationHead
from textgraft.heads.span import SpanHead
from textgraft.heads.tagging import TaggingHead
from textgraft.nn.batch_norm import BoundedBatchNorm
from textgraft.onnx.encoders import Read
from textgraft.onnx.graph import Graph
from textgraft.onnx.layers import LOWEST, batch_norm, linear, pooling
from textgraft.onnx.tags import best_path, most_likely


def classification(g: Graph, head: ClassificationHead, top: str, found: Read, mask: str) -> str:
    """(B, outputs) logits of what the layer aggregation shows, `top` (B, T, D), and of what the encoder has `found`
    beside it.

    Of pairs in both orders, which come one after the other, (B / 2, outputs).
    """
    config = head.config
    layers, pooler = found
    x = pooler if config.pooling == POOLED else pooling(g, config.pooling, top, mask, config.direction)
    assert x is not None
    if config.words_dim:
        words = (pooling(g, name, layers[0], mask, config.direction) for name in ("mean", "max"))
        x = g("Concat", x, *words, axis=1)
    if config.both_orders:
        width = next(layer.in_features for layer in head.layers if isinstance(layer, nn.Linear))
        x = g("ReduceSum", g("Reshape", x, [-1, 2, width]), [1], keepdims=0)
    for layer in head.layers:
        if isinstance(layer, BoundedBatchNorm):
            x = batch_norm(g, layer, x)
        elif isinstance(layer, nn.Linear):
            x = linear(g, layer, x)
        elif isinstance(layer, nn.ReLU):
            x = g("Relu", x)
    return x


def answers(g: Graph, logits: str, kind: str, temperature: float) -> str:
    """Probabilities of one label or of many, or a numeric target's standardised value (metrics.calibration)."""
    if kind == "numeric":
        return logits
    scaled = g("Div", logits, float(temperature))
    return str(g("Softmax", scaled, axis=1) if kind == "single" else g("Sigmoid", scaled))


def chosen(g: Graph, scores: str, options: str, temperature: float) -> str:
    """(E, most) probabilities of the options of each question, whose rows of `scores` (B, 1) `options` says, or -1."""
    placed = g("Gather", g("Squeeze", scores, [1]), g("Max", options, 0))
    there = g("GreaterOrEqual", options, 0)
    return str(g("Softmax", g("Where", there, g("Div", placed, float(temperature)), LOWEST), axis=1))


def tagging(g: Graph, head: TaggingHead, top: str, words: str) -> tuple[str, str]:
    """The best tags (S, W) of sentences and their probabilities (S, W), as TaggingHead.decode.

    `words` (S, W) is which position of all rows together speaks for each word, -1 where a sentence has no more: so a
    sentence may lie in several rows of `top` (B, T, D).
    """
    positions = g("Reshape", top, [-1, head.config.input_dim])
    logits = linear(g, head.output, g("Gather", positions, g("Max", words, 0)))
    if head.config.scheme == "plain" and not head.config.crf:
        return most_likely(g, logits)
    return best_path(g, logits, g("GreaterOrEqual", words, 0), head._chain(head.output.weight))


def span(g: Graph, head: SpanHead, top: str) -> str:
    """(B, T, 2) logits of beginning and ending at each position."""
    return linear(g, head.output, top)
