"""Masking's shares and laws, and the rows it is done in: made of the corpus, and the same from any batch on."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
import torch

from textgraft.core.errors import UserError
from textgraft.data.batch import IGNORE, Batch
from textgraft.data.streams.masking import MaskedStream, MaskingTokens, mask_tokens

PAD, UNK, CLS, SEP, MASK = range(5)
FIRST = 5
V = 2000


def tokens(vocab_size: int = V) -> MaskingTokens:
    """Every third ordinary token continues a word."""
    ids = np.arange(vocab_size)
    return MaskingTokens(CLS, SEP, MASK, PAD, special=ids < FIRST, continues=(ids >= FIRST) & (ids % 3 == 0))


@dataclass
class InMemory:
    """Documents [CLS] ... [SEP] whose ordinary tokens are 5, 6, 7, ... through the corpus, so each says where it is."""

    ids: np.ndarray
    document_starts: np.ndarray

    @property
    def num_tokens(self) -> int:
        return len(self.ids)

    def read(self, start: int, stop: int) -> np.ndarray:
        assert 0 <= start <= stop <= len(self.ids)
        return self.ids[start:stop]


def corpus(*lengths: int) -> InMemory:
    borders = np.cumsum([0, *lengths])
    documents = [np.array([CLS, *range(FIRST + a, FIRST + b), SEP]) for a, b in pairwise(borders)]
    ids = np.concatenate(documents).astype(np.uint16)
    return InMemory(ids, np.cumsum([0, *map(len, documents)])[:-1])


def random_rows(rows: int = 400, length: int = 100) -> np.ndarray:
    ids = np.random.default_rng(0).integers(FIRST, V, size=(rows, length))
    ids[:, 0], ids[:, -1] = CLS, SEP
    ids[:, -11:-1] = PAD
    ids[:, 7] = UNK
    return ids


def generator(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_exactly_the_rate_in_every_row_and_never_a_special_token() -> None:
    ids = random_rows()
    hidden, targets = mask_tokens(ids, tokens(), generator=generator())
    chosen = targets != IGNORE
    assert (chosen.sum(axis=1) == round(0.15 * 87)).all()
    assert (ids[chosen] >= FIRST).all()
    assert (targets[chosen] == ids[chosen]).all()
    assert (hidden[~chosen] == ids[~chosen]).all()


def test_eighty_ten_ten() -> None:
    """Devlin et al. 2019, §3.1, within four standard deviations."""
    ids = random_rows(2000)
    hidden, targets = mask_tokens(ids, tokens(), generator=generator())
    chosen = targets != IGNORE
    n = chosen.sum()
    masked, kept = hidden[chosen] == MASK, hidden[chosen] == ids[chosen]
    others = hidden[chosen][~masked & ~kept]
    kept_by_chance = 0.1 / (V - FIRST)
    for share, found in ((0.8, masked.sum()), (0.1 + kept_by_chance, kept.sum()), (0.1 - kept_by_chance, len(others))):
        assert abs(found / n - share) < 4 * (share * (1 - share) / n) ** 0.5
    assert others.min() >= FIRST
    assert abs(others.mean() - (FIRST + V - 1) / 2) < 4 * V / 12**0.5 / len(others) ** 0.5


def test_every_position_is_as_likely() -> None:
    ids = np.full((4000, 20), 7)
    chosen = mask_tokens(ids, tokens(), generator=generator())[1] != IGNORE
    share = 3 / 20
    assert (abs(chosen.mean(axis=0) - share) < 4.5 * (share * (1 - share) / 4000) ** 0.5).all()


@pytest.mark.parametrize("whole_words", [False, True])
def test_a_row_with_one_token_hides_it_and_one_with_none_nothing(whole_words: bool) -> None:
    ids = np.array([[CLS, 7, SEP, PAD], [CLS, SEP, PAD, PAD]])
    _, targets = mask_tokens(ids, tokens(), generator=generator(), whole_words=whole_words)
    assert targets.tolist() == [[IGNORE, 7, IGNORE, IGNORE], [IGNORE] * 4]


def test_whole_words_are_hidden_together() -> None:
    ids = random_rows(500)
    known = tokens()
    _, targets = mask_tokens(ids, known, generator=generator(), whole_words=True)
    chosen = targets != IGNORE
    for row, hides in zip(ids, chosen, strict=True):
        for t in range(1, len(row)):
            if known.continues[row[t]] and not known.special[row[t - 1]]:
                assert hides[t] == hides[t - 1]
    assert not known.special[ids[chosen]].any()
    counts = chosen.sum(axis=1)
    assert counts.max() == round(0.15 * 87)
    assert counts.mean() > 12.9  # the last place is left empty only where no one-piece word is left
    pieces, wholes = known.continues[ids[chosen]].mean(), known.continues[ids[ids >= FIRST]].mean()
    assert abs(pieces - wholes) < 0.03  # long words are as likely as short ones


def test_a_word_longer_than_the_number_is_hidden_where_nothing_else_is() -> None:
    ids = np.array([[CLS, 7, 9, 12, SEP]])  # one word of three pieces, and 15 % of three is none
    _, targets = mask_tokens(ids, tokens(), generator=generator(), whole_words=True)
    assert targets.tolist() == [[IGNORE, 7, 9, 12, IGNORE]]


def test_a_continuing_piece_after_a_special_token_begins_a_word() -> None:
    ids = np.array([[CLS, 9, 7, SEP]])
    seen = {
        tuple(mask_tokens(ids, tokens(), generator=generator(s), whole_words=True)[1][0].tolist()) for s in range(30)
    }
    assert seen == {(IGNORE, 9, IGNORE, IGNORE), (IGNORE, IGNORE, 7, IGNORE)}


def assert_same(one: Batch, other: Batch) -> None:
    for name, value in vars(one).items():
        found = vars(other)[name]
        assert (value is None and found is None) or torch.equal(value, found), name


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("whole_words", [False, True])
def test_any_batch_can_be_entered_and_depends_on_seed_epoch_and_place_only(pairs: bool, whole_words: bool) -> None:
    source = corpus(300, 40, 7, 200)
    make = lambda seed: MaskedStream(  # noqa: E731
        source, tokens(), length=16, rows=4, seed=seed, pairs=pairs, whole_words=whole_words
    )
    whole = list(make(3).batches(2))
    assert len(whole) == make(3).length(2)
    for start in (1, 5, len(whole) - 1):
        rest = list(make(3).batches(2, start))
        assert len(rest) == len(whole) - start
        for one, other in zip(whole[start:], rest, strict=True):
            assert_same(one, other)
    other_epoch, other_seed = next(iter(make(3).batches(3))), next(iter(make(4).batches(2)))
    for other in (other_epoch, other_seed):
        assert other.ids.shape != whole[0].ids.shape or not torch.equal(other.ids, whole[0].ids)


def unmasked(batch: Batch) -> torch.Tensor:
    assert batch.targets is not None
    return torch.where(batch.targets == IGNORE, batch.ids, batch.targets)


def test_rows_are_the_corpus_cut_anew_in_each_epoch() -> None:
    source = corpus(300, 40, 7, 203)
    stream = MaskedStream(source, tokens(), length=16, rows=4)
    starts = []
    for epoch in range(3):
        rows = torch.cat([unmasked(batch) for batch in stream.batches(epoch)])
        assert (rows[:, 0] == CLS).all()
        assert (rows[:, -1] == SEP).all()
        inner = rows[:, 1:-1]
        assert not (inner == CLS).any()
        ring = np.where(source.ids == CLS, SEP, source.ids)
        for row in inner.tolist():
            first = next(i for i, token in enumerate(row) if token >= FIRST)
            place = int(np.flatnonzero(source.ids == row[first])[0]) - first
            assert row == [int(ring[(place + i) % len(ring)]) for i in range(14)]
        seen = inner[inner >= FIRST]
        assert len(seen.unique()) == len(seen)  # no token twice
        assert len(seen) >= 550 - 14  # and all but a rest
        starts.append(inner[:, 0].min().item())
    assert len(set(starts)) > 1
    for batch in stream.batches(0):
        assert batch.mask.all()
        assert batch.segments is None


def test_a_corpus_shorter_than_a_row_is_one_row() -> None:
    (batch,) = MaskedStream(corpus(5), tokens(), length=128).batches(0)
    assert batch.ids.shape == (1, 9)
    assert sorted(t for t in unmasked(batch)[0].tolist() if t >= FIRST) == [5, 6, 7, 8, 9]


def test_pairs_follow_each_other_in_half_and_are_of_two_documents_else() -> None:
    lengths = (400, 90, 3, 7, 1, 500)
    source = corpus(*lengths)
    document = np.repeat(np.arange(len(lengths)), lengths)  # of each ordinary token, in order
    stream = MaskedStream(source, tokens(), length=16, rows=8, pairs=True)
    labels, seen_documents = [], set()
    for epoch in range(15):
        for batch in stream.batches(epoch):
            assert batch.segments is not None
            assert batch.pair_targets is not None
            assert batch.ids.shape[1] <= 16
            for row, real, segment, label in zip(
                unmasked(batch), batch.mask, batch.segments, batch.pair_targets.tolist(), strict=True
            ):
                assert (row[~real] == PAD).all()
                text, sides = row[real].tolist(), segment[real].tolist()
                middle = text.index(SEP)
                a, b = text[1:middle], text[middle + 1 : -1]
                assert (text[0], text[-1]) == (CLS, SEP)
                assert sides == [0] * (len(a) + 2) + [1] * (len(b) + 1)
                assert a == list(range(a[0], a[0] + len(a)))
                assert b == list(range(b[0], b[0] + len(b)))
                of_a, of_b = ({int(document[t - FIRST]) for t in side} for side in (a, b))
                assert len(of_a) == len(of_b) == 1
                assert (b[0] == a[-1] + 1) == (label == 0)
                assert (of_a == of_b) == (label == 0)
                labels.append(label)
                seen_documents |= of_a
    assert seen_documents == {0, 1, 2, 3, 5}  # a document of one token cannot be cut in two
    assert abs(np.mean(labels) - 0.5) < 4 * 0.5 / len(labels) ** 0.5


def test_other_documents_are_drawn_evenly() -> None:
    """Each stretch of another document is as likely to be B: here three documents of 10, 20 and 30 stretches."""
    size = 16 - 3
    source = corpus(10 * size, 20 * size, 30 * size)
    stream = MaskedStream(source, tokens(), length=16, rows=64, pairs=True)
    found = np.zeros((3, 3))
    for epoch in range(60):
        for batch in stream.batches(epoch):
            assert batch.segments is not None
            assert batch.pair_targets is not None
            rows = unmasked(batch)[batch.pair_targets == 1]
            sides = batch.segments[batch.pair_targets == 1].bool()
            a = (rows[:, 1] - FIRST) // size
            b = (torch.where(sides & (rows >= FIRST), rows, 0).max(dim=1).values - FIRST) // size
            kinds = [np.searchsorted([10, 30], side.numpy(), side="right") for side in (a, b)]
            np.add.at(found, tuple(kinds), 1)
    assert (np.diag(found) == 0).all()
    for kind, (one, other, share) in enumerate([(1, 2, 0.4), (0, 2, 0.25), (0, 1, 1 / 3)]):
        n = found[kind, one] + found[kind, other]
        assert abs(found[kind, one] / n - share) < 4 * (share * (1 - share) / n) ** 0.5


def test_rows_of_one_length_hide_equally_many() -> None:
    """So that the next-sentence loss is weighted evenly."""
    stream = MaskedStream(corpus(500, 400), tokens(), length=23, rows=8, pairs=True)
    counts = torch.cat([(b.targets != IGNORE).sum(1) for b in stream.batches(0) if b.targets is not None])
    assert set(counts.tolist()) == {3}


def test_documents_without_marks_are_taken_whole() -> None:
    source = corpus(30, 30)
    plain = source.ids[source.ids >= FIRST]
    stream = MaskedStream(InMemory(plain, np.array([0, 30])), tokens(), length=33, rows=8, pairs=True, rate=0.1)
    (batch,) = stream.batches(0)
    assert (unmasked(batch)[:, 1:2] == torch.tensor([[5], [35]])).any(dim=1).all()


def test_what_cannot_be_masked_is_refused() -> None:
    with pytest.raises(UserError, match="at least two documents"):
        MaskedStream(corpus(50, 1), tokens(), length=16, pairs=True)
    with pytest.raises(UserError, match="rows of 7 tokens"):
        MaskedStream(corpus(50), tokens(), length=7)
    with pytest.raises(UserError, match="too few"):
        MaskedStream(InMemory(np.array([7]), np.array([0])), tokens())
    empty = InMemory(np.array([], dtype=np.int64), np.array([], dtype=np.int64))
    with pytest.raises(UserError, match="too few"):
        MaskedStream(empty, tokens(), pairs=True)


def test_a_batch_moves_with_all_it_holds() -> None:
    batch = next(iter(MaskedStream(corpus(100, 100), tokens(), length=16, pairs=True).batches(0)))
    moved = batch.to(torch.device("meta"))
    assert all(value.device.type == "meta" for value in vars(moved).values() if value is not None)
    assert moved.pair_targets is not None
