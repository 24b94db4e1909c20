"""Decoding of tags (nn.crf) as ONNX operators: the best path of a chain, and each of its tags' share."""

from __future__ import annotations

import torch
from onnx import TensorProto

from textgraft.nn.crf import Chain
from textgraft.onnx.graph import Graph

NEVER = -1e9
"""Stands for -inf in sums of shares: of that alone there is no logarithm."""


def most_likely(g: Graph, logits: str) -> tuple[str, str]:
    """The best tag (B, W) of each word by itself, logits (B, W, C), and its share (B, W)."""
    shares = g("Softmax", g("Cast", logits, to=TensorProto.DOUBLE), axis=2)
    return g("ArgMax", logits, axis=2, keepdims=0), _single(g, g("ReduceMax", shares, [2], keepdims=0))


def best_path(g: Graph, logits: str, mask: str, chain: Chain) -> tuple[str, str]:
    """The best path's tags (B, W) and the share of all paths that has each (B, W).

    logits (B, W, C), mask (B, W) True from the left. Behind the last word stands one that is none, so that a sentence
    of one word has a step too.
    """
    first = g("Gather", logits, 0, axis=1)
    later = g("Pad", g("Slice", logits, [1], [1 << 60], [1]), [0, 0, 0, 0, 1, 0])
    nothing = g("Less", g("Slice", g("Cast", mask, to=TensorProto.INT64), [0], [1], [1]), 0)
    is_word = g("Unsqueeze", g("Concat", g("Slice", mask, [1], [1 << 60], [1]), nothing, axis=1), [2])
    tags = _viterbi(g, first, later, is_word, chain)
    first, later = (g("Cast", value, to=TensorProto.DOUBLE) for value in (first, later))
    shares = _shares(g, first, later, is_word, chain)
    chosen = g("GatherElements", shares, g("Unsqueeze", tags, [2]), axis=2)
    return tags, _single(g, g("Squeeze", chosen, [2]))


def _viterbi(g: Graph, first: str, later: str, is_word: str, chain: Chain) -> str:
    between, stay = g.weight(chain.between), g("Range", 0, len(chain.start), 1)

    def read(step: Graph, so_far: str, logits: str, there: str) -> tuple[list[str], list[str]]:
        scores = step("Add", step("Unsqueeze", so_far, [2]), between)
        best = step("Add", step("ReduceMax", scores, [1], keepdims=0), logits)
        came_from = step("Where", there, step("ArgMax", scores, axis=1, keepdims=0), stay)
        return [step("Where", there, best, so_far)], [came_from]

    def walk(step: Graph, tag: str, came_from: str) -> tuple[list[str], list[str]]:
        before = step("GatherElements", came_from, tag, axis=1)
        return [before], [before]

    so_far, came_from = g.scan(read, [g("Add", first, g.weight(chain.start))], [later, is_word], axis=1)
    last = g("ArgMax", g("Add", so_far, g.weight(chain.end)), axis=1, keepdims=1)
    _, path = g.scan(walk, [last], [came_from], axis=1, reverse=True)
    return str(g("Squeeze", path, [2]))


def _shares(g: Graph, first: str, later: str, is_word: str, chain: Chain) -> str:
    """(B, W, C) float64 the share of each tag at each word: the forward and the backward sums over all of both."""
    start, between, end = (g.weight(part.clamp(min=NEVER), double=True) for part in vars(chain).values())

    def ahead(step: Graph, so_far: str, logits: str, there: str) -> tuple[list[str], list[str]]:
        sums = step("ReduceLogSumExp", step("Add", step("Unsqueeze", so_far, [2]), between), [1], keepdims=0)
        return [step("Where", there, step("Add", sums, logits), so_far)], [so_far]

    def back(step: Graph, behind: str, logits: str, there: str) -> tuple[list[str], list[str]]:
        following = step("Unsqueeze", step("Add", behind, logits), [1])
        sums = step("ReduceLogSumExp", step("Add", following, between), [2], keepdims=0)
        now = step("Where", there, sums, behind)
        return [now], [now]

    last, before = g.scan(ahead, [g("Add", first, start)], [later, is_word], axis=1)
    none = g("Mul", first, g.weight(torch.tensor(0.0), double=True))
    _, behind = g.scan(back, [g("Add", none, end)], [later, is_word], axis=1, reverse=True)
    total = g("ReduceLogSumExp", g("Add", last, end), [1], keepdims=1)
    return str(g("Exp", g("Sub", g("Add", before, behind), g("Unsqueeze", total, [2]))))


def _single(g: Graph, shares: str) -> str:
    return str(g("Cast", shares, to=TensorProto.FLOAT))
