"""The span head and its search beside loops over every position."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from textgraft.data.batch import Batch
from textgraft.data.sequences import Direction
from textgraft.encoders.base import Encoded
from textgraft.heads.span import SpanConfig, SpanHead, no_answer_positions
from textgraft.tasks.question_answering.predictor import best_spans


def by_loops(logits: torch.Tensor, allowed: list[list[int]], targets: list[tuple[int, int]]) -> float:
    """The loss written out: for each row and side, the negative log of a softmax over the allowed positions."""
    total = 0.0
    for row, positions in enumerate(allowed):
        for side in (0, 1):
            z = sum(math.exp(float(logits[row, p, side])) for p in positions)
            total -= 0.5 * math.log(math.exp(float(logits[row, targets[row][side], side])) / z)
    return total


@pytest.mark.parametrize(("direction", "none"), [("both", (0, 0, 0)), ("right", (0, 0, 0)), ("left", (6, 4, 3))])
def test_loss_is_the_cross_entropy_over_what_may_be_answered(direction: Direction, none: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    head = SpanHead(SpanConfig(4, direction)).eval()
    lengths = torch.tensor([7, 5, 4])
    mask = torch.arange(7) < lengths[:, None]
    answerable = torch.zeros(3, 7, dtype=torch.bool)
    answerable[0, 2:5] = answerable[1, 3] = answerable[1, 6] = True  # the last one is padding
    batch = Batch(torch.zeros(3, 7, dtype=torch.int64), mask, torch.tensor([[2, 4], [-1, -1], [-1, -1]]))
    batch = Batch(**{**vars(batch), "answerable": answerable})
    encoded = Encoded(torch.randn(3, 7, 4) * 3, mask)
    logits = head(encoded).detach()
    assert logits.shape == (3, 7, 2)
    allowed = [[2, 3, 4, none[0]], [3, none[1]], [none[2]]]
    expected = by_loops(logits, allowed, [(2, 4), (none[1], none[1]), (none[2], none[2])])
    loss = head.loss(encoded, batch)
    assert loss.count == 3
    assert loss.total.item() == pytest.approx(expected, rel=1e-5)
    assert no_answer_positions(mask, direction).tolist() == list(none)


def test_dropout_acts_in_training_alone() -> None:
    head = SpanHead(SpanConfig(8, input_dropout=0.5))
    encoded = Encoded(torch.ones(1, 3, 8), torch.ones(1, 3, dtype=torch.bool))
    assert not torch.equal(head(encoded), head(encoded))
    assert torch.equal(head.eval()(encoded), head(encoded))


floats = st.floats(-5, 5, width=32)


@settings(max_examples=60)
@given(st.data())
def test_best_spans_are_those_of_all_pairs(data: st.DataObject) -> None:
    length = data.draw(st.integers(1, 9))
    start, end = (np.array(data.draw(st.lists(floats, min_size=length, max_size=length))) for _ in range(2))
    begins, ends = (np.array(data.draw(st.lists(st.booleans(), min_size=length, max_size=length))) for _ in range(2))
    count, longest = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 5))
    pairs = [
        (-(float(start[a]) + float(end[b])), a, b)
        for a in range(length)
        for b in range(a, min(length, a + longest))
        if begins[a] and ends[b]
    ]
    found = best_spans(start, end, begins=begins, ends=ends, count=count, longest=longest)
    assert [(-s.score, s.first, s.last) for s in found] == sorted(pairs)[:count]


def test_no_place_to_begin_gives_no_span() -> None:
    none, all_ = np.zeros(3, dtype=bool), np.ones(3, dtype=bool)
    logits = np.arange(3.0)
    assert best_spans(logits, logits, begins=none, ends=all_, count=3, longest=3) == []
    assert best_spans(logits, logits, begins=all_, ends=none, count=3, longest=3) == []
