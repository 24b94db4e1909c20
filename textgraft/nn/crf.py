"""Linear-chain conditional random field: best path, log partition function and marginals.

A score of -inf forbids a first tag, a transition or a last tag.

Source: Lafferty, McCallum & Pereira 2001; for tagging Lample et al. 2016 (arXiv:1603.01360), §2.2.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_FORBIDDEN = -1e9
"""In place of -inf where gradients flow, which would be NaN."""
_SMALLEST = 1e-300
"""Lower bound inside logarithms."""


@dataclass(frozen=True)
class Chain:
    """Scores of C tags: as first tag (C,), transition from row to column (C, C), and as last tag (C,)."""

    start: Tensor
    between: Tensor
    end: Tensor

    def masked(self, allowed: Chain) -> Chain:
        """These scores, -inf where the boolean `allowed` is False."""
        pairs = ((self.start, allowed.start), (self.between, allowed.between), (self.end, allowed.end))
        return Chain(*(scores.masked_fill(~fine, -torch.inf) for scores, fine in pairs))

    def to(self, like: Tensor) -> Chain:
        return Chain(*(part.to(like) for part in (self.start, self.between, self.end)))


def uniform_chain(count: int) -> Chain:
    """A chain of `count` tags with scores of 0."""
    return Chain(torch.zeros(count), torch.zeros(count, count), torch.zeros(count))


def path_score(logits: Tensor, mask: Tensor, tags: Tensor, chain: Chain) -> Tensor:
    """Scores (B,) of tag paths.

    Args:
        logits: (B, W, C).
        mask: (B, W), True from the left, at least one word a row.
        tags: (B, W); arbitrary where masked.
        chain: Scores of the transitions.
    """
    clamped = tags.clamp(min=0)
    words = logits.gather(2, clamped[:, :, None])[:, :, 0].masked_fill(~mask, 0).sum(dim=1)
    transitions = chain.between[clamped[:, :-1], clamped[:, 1:]].masked_fill(~mask[:, 1:], 0).sum(dim=1)
    last = clamped.gather(1, mask.sum(dim=1, keepdim=True) - 1)[:, 0]
    return words + transitions + chain.start[clamped[:, 0]] + chain.end[last]


def log_partition(logits: Tensor, mask: Tensor, chain: Chain) -> Tensor:
    """Log of the sum over all paths of exp(score), (B,) float64, by the forward algorithm; shapes as in `path_score`.

    Sums over the previous tag are matrix products of exponentials relative to the best tag so far: C of them a word,
    not C * C. Terms below _SMALLEST of that are clamped to it, so logits may differ by some hundreds.
    """
    logits, chain = logits.double(), chain.to(logits.double())
    start, between, end = (part.clamp(min=_FORBIDDEN) for part in (chain.start, chain.between, chain.end))
    transitions, allowed = between.exp(), (chain.between > -torch.inf).double()
    alpha, possible = start + logits[:, 0], chain.start > -torch.inf
    for word in range(1, logits.shape[1]):
        best = alpha.detach().amax(dim=1, keepdim=True)
        sums = ((alpha - best).exp() @ transitions).clamp(min=_SMALLEST).log() + best
        possible = possible.double() @ allowed > 0
        following = torch.where(possible, sums, _FORBIDDEN) + logits[:, word]
        alpha = torch.where(mask[:, word, None], following, alpha)
    return torch.logsumexp(alpha + end, dim=1)


@torch.no_grad()
def viterbi(logits: Tensor, mask: Tensor, chain: Chain) -> Tensor:
    """Tags (B, W) of the best path, 0 where masked; shapes as in `path_score`.

    Ties go to the smaller tag number, from the last word on. Every row must have an allowed path.
    """
    alpha = chain.start + logits[:, 0]
    backpointers: list[Tensor] = []
    for word in range(1, logits.shape[1]):
        best, previous = (alpha[:, :, None] + chain.between).max(dim=1)
        is_word = mask[:, word, None]
        # After the end of a row every tag points to itself, so that one backward pass serves all rows.
        stay = torch.arange(logits.shape[2], device=logits.device).expand_as(previous)
        backpointers.append(torch.where(is_word, previous, stay))
        alpha = torch.where(is_word, best + logits[:, word], alpha)
    tag = (alpha + chain.end).argmax(dim=1)
    path = [tag]
    for previous in reversed(backpointers):
        tag = previous.gather(1, tag[:, None])[:, 0]
        path.append(tag)
    return torch.stack(path[::-1], dim=1).masked_fill(~mask, 0)


def marginals(logits: Tensor, mask: Tensor, chain: Chain) -> Tensor:
    """Marginal probability (B, W, C) float64 of each tag at each word; 0 where masked.

    It is the gradient of the log partition with respect to the logits.
    """
    with torch.enable_grad():
        scores = logits.detach().double().requires_grad_()
        total = log_partition(scores, mask, chain).sum()
        (probabilities,) = torch.autograd.grad(total, scores)
    return probabilities
