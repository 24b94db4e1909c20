"""Decoding of tags (nn.crf) as ONNX operators: best path and marginals of a chain."""

from __future__ import annotations

import torch
from onnx import TensorProto

from textgraft.nn.crf import Chain
from textgraft.onnx.graph import Graph

FORBIDDEN = -1e9
"""In place of -inf in log sums, which would be NaN."""


def most_likely(g: Graph, logits: str) -> tuple[str, str]:
    """The most likely tag (B, W) of each word by logits (B, W, C), and its probability (B, W)."""
    shares = g("Softmax", g("Cast", logits, to=TensorProto.DOUBLE), axis=2)
    return g("ArgMax", logits, axis=2, keepdims=0), _single(g, g("ReduceMax", shares, [2], keepdims=0))


def best_path(g: Graph, logits: str, mask: str, chain: Chain) -> tuple[str, str]:
    """Tags (B, W) of the best path and their marginals (B, W).

    logits (B, W, C), mask (B, W) True from the left. A masked word is appended, so that a sentence of one word has a
    step too.
    """
    first = g("Gather", logits, 0, axis=1)
    later = g("Pad", g("Slice", logits, [1], [1 << 60], [1]), [0, 0, 0, 0, 1, 0])
    padding = g("Less", g("Slice", g("Cast", mask, to=TensorProto.INT64), [0], [1], [1]), 0)
    is_word = g("Unsqueeze", g("Concat", g("Slice", mask, [1], [1 << 60], [1]), padding, axis=1), [2])
    tags = _viterbi(g, first, later, is_word, chain)
    first, later = (g("Cast", value, to=TensorProto.DOUBLE) for value in (first, later))
    probabilities = _marginals(g, first, later, is_word, chain)
    selected = g("GatherElements", probabilities, g("Unsqueeze", tags, [2]), axis=2)
    return tags, _single(g, g("Squeeze", selected, [2]))


def _viterbi(g: Graph, first: str, later: str, is_word: str, chain: Chain) -> str:
    between, stay = g.weight(chain.between), g("Range", 0, len(chain.start), 1)

    def read(step: Graph, alpha: str, logits: str, is_present: str) -> tuple[list[str], list[str]]:
        scores = step("Add", step("Unsqueeze", alpha, [2]), between)
        best = step("Add", step("ReduceMax", scores, [1], keepdims=0), logits)
        backpointers = step("Where", is_present, step("ArgMax", scores, axis=1, keepdims=0), stay)
        return [step("Where", is_present, best, alpha)], [backpointers]

    def walk(step: Graph, tag: str, backpointers: str) -> tuple[list[str], list[str]]:
        previous = step("GatherElements", backpointers, tag, axis=1)
        return [previous], [previous]

    alpha, backpointers = g.scan(read, [g("Add", first, g.weight(chain.start))], [later, is_word], axis=1)
    last = g("ArgMax", g("Add", alpha, g.weight(chain.end)), axis=1, keepdims=1)
    _, path = g.scan(walk, [last], [backpointers], axis=1, reverse=True)
    return str(g("Squeeze", path, [2]))


def _marginals(g: Graph, first: str, later: str, is_word: str, chain: Chain) -> str:
    """Marginal (B, W, C) float64 of each tag at each word, by the forward-backward algorithm."""
    start, between, end = (g.weight(part.clamp(min=FORBIDDEN), double=True) for part in vars(chain).values())

    def ahead(step: Graph, alpha: str, logits: str, is_present: str) -> tuple[list[str], list[str]]:
        sums = step("ReduceLogSumExp", step("Add", step("Unsqueeze", alpha, [2]), between), [1], keepdims=0)
        return [step("Where", is_present, step("Add", sums, logits), alpha)], [alpha]

    def back(step: Graph, backward: str, logits: str, is_present: str) -> tuple[list[str], list[str]]:
        following = step("Unsqueeze", step("Add", backward, logits), [1])
        sums = step("ReduceLogSumExp", step("Add", following, between), [2], keepdims=0)
        now = step("Where", is_present, sums, backward)
        return [now], [now]

    last, forward = g.scan(ahead, [g("Add", first, start)], [later, is_word], axis=1)
    zeros = g("Mul", first, g.weight(torch.tensor(0.0), double=True))
    _, backward = g.scan(back, [g("Add", zeros, end)], [later, is_word], axis=1, reverse=True)
    total = g("ReduceLogSumExp", g("Add", last, end), [1], keepdims=1)
    return str(g("Exp", g("Sub", g("Add", forward, backward), g("Unsqueeze", total, [2]))))


def _single(g: Graph, shares: str) -> str:
    return str(g("Cast", shares, to=TensorProto.FLOAT))
