"""Paragraph vectors: a text's vector is what best tells its n-grams from others, all of them learned without labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import normalize
from sklearn.utils.extmath import randomized_svd
from torch import Tensor
from torch.linalg import vecdot
from torch.nn.functional import logsigmoid
from torch.nn.functional import normalize as unit

SHARPNESS = 5.0
"""Of the cosine in a logit; Thongtan & Phienthrakul have 6."""
NEGATIVES = 5.0
"""n-grams of other texts to one of a text's own."""
NEGATIVE_POWER = 0.75
SAMPLES = 1_024
"""n-grams that stand for those of other texts, the same for all texts of a block."""
BLOCK = 64
CELLS = 100_000
"""Most n-grams of a block, so that long texts come in smaller ones; 50 MB of vectors."""
STEPS, LEARNING_STEPS = 8, 4
"""Of a text's vector to where it fits, and while n-grams learn."""
RATE, NGRAM_RATE = 0.5, 0.25
"""First step of a vector, in radians; later ones are shorter, as by AdaGrad."""
_TINY = 1e-9


@dataclass
class NgramVectors:
    """A vector of length 1 for each n-gram (V, D), how much one counts (V,), and its share (V,) of all that count.

    The chance that a text d has the n-gram w, rather than w being one of NEGATIVES drawn from all texts, is
    sigmoid(SHARPNESS cos(d, w) + b(w)): paragraph vectors (Le & Mikolov 2014) of n-grams (Li et al. 2016) by cosine
    (Thongtan & Phienthrakul 2019). b, which those papers do not have, is what is known without looking at the text, the
    logarithm of share(w) / (NEGATIVES drawn(w)); without it the vectors have to learn which n-grams are frequent.
    """

    vectors: Tensor
    weights: Tensor
    shares: NDArray[np.float64]

    def __post_init__(self) -> None:
        drawn = self.shares**NEGATIVE_POWER
        drawn = drawn / drawn.sum()
        odds = np.maximum(self.shares, _TINY) / (NEGATIVES * np.maximum(drawn, _TINY))
        self.offsets = torch.from_numpy(np.log(odds).astype(np.float32))
        self._until = np.cumsum(drawn)
        self._mean: Tensor | None = None

    @classmethod
    def begin(cls, counts: csr_matrix, weights: NDArray[np.float64], dimensions: int, seed: int) -> Self:
        """n-grams lie where the texts are that have them, and texts where a truncated SVD of their TF-IDF puts them.

        From random vectors two epochs are four points behind (IMDb). The first direction of the SVD, which all texts
        share, is left out.
        """
        rows = TfidfTransformer(sublinear_tf=True).fit_transform(counts)
        rank = min(dimensions + 1, *rows.shape)
        left, values, _ = randomized_svd(rows, rank, n_iter=2, random_state=seed)
        texts = normalize((left * values)[:, min(1, rank - 1) :])
        found = torch.from_numpy(normalize(counts.T @ texts).astype(np.float32))
        held = np.asarray(counts.sum(axis=0, dtype=np.float64)).ravel() * weights + _TINY
        return cls(found, torch.from_numpy(weights.astype(np.float32)), held / held.sum())

    def learn(self, one: csr_matrix, other: csr_matrix, *, epochs: int, seed: int) -> list[float]:
        """A vector is fitted to one half of a text and n-grams move to where it would have told the other half's.

        `one` and `other` (N, V) count the halves' n-grams; they take turns. Returns the mean loss of an n-gram that the
        vector has not seen, an epoch each. To fit a vector to all of a text and then to move the same n-grams, as the
        papers do, costs a third more and is no better (lab notes).
        """
        generator = np.random.default_rng(seed)
        squares = torch.zeros(len(self.vectors))
        lengths = np.diff(one.indptr) + np.diff(other.indptr)
        losses = []
        for epoch in range(epochs):
            total = seen = 0.0
            for turn, rows in enumerate(_blocks(lengths, generator)):
                first, second = (one, other) if (turn + epoch) % 2 else (other, one)
                drawn = self._draw(SAMPLES, generator)
                texts = self._fitted(_Block.of(first[rows], self.weights), drawn, LEARNING_STEPS)
                loss, count = self._move(texts, second[rows], drawn, squares)
                total, seen = total + loss, seen + count
            losses.append(total / max(seen, _TINY))
        return losses

    def texts(self, counts: csr_matrix) -> NDArray[np.float32]:
        """(N, D) of length 1: texts by their n-grams (N, V); a text without any has zeros."""
        drawn = self._draw(2 * SAMPLES, np.random.default_rng(0))
        found = torch.zeros(counts.shape[0], self.vectors.shape[1])
        for rows in _blocks(np.diff(counts.indptr), None):
            found[torch.from_numpy(rows)] = self._fitted(_Block.of(counts[rows], self.weights), drawn, STEPS)
        return found.numpy() * (np.diff(counts.indptr) > 0)[:, None]

    def _draw(self, count: int, generator: np.random.Generator) -> Tensor:
        places = np.searchsorted(self._until, generator.random(count) * self._until[-1], side="right")
        return torch.from_numpy(np.minimum(places, len(self._until) - 1))

    def _fitted(self, block: _Block, drawn: Tensor, steps: int) -> Tensor:
        """(B, D): from the mean of a text's n-grams uphill, each step at a right angle to the vector.

        Gradients, here and in `_move`, are without the factor SHARPNESS, which AdaGrad would divide out again.
        """
        own = self.vectors.index_select(0, block.places.ravel()).reshape(*block.places.shape, -1)
        own_offsets, drawn_offsets = self.offsets[block.places], self.offsets[drawn]
        others, weight = self.vectors[drawn], block.mass * (NEGATIVES / len(drawn))
        texts = unit((block.counts[:, None] @ own)[:, 0] - block.mass * self._centre(), dim=1)
        squares = torch.zeros(len(texts), 1)
        for _ in range(steps):
            missed = block.counts * torch.sigmoid(-SHARPNESS * vecdot(own, texts[:, None]) - own_offsets)
            mistaken = weight * torch.sigmoid(SHARPNESS * texts @ others.T + drawn_offsets)
            uphill = _across((missed[:, None] @ own)[:, 0] - mistaken @ others, texts)
            squares += uphill.square().sum(1, keepdim=True)
            texts = unit(texts + RATE * uphill / (squares + _TINY).sqrt(), dim=1)
        return texts

    def _centre(self) -> Tensor:
        """The mean n-gram (D,), kept until n-grams move: to add up 100,000 takes longer than to read a text."""
        if self._mean is None:
            self._mean = torch.from_numpy(self.shares.astype(np.float32)) @ self.vectors
        return self._mean

    def _move(self, texts: Tensor, counts: csr_matrix, drawn: Tensor, squares: Tensor) -> tuple[float, float]:
        """One step of the n-grams in `counts` (B, V) and of the drawn ones; the loss of the former and their number."""
        own = torch.from_numpy(counts.indices.astype(np.int64))
        row = torch.from_numpy(np.repeat(np.arange(len(texts)), np.diff(counts.indptr)))
        weights = torch.from_numpy(counts.data) * self.weights[own]
        mass = torch.zeros(len(texts)).index_add_(0, row, weights)[:, None] * (NEGATIVES / len(drawn))
        logits = SHARPNESS * vecdot(self.vectors.index_select(0, own), texts.index_select(0, row)) + self.offsets[own]
        others = SHARPNESS * texts @ self.vectors[drawn].T + self.offsets[drawn]
        loss = -(weights * logsigmoid(logits)).sum() - (mass * logsigmoid(-others)).sum()
        moved, where = np.unique(np.concatenate([counts.indices, drawn.numpy()]), return_inverse=True)
        missed = csr_matrix(
            ((weights * torch.sigmoid(-logits)).numpy(), where[: len(own)], counts.indptr), (len(texts), len(moved))
        )
        uphill = torch.from_numpy(missed.T @ texts.numpy())
        uphill.index_add_(0, torch.from_numpy(where[len(own) :]), (mass * torch.sigmoid(others)).T @ texts, alpha=-1)
        chosen = torch.from_numpy(moved.astype(np.int64))
        before = self.vectors.index_select(0, chosen)
        uphill = _across(uphill, before)
        squares[chosen] += uphill.square().sum(1)
        steps = NGRAM_RATE * uphill / (squares[chosen] + _TINY).sqrt()[:, None]
        self.vectors.index_copy_(0, chosen, unit(before + steps, dim=1))
        self._mean = None
        return float(loss), float(weights.sum())


@dataclass(frozen=True)
class _Block:
    """The n-grams of B texts: their places (B, L), how much each counts, 0 where a text has fewer, and the sums."""

    places: Tensor
    counts: Tensor
    mass: Tensor

    @classmethod
    def of(cls, counts: csr_matrix, weights: Tensor) -> Self:
        lengths = np.diff(counts.indptr)
        real = np.arange(lengths.max(initial=1))[None] < lengths[:, None]
        places, data = np.zeros(real.shape, np.int64), np.zeros(real.shape, np.float32)
        places[real], data[real] = counts.indices, counts.data
        weighed = torch.from_numpy(data) * weights[torch.from_numpy(places)]
        return cls(torch.from_numpy(places), weighed, weighed.sum(1, keepdim=True))


def _across(gradient: Tensor, vectors: Tensor) -> Tensor:
    """What of a gradient is at right angles to vectors of length 1: the rest would only make them longer."""
    return gradient - vecdot(gradient, vectors)[:, None] * vectors


def _blocks(lengths: NDArray, generator: np.random.Generator | None) -> Iterator[NDArray[np.int64]]:
    """Texts of about one length, at most BLOCK of them and CELLS n-grams; in random order, or as they come."""
    order = np.argsort(lengths, kind="stable") if generator is None else generator.permutation(len(lengths))
    made = []
    for start in range(0, len(order), 32 * BLOCK):
        part = order[start : start + 32 * BLOCK]
        part = part[np.argsort(lengths[part], kind="stable")]
        while len(part):
            size = max(1, min(BLOCK, CELLS // max(1, lengths[part[min(BLOCK, len(part)) - 1]])))
            made.append(part[:size])
            part = part[size:]
    yield from made if generator is None else (made[i] for i in generator.permutation(len(made)))
