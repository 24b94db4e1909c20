"""What training reads: variable-length BPTT (Merity et al. 2018, §4.1), and batches of labelled texts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from textgraft.core.errors import UserError
from textgraft.data.batch import Batch
from textgraft.data.sequences import Direction
from textgraft.data.streams.base import ExampleStream, LanguageModelStream, ScatteredStream


@dataclass
class InMemory:
    """A corpus whose tokens are 0, 1, 2, …, so that each says where it comes from."""

    num_tokens: int
    document_starts: np.ndarray

    def read(self, start: int, stop: int) -> np.ndarray:
        return np.arange(start, min(stop, self.num_tokens), dtype=np.uint32)


def counting(num_tokens: int, documents: int = 1) -> InMemory:
    inner = np.random.default_rng(0).choice(np.arange(1, num_tokens), documents - 1, replace=False)
    return InMemory(num_tokens, np.append(0, np.sort(inner)))


def assert_same(one: list[Batch], other: list[Batch]) -> None:
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        assert a.targets is not None
        assert b.targets is not None
        assert torch.equal(a.ids, b.ids)
        assert torch.equal(a.mask, b.mask)
        assert torch.equal(a.targets, b.targets)


def joined(batches: list[Batch], direction: Direction = "left") -> tuple[Tensor, Tensor]:
    """The ids and targets of all windows side by side, in the order of the text."""
    ordered = batches[::-1] if direction == "right" else batches
    targets = [batch.targets for batch in ordered if batch.targets is not None]
    return torch.cat([batch.ids for batch in ordered], dim=1), torch.cat(targets, dim=1)


def test_window_lengths_are_distributed_as_published() -> None:
    """bptt with probability 0.95, else half of it, plus normal noise of deviation 5, cut to whole tokens from 5 up."""
    stream = LanguageModelStream(counting(700_000), rows=1, bptt=70)
    lengths = np.array([batch.ids.shape[1] for batch in stream.batches(0)])[:-1]  # the last takes what is left
    short = lengths < 52
    assert abs(short.mean() - 0.05) < 4 * (0.05 * 0.95 / len(lengths)) ** 0.5
    for part, mean in ((lengths[~short], 70), (lengths[short], 35)):
        assert abs(part.mean() - (mean - 0.5)) < 4 * 5 / len(part) ** 0.5
        assert abs(part.std() / 5 - 1) < 4 / (2 * len(part)) ** 0.5
    assert min(b.ids.shape[1] for b in LanguageModelStream(counting(20_000), rows=1, bptt=8).batches(0)) >= 1
    tiny = [b.ids.shape[1] for b in LanguageModelStream(counting(20_000), rows=1, bptt=8).batches(0)][:-1]
    assert min(tiny) == 5


def test_the_rate_is_scaled_by_the_windows_length() -> None:
    stream = LanguageModelStream(counting(2000), rows=2, bptt=20)
    batches = list(stream.batches(0))
    assert [stream.rate_scale(batch) for batch in batches] == [batch.ids.shape[1] / 20 for batch in batches]
    assert len({batch.ids.shape[1] for batch in batches}) > 3
    fixed = LanguageModelStream(counting(2000), rows=2, bptt=20, variable=False)
    assert {fixed.rate_scale(batch) for batch in fixed.batches(0)} == {1.0}
    assert {batch.ids.shape[1] for batch in list(fixed.batches(0))[:-1]} == {20}


@pytest.mark.parametrize("direction", ["left", "right"])
@pytest.mark.parametrize("variable", [True, False], ids=["variable", "fixed"])
@pytest.mark.parametrize("documents", [1, 30], ids=["in order", "shuffled"])
def test_windows_cover_each_lane_exactly_once(direction: Direction, variable: bool, documents: int) -> None:
    corpus = counting(1003, documents)
    stream = LanguageModelStream(corpus, rows=4, bptt=20, direction=direction, variable=variable, shuffle=documents > 1)
    batches = list(stream.batches(0))
    assert len(batches) == stream.length(0)
    ids, targets = joined(batches, direction)
    assert ids.shape == (4, 1002 // 4)
    before, after = (targets, ids) if direction == "right" else (ids, targets)
    assert torch.equal(before[:, 1:], after[:, :-1]), "each target is the token next to its input"
    seen = Counter(before.flatten().tolist())
    assert max(seen.values()) == 1
    assert torch.equal(after[:-1, -1], before[1:, 0]), "a lane begins where the one above it ends"
    breaks = [a for a, b in pairwise([*before.flatten().tolist(), int(after[-1, -1])]) if b != a + 1]
    assert len(breaks) <= documents - 1
    if documents == 1:
        assert before[0, 0] == 0
    for batch in batches:
        assert bool(batch.mask.all())


def test_documents_are_shuffled_whole_and_anew_in_each_epoch() -> None:
    corpus = counting(600, 12)
    stream = LanguageModelStream(corpus, rows=1, bptt=20)
    orders = []
    for epoch in (0, 1):
        ids, targets = joined(list(stream.batches(epoch)))
        text = [*ids[0].tolist(), int(targets[0, -1])]
        assert sorted(text) == list(range(600))
        orders.append([token for token in text if token in corpus.document_starts])
        ends = set(np.append(corpus.document_starts[1:], 600) - 1)
        assert all(b == a + 1 or a in ends for a, b in pairwise(text)), "a document was cut"
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == corpus.document_starts.tolist()


@pytest.mark.parametrize("direction", ["left", "right"])
@pytest.mark.parametrize("shuffle", [True, False])
def test_an_epoch_can_be_entered_at_any_batch(direction: Direction, shuffle: bool) -> None:
    def stream() -> LanguageModelStream:
        return LanguageModelStream(counting(3000, 9), rows=3, bptt=30, direction=direction, shuffle=shuffle, seed=5)

    for epoch in (0, 2):
        whole = list(stream().batches(epoch))
        for start in (0, 1, len(whole) // 2, len(whole) - 1, len(whole)):
            assert_same(list(stream().batches(epoch, start)), whole[start:])


def test_epochs_and_seeds_have_their_own_windows() -> None:
    def widths(seed: int, epoch: int) -> list[int]:
        stream = LanguageModelStream(counting(3000), rows=2, bptt=30, seed=seed)
        return [batch.ids.shape[1] for batch in stream.batches(epoch)]

    assert widths(0, 0) == widths(0, 0)
    assert widths(0, 0) != widths(0, 1)
    assert widths(0, 0) != widths(1, 0)


def test_a_backward_model_reads_the_last_window_first() -> None:
    first = next(LanguageModelStream(counting(500), rows=1, bptt=20, direction="right", shuffle=False).batches(0))
    assert first.targets is not None
    assert first.ids[0, -1] == 499
    assert torch.equal(first.targets, first.ids - 1)


@pytest.mark.parametrize(("num_tokens", "rows"), [(2, 1), (100, 1), (300, 2), (20_000, 64)])
def test_a_small_corpus_gets_fewer_lanes(num_tokens: int, rows: int) -> None:
    stream = LanguageModelStream(counting(num_tokens), rows=64, bptt=70)
    assert stream.rows == rows
    assert joined(list(stream.batches(0)))[0].shape == (rows, (num_tokens - 1) // rows)


@pytest.mark.parametrize("stream", [LanguageModelStream, ScatteredStream])
@pytest.mark.parametrize("num_tokens", [0, 1])
def test_no_text_is_an_error(num_tokens: int, stream: type[LanguageModelStream] | type[ScatteredStream]) -> None:
    with pytest.raises(UserError, match=f"{num_tokens} tokens are too few"):
        stream(InMemory(num_tokens, np.array([0])))


@pytest.mark.parametrize(("num_tokens", "bptt"), [(2, 1), (3, 1), (30, 14), (1003, 20)])
def test_scattered_windows_are_whole_disjoint_and_from_all_over(num_tokens: int, bptt: int) -> None:
    stream = ScatteredStream(counting(num_tokens), rows=4, bptt=20)
    batches = list(stream.batches(0))
    assert len(batches) == stream.length(0)
    ids = torch.cat([batch.ids for batch in batches])
    targets = torch.cat([batch.targets for batch in batches if batch.targets is not None])
    assert ids.shape[1] == bptt
    assert torch.equal(targets, ids + 1)
    assert torch.equal(ids, ids[:, :1] + torch.arange(bptt))
    assert len(ids.unique()) == ids.numel(), "no token is an input twice"
    assert ids.numel() > num_tokens - 1 - 2 * bptt, "less than a window is left out at either end"
    starts = ids[:, 0].tolist()
    assert num_tokens < 1000 or starts != sorted(starts)
    assert {stream.rate_scale(batch) for batch in batches} == {1.0}


def test_scattered_windows_are_cut_and_ordered_anew_in_every_epoch_and_by_the_seed() -> None:
    def firsts(seed: int, epoch: int) -> list[int]:
        stream = ScatteredStream(counting(3000), rows=3, bptt=30, seed=seed)
        return [int(row) for batch in stream.batches(epoch) for row in batch.ids[:, 0]]

    assert firsts(0, 0) == firsts(0, 0)
    assert len({tuple(firsts(seed, epoch)) for seed in (0, 1) for epoch in (0, 1)}) == 4
    assert len({min(firsts(0, epoch)) for epoch in range(5)}) > 1


def test_scattered_windows_can_be_entered_at_any_batch() -> None:
    stream = ScatteredStream(counting(3000), rows=3, bptt=30, seed=5)
    whole = list(stream.batches(1))
    for start in (0, 1, 17, len(whole) - 1, len(whole)):
        assert_same(list(ScatteredStream(counting(3000), rows=3, bptt=30, seed=5).batches(1, start)), whole[start:])


def examples(count: int = 50) -> tuple[list[np.ndarray], Tensor]:
    """Texts that begin with their own number, which is their target too."""
    lengths = np.random.default_rng(0).integers(1, 40, size=count)
    sequences = [np.append(i, np.full(n - 1, 7)).astype(np.int32) for i, n in enumerate(lengths)]
    return sequences, torch.arange(count)


def test_an_epoch_shows_every_example_once_with_its_target() -> None:
    sequences, targets = examples()
    stream = ExampleStream(sequences, targets, pad_id=99, rows=8)
    batches = list(stream.batches(0))
    assert len(batches) == stream.length(0)
    assert sorted(int(i) for batch in batches for i in batch.ids[:, 0]) == list(range(50))
    for batch in batches:
        assert len(batch.ids) <= 8
        assert batch.targets is not None
        assert batch.rows is not None
        assert torch.equal(batch.ids[:, 0], batch.targets)
        assert torch.equal(batch.rows, batch.targets)
        assert torch.equal(batch.mask.sum(dim=1), torch.tensor([len(sequences[i]) for i in batch.rows.tolist()]))
        assert torch.equal(batch.ids == 99, ~batch.mask)
        assert stream.rate_scale(batch) == 1.0


def test_long_examples_come_in_smaller_batches() -> None:
    """A budget may only be exceeded by a pair, or a pair and one left over: batch norm needs two texts."""
    sequences, targets = examples()
    batches = list(ExampleStream(sequences, targets, pad_id=99, rows=8, tokens=100).batches(0))
    assert sum(len(batch.ids) for batch in batches) == 50
    assert min(len(batch.ids) for batch in batches) >= 2
    assert max(len(batch.ids) for batch in batches) > 3
    assert all(batch.ids.numel() <= 100 for batch in batches if len(batch.ids) > 3)


def test_no_text_is_left_alone_in_a_batch() -> None:
    sequences, targets = examples(17)
    batches = list(ExampleStream(sequences, targets, pad_id=99, rows=8).batches(0))
    assert sorted(len(batch.ids) for batch in batches) == [8, 9]


def test_example_batches_are_a_function_of_seed_epoch_and_place() -> None:
    sequences, targets = examples()

    def batches(seed: int, epoch: int, start: int = 0) -> list[Batch]:
        return list(ExampleStream(sequences, targets, pad_id=99, rows=8, seed=seed).batches(epoch, start))

    whole = batches(1, 3)
    for start in range(len(whole) + 1):
        assert_same(batches(1, 3, start), whole[start:])
    for other in (batches(1, 4), batches(2, 3)):
        assert any(not torch.equal(a.ids, b.ids) for a, b in zip(whole, other, strict=False))
