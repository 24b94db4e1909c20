"""Attention of a decoder to a text: scores of positions for a query, and the range of positions with weights.

A score compares one query with every position of a text. A reach turns scores into weights: over the whole text, over a
window of it (Luong, Pham & Manning 2015, arXiv:1508.04025, §3), or at a single position (Xu et al. 2015,
arXiv:1502.03044, §4.1). Every score can be combined with every reach.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from textgraft.core.errors import UserError, did_you_mean
from textgraft.nn.cpu.precision import Linear

UNSCORED = -1e4
"""Score of positions that a score does not cover: no weight beside any other."""


class Score(nn.Module):
    """Scores of a text's positions for a query; the text is prepared once for many queries.

    Raises UserError where a score needs queries and keys of one width and they differ.

    Args:
        query_dim: Q.
        key_dim: K.
    """

    same_width: ClassVar[bool] = False  # queries and keys need the same width

    def __init__(self, query_dim: int, key_dim: int) -> None:
        super().__init__()
        if self.same_width and query_dim != key_dim:
            message = f"this score multiplies a query of width {query_dim} with positions of width {key_dim}."
            raise UserError(message, where="score", remedy="Make both equally wide, or use 'general' or 'additive'.")

    def prepared(self, keys: Tensor) -> Tensor:
        """Prepare keys (B, S, K) for `forward`, (B, S, any)."""
        return keys

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Scores (B, S) of all positions for a query (B, Q)."""
        raise NotImplementedError


class Dot(Score):
    """q · k (Luong et al. 2015, §3.1 "dot")."""

    same_width = True

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        return torch.bmm(prepared, query[:, :, None]).squeeze(2)


class ScaledDot(Dot):
    """q · k / √K (Vaswani et al. 2017, arXiv:1706.03762, eq. 1)."""

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        return super().forward(query, prepared) / math.sqrt(query.shape[1])


class General(Score):
    """qᵀ W k (Luong et al. 2015, §3.1 "general"); W k is computed once for a text."""

    def __init__(self, query_dim: int, key_dim: int) -> None:
        super().__init__(query_dim, key_dim)
        self.keys = Linear(key_dim, query_dim, bias=False)

    def prepared(self, keys: Tensor) -> Tensor:
        projected: Tensor = self.keys(keys)
        return projected

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        return torch.bmm(prepared, query[:, :, None].to(prepared.dtype)).squeeze(2)


class Additive(Score):
    """vᵀ tanh(W q + U k) (Bahdanau, Cho & Bengio 2015, arXiv:1409.0473, A.1.2), as wide as the query.

    There the query is the decoder's previous state; here, as in Luong et al. (§3.1), the state after the last word.
    """

    def __init__(self, query_dim: int, key_dim: int) -> None:
        super().__init__(query_dim, key_dim)
        self.query = Linear(query_dim, query_dim, bias=False)
        self.keys = Linear(key_dim, query_dim, bias=False)
        self.vector = Linear(query_dim, 1, bias=False)

    def prepared(self, keys: Tensor) -> Tensor:
        projected: Tensor = self.keys(keys)
        return projected

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        scores: Tensor = self.vector(torch.tanh(self.query(query)[:, None] + prepared))
        return scores.squeeze(2)


class Location(Score):
    """W q, a score for each position independent of its content (Luong et al. 2015, eq. 8 "location").

    There are weights for the first `LONGEST` positions; as in the paper (footnote 6), later ones are not attended to.
    The softmax of a shorter text is over its own positions, where the paper truncates one over all of them.
    """

    LONGEST = 128

    def __init__(self, query_dim: int, key_dim: int) -> None:
        super().__init__(query_dim, key_dim)
        self.places = Linear(query_dim, self.LONGEST, bias=False)

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        length = prepared.shape[1]
        scores: Tensor = self.places(query)[:, :length]
        return F.pad(scores, (0, max(0, length - self.LONGEST)), value=UNSCORED)


class Content(Score):
    """β cos(q, k) with a strength β > 0 computed from the query (Graves, Wayne & Danihelka 2014, arXiv:1410.5401).

    Their §3.3.1, equations 5 and 6, before the softmax; the paper leaves open how β is made positive, here by
    softplus(wᵀ q + b).
    """

    same_width = True

    def __init__(self, query_dim: int, key_dim: int) -> None:
        super().__init__(query_dim, key_dim)
        self.strength = Linear(query_dim, 1)

    def prepared(self, keys: Tensor) -> Tensor:
        return F.normalize(keys, dim=2)

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        cosines = torch.bmm(prepared, F.normalize(query, dim=1)[:, :, None].to(prepared.dtype)).squeeze(2)
        return F.softplus(self.strength(query)) * cosines


SCORES: dict[str, type[Score]] = {
    "additive": Additive,
    "content": Content,
    "dot": Dot,
    "general": General,
    "location": Location,
    "scaled_dot": ScaledDot,
}


class Reach(nn.Module):
    """Attention weights over a text from a query and a score; here over all of it (Luong et al. 2015, §3.1).

    `window` is D: a local reach covers at most D positions on either side of one.
    """

    def __init__(self, score: Score, query_dim: int, window: int) -> None:
        super().__init__()
        if window < 1:
            raise UserError(f"window is {window}.", remedy="Give 1 or more.")
        self.score, self.window = score, window

    def prepared(self, keys: Tensor) -> Tensor:
        """Prepare a text (B, S, K) for the score."""
        return self.score.prepared(keys)

    def forward(self, query: Tensor, prepared: Tensor, mask: Tensor, step: int) -> Tensor:
        """Weights (B, S) of the positions, 0 where masked.

        Args:
            query: (B, Q).
            prepared: Prepared keys.
            mask: (B, S), True at real positions, at least one a row.
            step: Number of the query, from 0.
        """
        return _masked_softmax(self.score(query, prepared), mask)

    def selected(self, weights: Tensor) -> Tensor:
        """The weights (B, S) of the context vector, from those of `forward`; the same, unless attention is hard."""
        return weights


class LocalMonotonic(Reach):
    """Attention around the position with the number of the step (Luong et al. 2015, §3.2 "local-m").

    After the end of a text, where the paper's windows would be empty, the window stays around its last position.
    """

    def forward(self, query: Tensor, prepared: Tensor, mask: Tensor, step: int) -> Tensor:
        last = mask.sum(dim=1, keepdim=True) - 1
        near = _distance(last.clamp(max=step), mask) <= self.window
        return _masked_softmax(self.score(query, prepared), mask & near)


class LocalPredictive(Reach):
    """Attention around a position predicted from the query, by a Gaussian of deviation D / 2 (§3.2 "local-p", eq. 9,
    10).

    The centre is (S - 1) sigmoid(vᵀ tanh(W q)): positions count from 0 here, so that it is always in the text. As in
    the paper, the Gaussian comes after the softmax, so that the weights add up to less than 1.
    """

    def __init__(self, score: Score, query_dim: int, window: int) -> None:
        super().__init__(score, query_dim, window)
        self.hidden = Linear(query_dim, query_dim, bias=False)
        self.centre = Linear(query_dim, 1, bias=False)

    def forward(self, query: Tensor, prepared: Tensor, mask: Tensor, step: int) -> Tensor:
        last = mask.sum(dim=1, keepdim=True) - 1
        centre = last * torch.sigmoid(self.centre(torch.tanh(self.hidden(query))).float())
        distance = _distance(centre, mask)
        weights = _masked_softmax(self.score(query, prepared), mask & (distance <= self.window))
        return weights * torch.exp(-2 * (distance / self.window).square())


class Hard(Reach):
    """Attention to one position (Xu et al. 2015, §4.1): sampled in training, the one of the highest weight elsewhere.

    The loss in training is that of the sampled positions. Its gradient reaches the scores by REINFORCE (`surrogate`),
    with a moving average of log probabilities as the baseline and a bonus for the entropy of the weights. Differences
    from the paper: a position is credited with the words from its own on, on which alone it has an influence, and the
    baseline is of a word, before the current batch; both leave the expected gradient as it is. Weights are always
    sampled, where the paper uses their expectation for half of the texts.
    """

    ENTROPY, DECAY = 0.002, 0.9
    baseline: Tensor  # () mean log probability of a word

    def __init__(self, score: Score, query_dim: int, window: int) -> None:
        super().__init__(score, query_dim, window)
        self.register_buffer("baseline", torch.zeros(()))

    def selected(self, weights: Tensor) -> Tensor:
        """One-hot (B, S): a sample in training, one random number a row whatever the padding; else the argmax."""
        if self.training:
            below = weights.detach().cumsum(dim=1)
            drawn = torch.rand(len(weights), 1, device=weights.device) * below[:, -1:]
            positions = (below <= drawn).sum(dim=1).clamp(max=weights.shape[1] - 1)
        else:
            positions = weights.argmax(dim=1)
        return F.one_hot(positions, weights.shape[1]).to(weights.dtype)

    def surrogate(self, weights: Tensor, chosen: Tensor, log_probs: Tensor, counted: Tensor) -> Tensor:
        """A scalar whose gradient, added to that of the sampled loss, estimates that of the expected loss; updates the
        baseline.

        Args:
            weights: (B, T', S) of each target word.
            chosen: (B, T', S), one-hot, sampled from the weights.
            log_probs: (B, T') of the target words, given the sample; without gradients.
            counted: (B, T'), True at target words.
        """
        gains = (log_probs - self.baseline).masked_fill(~counted, 0.0)
        to_come = gains.flip(1).cumsum(dim=1).flip(1)
        logs = weights.clamp(min=torch.finfo(weights.dtype).tiny).log()
        log_p, entropy = (logs * chosen).sum(dim=2), -(logs * weights).sum(dim=2)
        with torch.no_grad():
            mean = log_probs.masked_fill(~counted, 0.0).sum() / counted.sum().clamp(min=1)
            self.baseline.lerp_(mean.to(self.baseline.dtype), 1 - self.DECAY)
        return -(to_come * log_p + self.ENTROPY * entropy).masked_fill(~counted, 0.0).sum()


REACHES: dict[str, type[Reach]] = {
    "global": Reach,
    "hard": Hard,
    "local-m": LocalMonotonic,
    "local-p": LocalPredictive,
}


def new_attention(score: str, reach: str, *, query_dim: int, key_dim: int, window: int) -> Reach:
    """Make the attention of these names in SCORES and REACHES. Raises UserError for unknown names, and as they do."""
    for kind, name, choices in (("score", score, SCORES), ("reach", reach, REACHES)):
        if name not in choices:
            raise UserError(f"unknown {kind} '{name}'.", where=kind, remedy=did_you_mean(name, choices))
    return REACHES[reach](SCORES[score](query_dim, key_dim), query_dim, window)


def self_attention_weights(attention: Reach, x: Tensor, mask: Tensor) -> Tensor:
    """Weights (B, S, S) of a text x (B, S, D) for its own positions: position t is the query of step t."""
    prepared = attention.prepared(x)
    return torch.stack([attention.selected(attention(x[:, t], prepared, mask, t)) for t in range(x.shape[1])], dim=1)


def _distance(centre: Tensor, mask: Tensor) -> Tensor:
    """Distance (B, S) of each position from a centre (B, 1)."""
    return (torch.arange(mask.shape[1], device=mask.device) - centre).abs()


def _masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.float().masked_fill(~mask, -torch.inf).softmax(dim=1)
