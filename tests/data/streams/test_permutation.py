"""Factorisation orders: their shares and laws, and rows with XLNet's special tokens."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from test_masking import CLS, FIRST, SEP, corpus, generator, random_rows, tokens

from textgraft.data.batch import IGNORE
from textgraft.data.streams.permutation import PREDICTED, PermutedStream, permute_tokens


def test_a_sixth_of_each_row_is_predicted_in_an_order_of_its_own() -> None:
    ids = random_rows()
    order, targets = permute_tokens(ids, tokens(), generator=generator())
    ordinary = ids >= FIRST
    counts = (order > 0).sum(axis=1)
    assert counts.tolist() == np.rint(ordinary.sum(axis=1) / 6).astype(int).tolist()
    assert not (order > 0)[~ordinary].any()
    assert all(sorted(row[row > 0]) == list(range(1, n + 1)) for row, n in zip(order, counts, strict=True))
    assert np.array_equal(targets, np.where(order > 0, ids, IGNORE))
    assert len({tuple(row) for row in order}) == len(ids)


def test_every_order_is_equally_likely() -> None:
    """Of three tokens two are predicted: each of the 6 ordered pairs in a sixth of 6,000 rows (5 standard errors)."""
    ids = np.tile([CLS, FIRST, FIRST + 1, FIRST + 2, SEP], (6000, 1))
    order, _ = permute_tokens(ids, tokens(), generator=generator(), rate=2 / 3)
    _, counts = np.unique(order, axis=0, return_counts=True)
    assert len(counts) == 6
    assert np.abs(counts - 1000).max() < 5 * np.sqrt(6000 * (1 / 6) * (5 / 6))


def test_words_are_predicted_whole_where_asked() -> None:
    ids = random_rows(50)
    order, _ = permute_tokens(ids, tokens(), generator=generator(), whole_words=True)
    inside = tokens().continues[ids][:, 1:] & (ids[:, :-1] >= FIRST)
    assert np.array_equal((order > 0)[:, 1:][inside], (order > 0)[:, :-1][inside])


def test_rows_are_unmasked_text_and_the_same_from_any_batch_on() -> None:
    source = corpus(500, 300)
    stream = PermutedStream(source, tokens(), length=16, rows=8, seed=3, rate=PREDICTED)
    batches = list(stream.batches(1))
    assert len(batches) == stream.length(1) > 3
    for first, again in zip(batches[2:], stream.batches(1, 2), strict=True):
        assert first.order is not None
        assert again.order is not None
        assert torch.equal(first.ids, again.ids)
        assert torch.equal(first.order, again.order)
    for batch in batches:
        assert batch.order is not None
        assert batch.targets is not None
        assert torch.equal(batch.targets[batch.order > 0], batch.ids[batch.order > 0])
        assert batch.ids[:, 0].eq(CLS).all()
        assert batch.ids[:, -1].eq(SEP).all()
        assert not batch.ids.eq(tokens().mask_id).any()
    other = next(iter(stream.batches(2)))
    assert other.order is not None
    assert batches[0].order is not None
    assert not torch.equal(other.order, batches[0].order)


def test_xlnets_rows_end_with_sep_and_cls() -> None:
    stream = PermutedStream(corpus(100, 90), replace(tokens(), cls_last=True), length=16, rows=4)
    batch = next(iter(stream.batches(0)))
    assert batch.ids[:, -2:].tolist() == [[SEP, CLS]] * 4
    assert not batch.ids[:, :-1].eq(CLS).any()
