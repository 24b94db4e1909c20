"""Chains of tags beside all paths, and the tagging head beside loops over words."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from textgraft.core.errors import UserError
from textgraft.data.batch import IGNORE, Batch
from textgraft.data.tags import illegal_positions
from textgraft.encoders.base import Encoded
from textgraft.heads.tagging import TaggingConfig, TaggingHead, allowed_transitions
from textgraft.nn.crf import Chain, log_partition, marginals, path_score, uniform_chain, viterbi

TAGS = ["O", "B-a", "I-a", "B-b"]
BIOES = ["O", "B-a", "I-a", "E-a", "S-a"]


def score(logits: torch.Tensor, path: tuple[int, ...], chain: Chain) -> float:
    """A path's score, written out."""
    total = float(chain.start[path[0]]) + float(chain.end[path[-1]])
    total += sum(float(logits[i, tag]) for i, tag in enumerate(path))
    return total + sum(float(chain.between[a, b]) for a, b in itertools.pairwise(path))


def drawn(seed: int, tags: list[str], scheme: str) -> tuple[torch.Tensor, torch.Tensor, list[int], Chain]:
    generator = torch.Generator().manual_seed(seed)
    count = len(tags)
    lengths = [4, 1, 3]
    logits = torch.randn(3, 4, count, generator=generator, dtype=torch.float64) * 2
    mask = torch.arange(4) < torch.tensor(lengths)[:, None]
    parts = (
        torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((count,), (count,) * 2, (count,))
    )
    return logits, mask, lengths, Chain(*parts).masked(allowed_transitions(tags, scheme))


@pytest.mark.parametrize("scale", [30, 200])
def test_logits_far_apart(scale: float) -> None:
    """A tag that hardly anything speaks for may be the only one that leads on."""
    logits, mask, lengths, chain = drawn(1, BIOES, "BIOES")
    logits = logits * scale
    shares = marginals(logits, mask, chain)
    for row, length in enumerate(lengths):
        paths = list(itertools.product(range(len(BIOES)), repeat=length))
        scores = torch.tensor([score(logits[row], path, chain) for path in paths], dtype=torch.float64)
        assert log_partition(logits, mask, chain)[row].item() == pytest.approx(scores.logsumexp(0).item(), rel=1e-9)
        weights = scores.softmax(0)
        for word, tag in itertools.product(range(length), range(len(BIOES))):
            expected = sum(float(w) for w, path in zip(weights, paths, strict=True) if path[word] == tag)
            assert shares[row, word, tag].item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("tags", "scheme"), [(TAGS, "IOB2"), (TAGS, "IOB1"), (BIOES, "BIOES"), (TAGS, "plain")])
@pytest.mark.parametrize("seed", range(4))
def test_a_chain_is_the_sum_and_the_best_of_all_paths(tags: list[str], scheme: str, seed: int) -> None:
    logits, mask, lengths, chain = drawn(seed, tags, scheme)
    partition = log_partition(logits, mask, chain)
    shares = marginals(logits, mask, chain)
    best = viterbi(logits, mask, chain)
    for row, length in enumerate(lengths):
        paths = list(itertools.product(range(len(tags)), repeat=length))
        scores = [score(logits[row], path, chain) for path in paths]
        assert partition[row].item() == pytest.approx(math.log(sum(math.exp(s) for s in scores)), rel=1e-9)
        top = max(zip(scores, paths, strict=True))
        assert tuple(best[row, :length].tolist()) == top[1]
        assert not best[row, length:].any()
        padded = torch.tensor([[*top[1], *[IGNORE] * (4 - length)]])
        found = path_score(logits[row : row + 1], mask[row : row + 1], padded, chain)
        assert found.item() == pytest.approx(top[0], rel=1e-9)
        for word, tag in itertools.product(range(length), range(len(tags))):
            through = sum(math.exp(s) for s, path in zip(scores, paths, strict=True) if path[word] == tag)
            assert shares[row, word, tag].item() == pytest.approx(through / math.exp(partition[row].item()), abs=1e-9)
        assert not shares[row, length:].any()


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.sampled_from([(TAGS, "IOB2"), (BIOES, "BIOES"), (TAGS, "IOB1")]), st.booleans())
def test_decoded_tags_are_legal(seed: int, kind: tuple[list[str], str], crf: bool) -> None:
    tags, scheme = kind
    torch.manual_seed(seed)
    head = TaggingHead(TaggingConfig(3, tags, scheme, crf=crf)).eval()
    if crf:
        torch.nn.init.normal_(head.transitions, std=3)
    lengths = torch.tensor([6, 2, 1])
    mask = torch.arange(6) < lengths[:, None]
    found, sure = head.decode(torch.randn(3, 6, len(tags)) * 4, mask)
    for row, length in enumerate(lengths.tolist()):
        assert illegal_positions([tags[i] for i in found[row, :length]], scheme) == []
    assert bool((sure[mask] > 0).all() and (sure[mask] <= 1 + 1e-9).all())
    assert not sure[~mask].any()


def test_legal_tags_are_those_that_score_best_alone() -> None:
    head = TaggingHead(TaggingConfig(3, TAGS, "IOB2")).eval()
    logits = torch.tensor([[[0.0, 3, 1, 0], [0, 0, 2, 1], [4, 1, 0, 0]]])
    found, sure = head.decode(logits, torch.ones(1, 3, dtype=torch.bool))
    assert found.tolist() == [[1, 2, 0]]
    assert sure[0, 0] > torch.softmax(logits[0, 0], 0)[1]  # an I-a after it makes a B-a sure


def test_loss_is_over_words_alone() -> None:
    torch.manual_seed(0)
    head = TaggingHead(TaggingConfig(4, ["x", "y", "z"])).eval()
    mask = torch.arange(5) < torch.tensor([5, 3])[:, None]
    words, targets = torch.tensor([[1, 3, 4], [2, -1, -1]]), torch.tensor([[0, 2, 1], [1, IGNORE, IGNORE]])
    batch = Batch(torch.zeros(2, 5, dtype=torch.int64), mask, targets, words=words)
    encoded = Encoded(torch.randn(2, 5, 4) * 3, mask)
    logits = head(encoded).detach()
    pairs = [(0, 1, 0), (0, 3, 2), (0, 4, 1), (1, 2, 1)]
    expected = sum(-math.log(float(torch.softmax(logits[row, at], 0)[tag])) for row, at, tag in pairs)
    loss = head.loss(encoded, batch)
    assert (loss.count, loss.total.item()) == (4, pytest.approx(expected, rel=1e-5))


def test_loss_of_a_crf_is_over_all_legal_paths() -> None:
    torch.manual_seed(1)
    head = TaggingHead(TaggingConfig(4, TAGS, "IOB2", crf=True)).eval()
    for values in (head.transitions, head.start, head.end):
        torch.nn.init.normal_(values)
    mask = torch.ones(1, 3, dtype=torch.bool)
    batch = Batch(torch.zeros(1, 3, dtype=torch.int64), mask, torch.tensor([[2, 2]]), words=torch.tensor([[0, 2]]))
    encoded = Encoded(torch.randn(1, 3, 4), mask)
    logits = head(encoded).detach()[0, [0, 2]]
    moves = head.transitions.detach().masked_fill(~allowed_transitions(TAGS, "IOB2").between, -math.inf)
    chain = Chain(head.start.detach(), moves, head.end.detach())
    scores = {p: score(logits, p, chain) for p in itertools.product(range(4), repeat=2)}
    expected = math.log(sum(map(math.exp, scores.values()))) - scores[(2, 2)]  # a window may begin inside an entity
    loss = head.loss(encoded, batch)
    assert (loss.count, loss.total.item()) == (2, pytest.approx(expected, rel=1e-5))
    loss.total.backward()
    assert all(bool(p.grad.isfinite().all()) for p in head.parameters() if p.grad is not None)


def test_a_free_chain_takes_the_best_tag_of_each_word() -> None:
    torch.manual_seed(0)
    logits, mask = torch.randn(2, 5, 3), torch.arange(5) < torch.tensor([5, 2])[:, None]
    assert torch.equal(viterbi(logits, mask, uniform_chain(3)), logits.argmax(2).masked_fill(~mask, 0))
    torch.testing.assert_close(marginals(logits, mask, uniform_chain(3))[mask].float(), torch.softmax(logits, 2)[mask])


def test_dropout_acts_in_training_alone() -> None:
    head = TaggingHead(TaggingConfig(8, ["x", "y"], input_dropout=0.5))
    encoded = Encoded(torch.ones(1, 3, 8), torch.ones(1, 3, dtype=torch.bool))
    assert not torch.equal(head(encoded), head(encoded))
    assert torch.equal(head.eval()(encoded), head(encoded))


def test_tags_are_named_once() -> None:
    for tags in ([], ["x", "x"]):
        with pytest.raises(UserError, match="a tag occurs twice"):
            TaggingConfig(3, tags)
