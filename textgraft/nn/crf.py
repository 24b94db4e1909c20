"""A chain of tags scored by words and by transitions: its best path, the sum over all paths, and each tag's share.

Linear-chain conditional random fields (Lafferty, McCallum & Pereira 2001); for tagging Lample et al. 2016
(arXiv:1603.01360), §2.2. A score of -inf forbids a beginning, a transition or an end.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_NEVER = -1e9
"""Stands for -inf where gradients flow: of -inf alone, and of a difference of two, they are not numbers."""
_LEAST = 1e-300
"""The logarithm of nothing is no number either."""


@dataclass(frozen=True)
class Chain:
    """Scores of C tags: of beginning with each (C,), going from row to column (C, C), and ending with each (C,)."""

    start: Tensor
    between: Tensor
    end: Tensor

    def forbidding(self, allowed: Chain) -> Chain:
        """These scores, -inf where `allowed`, of bools, is False."""
        pairs = ((self.start, allowed.start), (self.between, allowed.between), (self.end, allowed.end))
        return Chain(*(scores.masked_fill(~fine, -torch.inf) for scores, fine in pairs))

    def to(self, like: Tensor) -> Chain:
        return Chain(*(part.to(like) for part in (self.start, self.between, self.end)))


def free(count: int) -> Chain:
    """A chain of `count` tags that likes all transitions alike."""
    return Chain(torch.zeros(count), torch.zeros(count, count), torch.zeros(count))


def path_score(logits: Tensor, mask: Tensor, tags: Tensor, chain: Chain) -> Tensor:
    """(B,) scores of these tags (B, W), from logits (B, W, C) and a mask (B, W) that is True from the left.

    Tags of words that are not there may be anything. Every row has a word.
    """
    known = tags.clamp(min=0)
    words = logits.gather(2, known[:, :, None])[:, :, 0].masked_fill(~mask, 0).sum(dim=1)
    moves = chain.between[known[:, :-1], known[:, 1:]].masked_fill(~mask[:, 1:], 0).sum(dim=1)
    last = known.gather(1, mask.sum(dim=1, keepdim=True) - 1)[:, 0]
    return words + moves + chain.start[known[:, 0]] + chain.end[last]


def log_partition(logits: Tensor, mask: Tensor, chain: Chain) -> Tensor:
    """(B,) float64, log of the sum over all paths of exp(score), by the forward algorithm; shapes as in `path_score`.

    Sums over the tags before are matrix products of exponentials, relative to the best tag so far: C of them a word and
    not C * C. What is less than _LEAST of that counts as so much, so logits may differ by some hundreds.
    """
    logits, chain = logits.double(), chain.to(logits.double())
    start, between, end = (part.clamp(min=_NEVER) for part in (chain.start, chain.between, chain.end))
    moves, allowed = between.exp(), (chain.between > -torch.inf).double()
    so_far, possible = start + logits[:, 0], chain.start > -torch.inf
    for word in range(1, logits.shape[1]):
        best = so_far.detach().amax(dim=1, keepdim=True)
        sums = ((so_far - best).exp() @ moves).clamp(min=_LEAST).log() + best
        possible = possible.double() @ allowed > 0
        following = torch.where(possible, sums, _NEVER) + logits[:, word]
        so_far = torch.where(mask[:, word, None], following, so_far)
    return torch.logsumexp(so_far + end, dim=1)


@torch.no_grad()
def viterbi(logits: Tensor, mask: Tensor, chain: Chain) -> Tensor:
    """(B, W) the tags of the best path, 0 where there is no word; shapes as in `path_score`.

    Of equals the one with the smaller number, from the last word on. Every row must have a path that is not forbidden.
    """
    so_far = chain.start + logits[:, 0]
    came_from: list[Tensor] = []
    for word in range(1, logits.shape[1]):
        best, before = (so_far[:, :, None] + chain.between).max(dim=1)
        is_word = mask[:, word, None]
        # Behind the end of a row every tag comes from itself, so that one walk back serves all rows.
        stay = torch.arange(logits.shape[2], device=logits.device).expand_as(before)
        came_from.append(torch.where(is_word, before, stay))
        so_far = torch.where(is_word, best + logits[:, word], so_far)
    tag = (so_far + chain.end).argmax(dim=1)
    path = [tag]
    for before in reversed(came_from):
        tag = before.gather(1, tag[:, None])[:, 0]
        path.append(tag)
    return torch.stack(path[::-1], dim=1).masked_fill(~mask, 0)


def marginals(logits: Tensor, mask: Tensor, chain: Chain) -> Tensor:
    """(B, W, C) float64: the share of each tag at each word, over all paths; 0 where there is no word.

    They are the gradient of the log partition with respect to the logits.
    """
    with torch.enable_grad():
        scores = logits.detach().double().requires_grad_()
        total = log_partition(scores, mask, chain).sum()
        (shares,) = torch.autograd.grad(total, scores)
    return shares
