"""Replaced tokens: how many, by which frequencies, and what counts as replaced."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from test_masking import CLS, FIRST, SEP, InMemory, V, corpus, generator, random_rows, tokens

from textgraft.data.batch import IGNORE
from textgraft.data.streams.replacement import ReplacedStream, frequencies, replace_tokens


def test_shares_are_those_of_the_ordinary_tokens() -> None:
    ids = np.array([CLS, 7, 7, 7, 9, SEP, CLS, 7, SEP])
    shares = frequencies(InMemory(ids, np.array([0, 6])), tokens())
    assert shares[[7, 9]].tolist() == pytest.approx([0.8, 0.2])
    assert shares.sum() == pytest.approx(1)
    without = frequencies(InMemory(np.array([CLS, SEP]), np.array([0])), tokens())
    assert without[:FIRST].sum() == 0
    assert without[FIRST:] == pytest.approx(1 / (V - FIRST))


@pytest.mark.parametrize("rate", [0.15, 0.5])
def test_a_share_of_each_row_is_drawn_by_frequency_and_what_changed_is_replaced(rate: float) -> None:
    ids, shares = random_rows(), np.zeros(V)
    shares[[10, 20]] = 0.75, 0.25
    replaced, targets = replace_tokens(ids, tokens(), shares, generator=generator(), rate=rate)
    changed = replaced != ids
    assert np.array_equal(targets, changed)
    assert set(np.unique(replaced[changed])) == {10, 20}
    assert not changed[ids < FIRST].any()
    ordinary = (ids >= FIRST).sum(axis=1)
    assert (changed.sum(axis=1) <= np.rint(rate * ordinary)).all()
    assert changed.sum() == pytest.approx(rate * ordinary.sum(), rel=0.02)  # few are drawn for themselves
    assert (replaced[changed] == 10).mean() == pytest.approx(0.75, abs=0.02)


def test_a_token_that_is_drawn_for_itself_is_original() -> None:
    ids, shares = np.full((3, 20), 8), np.zeros(V)
    shares[8] = 1
    replaced, targets = replace_tokens(ids, tokens(), shares, generator=generator())
    assert np.array_equal(replaced, ids)
    assert not targets.any()


def test_every_token_of_a_row_has_a_target_and_an_epoch_can_be_entered_anywhere() -> None:
    stream = ReplacedStream(corpus(300, 200), tokens(), length=20, rows=4, seed=3)
    batches = list(stream.batches(1))
    for number, batch in enumerate(batches):
        assert batch.targets is not None
        assert set(batch.targets.unique().tolist()) <= {0, 1}
        assert not (batch.targets == IGNORE).any()
        assert batch.ids[:, 0].eq(CLS).all()
        assert batch.ids[:, -1].eq(SEP).all()
        again = next(iter(stream.batches(1, number)))
        assert torch.equal(again.ids, batch.ids)
        assert torch.equal(again.targets, batch.targets)
    share = torch.cat([batch.targets.float().flatten() for batch in batches]).mean()
    assert 0.08 < float(share) < 0.2
