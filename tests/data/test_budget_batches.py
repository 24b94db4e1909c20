"""Batches for inference: every text once, within the budget, and little padding whatever the lengths."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from textgraft.data.sequences import MIN_BATCH_TEXTS, MIN_LENGTH_RATIO, budget_batches


@given(st.lists(st.integers(1, 600), max_size=120), st.integers(1, 2000), st.integers(1, 40))
def test_every_text_once_within_the_budget(lengths: list[int], tokens: int, rows: int) -> None:
    batches = budget_batches(lengths, tokens=tokens, rows=rows)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) <= rows
        assert len(batch) == 1 or len(batch) * lengths[batch[0]] <= tokens
        assert all(lengths[i] >= MIN_LENGTH_RATIO * lengths[batch[0]] for i in batch[MIN_BATCH_TEXTS:])


def test_one_long_text_does_not_pad_all_the_others() -> None:
    lengths = [500] + [20] * 400
    padded = sum(len(batch) * lengths[batch[0]] for batch in budget_batches(lengths, tokens=1 << 20, rows=512))
    assert padded <= 500 * MIN_BATCH_TEXTS + 20 * 400
