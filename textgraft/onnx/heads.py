"""Heads as ONNX operators: from an encoder's layers to predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from torch import nn

from textgraft.data.examples import TargetKind
from textgraft.heads.classification import POOLED, ClassificationHead
from textgraft.heads.span import SpanHead
from textgraft.heads.tagging import TaggingHead
from textgraft.nn.batch_norm import BoundedBatchNorm
from textgraft.nn.dense import Dense
from textgraft.onnx.encoders import Read
from textgraft.onnx.graph import Graph
from textgraft.onnx.layers import LOWEST, activation, batch_norm, linear, pooling
from textgraft.onnx.tags import best_path, most_likely

NO_LENGTH = 1e-12
"""Shorter vectors are not scaled to length 1, as in torch."""


def classification(g: Graph, head: ClassificationHead, top: str, encoded: Read, mask: str) -> str:
    """Logits (B, outputs) from the aggregated layer `top` (B, T, D) and the encoder's outputs.

    For pairs in both orders, in consecutive rows, (B / 2, outputs).
    """
    config = head.config
    layers, pooler = encoded
    x = pooler if config.pooling == POOLED else pooling(g, config.pooling, top, mask, config.direction)
    assert x is not None
    x = projected(g, x, head.dense, normalize=config.normalize)
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
        elif isinstance(layer, nn.Tanh):
            x = g("Tanh", x)
    return x


def projected(g: Graph, x: str, layers: Iterable[nn.Module], *, normalize: bool) -> str:
    """nn.dense.projected: pooled vectors (B, D) through dense layers and, with `normalize`, at length 1."""
    for dense in layers:
        assert isinstance(dense, Dense)
        x = activation(g, dense.config.activation, linear(g, dense, x))
    return str(g("Div", x, g("Max", g("ReduceL2", x, [1], keepdims=1), NO_LENGTH))) if normalize else x


def answers(g: Graph, logits: str, kind: TargetKind, temperature: float) -> str:
    """Probabilities of one label or of many, or a numeric target's standardised value (metrics.calibration)."""
    return ANSWERS[kind](g, logits, temperature)


def _softmax(g: Graph, logits: str, temperature: float) -> str:
    return g("Softmax", g("Div", logits, float(temperature)), axis=1)


def _sigmoids(g: Graph, logits: str, temperature: float) -> str:
    return g("Sigmoid", g("Div", logits, float(temperature)))


def _unchanged(g: Graph, logits: str, temperature: float) -> str:
    return logits


ANSWERS: Mapping[TargetKind, Callable[[Graph, str, float], str]] = {
    "single": _softmax,
    "multi": _sigmoids,
    "numeric": _unchanged,
}
"""By kind of target; `choice_probabilities` are those of a choice."""


def choice_probabilities(g: Graph, scores: str, options: str, temperature: float) -> str:
    """Probabilities (E, most) of each question's options, whose rows in `scores` (B, 1) are in `options`, -1 as
    padding.
    """
    gathered = g("Gather", g("Squeeze", scores, [1]), g("Max", options, 0))
    present = g("GreaterOrEqual", options, 0)
    return str(g("Softmax", g("Where", present, g("Div", gathered, float(temperature)), LOWEST), axis=1))


def tagging(g: Graph, head: TaggingHead, top: str, words: str) -> tuple[str, str]:
    """The best tags (S, W) of sentences and their probabilities (S, W), as TaggingHead.decode.

    `words` (S, W) is the position of each word among all rows, -1 as padding: a sentence may extend over several rows
    of `top` (B, T, D).
    """
    positions = g("Reshape", top, [-1, head.config.input_dim])
    logits = linear(g, head.output, g("Gather", positions, g("Max", words, 0)))
    if head.config.scheme == "plain" and not head.config.crf:
        return most_likely(g, logits)
    return best_path(g, logits, g("GreaterOrEqual", words, 0), head._chain(head.output.weight))


def span(g: Graph, head: SpanHead, top: str) -> str:
    """Start and end logits (B, T, 2) of each position."""
    return linear(g, head.output, top)
