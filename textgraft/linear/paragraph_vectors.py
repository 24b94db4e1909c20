"""Paragraph vectors of n-grams: a text's vector predicts which n-grams occur in it, trained without labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.special import expit, log_expit
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import normalize
from sklearn.utils.extmath import randomized_svd

SHARPNESS = 5.0
"""Factor of the cosine in a logit; Thongtan & Phienthrakul use 6."""
NEGATIVES = 5.0
"""n-grams of other texts per n-gram of the text."""
NEGATIVE_POWER = 0.75
"""Exponent of the n-grams' shares among negative samples."""
NEGATIVE_SAMPLES = 1_024
"""Negative samples of a block, shared by its texts."""
MAX_BLOCK_TEXTS = 64
"""Texts of a block."""
MAX_BLOCK_NGRAMS = 100_000
"""n-grams of a block, so that long texts come in smaller blocks; 50 MB of vectors."""
INFERENCE_STEPS, TRAINING_STEPS = 8, 4
"""Gradient steps on a text's vector: in inference, and while n-gram vectors are trained."""
TEXT_RATE, NGRAM_RATE = 0.5, 0.25
"""First step of a vector, in radians; AdaGrad shortens later ones."""
_TINY = 1e-9
_SHORT = 1e-12
"""Shorter vectors are not scaled to length 1."""


@dataclass
class NgramVectors:
    """Unit vectors (V, D), weights (V,) and shares (V,) of n-grams, for paragraph vectors by cosine.

    The probability that n-gram w comes from text d, rather than being one of NEGATIVES samples from all texts, is
    sigmoid(SHARPNESS cos(d, w) + b(w)): paragraph vectors (Le & Mikolov 2014) of n-grams (Li et al. 2016) by cosine
    (Thongtan & Phienthrakul 2019). The offset b, which those papers do not have, is the log odds without the text,
    log(share(w) / (NEGATIVES sampled(w))); without it the vectors have to encode n-gram frequency.

    Attributes:
        vectors: Unit vectors (V, D).
        weights: Weight (V,) of an occurrence of each n-gram.
        shares: Share (V,) of each n-gram in the total weight.
    """

    vectors: NDArray[np.float32]
    weights: NDArray[np.float32]
    shares: NDArray[np.float64]

    def __post_init__(self) -> None:
        negative_shares = self.shares**NEGATIVE_POWER
        negative_shares = negative_shares / negative_shares.sum()
        odds = np.maximum(self.shares, _TINY) / (NEGATIVES * np.maximum(negative_shares, _TINY))
        self.offsets = np.log(odds).astype(np.float32)
        self._cumulative = np.cumsum(negative_shares)
        self._mean_vector: NDArray[np.float32] | None = None

    @classmethod
    def initialize(cls, counts: csr_matrix, weights: NDArray[np.float64], dimensions: int, seed: int) -> Self:
        """Vectors that are the mean of the texts containing an n-gram, texts placed by a truncated SVD of their TF-IDF.

        Random initialisation is four points behind after two epochs (IMDb). The first direction of the SVD, which all
        texts share, is left out.

        Args:
            counts: Occurrences (N, V).
            weights: Weight (V,) of each n-gram.
            dimensions: Number of dimensions D.
            seed: Seed of the SVD.
        """
        rows = TfidfTransformer(sublinear_tf=True).fit_transform(counts)
        rank = min(dimensions + 1, *rows.shape)
        left, values, _ = randomized_svd(rows, rank, n_iter=2, random_state=seed)
        texts = normalize((left * values)[:, min(1, rank - 1) :])
        vectors = normalize(counts.T @ texts).astype(np.float32)
        frequencies = np.asarray(counts.sum(axis=0, dtype=np.float64)).ravel() * weights + _TINY
        return cls(vectors, weights.astype(np.float32), frequencies / frequencies.sum())

    def train(self, first_halves: csr_matrix, second_halves: csr_matrix, *, epochs: int, seed: int) -> list[float]:
        """Train n-gram vectors: fit a text vector to one half of a text, then update n-grams to predict the other half.

        Fitting a text's vector to the whole text and then updating the same n-grams, as the papers do, costs a third
        more and is no better (lab notes).

        Args:
            first_halves, second_halves: Occurrences (N, V) in the halves, which alternate in the two roles.
            epochs: Number of epochs.
            seed: Seed of order and negative samples.

        Returns:
            Mean loss of a held-out half's n-gram in each epoch.
        """
        generator = np.random.default_rng(seed)
        squares = np.zeros(len(self.vectors), np.float32)
        lengths = np.diff(first_halves.indptr) + np.diff(second_halves.indptr)
        losses = []
        for epoch in range(epochs):
            total = seen = 0.0
            for block, rows in enumerate(_blocks(lengths, generator)):
                fitted, predicted = (
                    (first_halves, second_halves) if (block + epoch) % 2 else (second_halves, first_halves)
                )
                negatives = self._sample_negatives(NEGATIVE_SAMPLES, generator)
                vectors = self._infer_block(_Block.of(fitted[rows], self.weights), negatives, TRAINING_STEPS)
                loss, count = self._update_ngrams(vectors, predicted[rows], negatives, squares)
                total, seen = total + loss, seen + count
            losses.append(total / max(seen, _TINY))
        return losses

    def infer(self, counts: csr_matrix) -> NDArray[np.float32]:
        """Unit vectors (N, D) of texts with n-gram counts (N, V); zeros for a text without n-grams."""
        negatives = self._sample_negatives(2 * NEGATIVE_SAMPLES, np.random.default_rng(0))
        vectors = np.zeros((counts.shape[0], self.vectors.shape[1]), np.float32)
        for rows in _blocks(np.diff(counts.indptr), None):
            block = _Block.of(counts[rows], self.weights)
            vectors[rows] = self._infer_block(block, negatives, INFERENCE_STEPS)
        return vectors * (np.diff(counts.indptr) > 0)[:, None]

    def _sample_negatives(self, count: int, generator: np.random.Generator) -> NDArray[np.int64]:
        positions = np.searchsorted(self._cumulative, generator.random(count) * self._cumulative[-1], side="right")
        return np.minimum(positions, len(self._cumulative) - 1)

    def _infer_block(self, block: _Block, negatives: NDArray[np.int64], steps: int) -> NDArray[np.float32]:
        """Text vectors (B, D) by gradient ascent on the sphere, from the mean of a text's n-grams.

        Gradients, here and in `_update_ngrams`, lack the factor SHARPNESS, which AdaGrad would cancel.
        """
        vectors, offsets, negative_offsets = (
            self.vectors[block.positions],
            self.offsets[block.positions],
            self.offsets[negatives],
        )
        negative_vectors, weight = self.vectors[negatives], block.mass * np.float32(NEGATIVES / len(negatives))
        texts = _unit((block.counts[:, None] @ vectors)[:, 0] - block.mass * self._centre())
        squares = np.zeros((len(texts), 1), np.float32)
        for _ in range(steps):
            positive_errors = block.counts * expit(-SHARPNESS * (vectors @ texts[:, :, None])[..., 0] - offsets)
            negative_errors = weight * expit(SHARPNESS * (texts @ negative_vectors.T) + negative_offsets)
            gradient = _tangent((positive_errors[:, None] @ vectors)[:, 0] - negative_errors @ negative_vectors, texts)
            squares += np.square(gradient).sum(axis=1, keepdims=True)
            texts = _unit(texts + TEXT_RATE * gradient / np.sqrt(squares + _TINY))
        return texts

    def _centre(self) -> NDArray[np.float32]:
        """The mean n-gram vector (D,), cached until n-grams change: summing 100,000 takes longer than inferring
        a text.
        """
        if self._mean_vector is None:
            self._mean_vector = self.shares.astype(np.float32) @ self.vectors
        return self._mean_vector

    def _update_ngrams(
        self,
        texts: NDArray[np.float32],
        counts: csr_matrix,
        negatives: NDArray[np.int64],
        squares: NDArray[np.float32],
    ) -> tuple[float, float]:
        """One step of the n-grams in `counts` (B, V) and of the negatives; returns the former's loss and total
        weight.
        """
        ngrams, row = counts.indices, np.repeat(np.arange(len(texts)), np.diff(counts.indptr))
        weights = counts.data * self.weights[ngrams]
        mass = np.bincount(row, weights, len(texts)).astype(np.float32)[:, None] * np.float32(
            NEGATIVES / len(negatives)
        )
        logits = SHARPNESS * _products(self.vectors[ngrams], texts[row]) + self.offsets[ngrams]
        negative_logits = SHARPNESS * (texts @ self.vectors[negatives].T) + self.offsets[negatives]
        loss = -(weights * log_expit(logits)).sum() - (mass * log_expit(-negative_logits)).sum()
        updated, index = np.unique(np.concatenate([ngrams, negatives]), return_inverse=True)
        shape = (len(texts), len(updated))
        positive_errors = csr_matrix((weights * expit(-logits), index[: len(ngrams)], counts.indptr), shape)
        drawn = csr_matrix(
            (np.ones(len(negatives), np.float32), (index[len(ngrams) :], np.arange(len(negatives)))),
            (len(updated), len(negatives)),
        )
        gradient = positive_errors.T @ texts - drawn @ ((mass * expit(negative_logits)).T @ texts)
        vectors = self.vectors[updated]
        gradient = _tangent(gradient, vectors)
        squares[updated] += np.square(gradient).sum(axis=1)
        steps = NGRAM_RATE * gradient / np.sqrt(squares[updated] + _TINY)[:, None]
        self.vectors[updated] = _unit(vectors + steps)
        self._mean_vector = None
        return float(loss), float(weights.sum())


@dataclass(frozen=True)
class _Block:
    """The n-grams of B texts: their ids (B, L), weights (B, L), 0 for padding, and the sums of weights (B, 1)."""

    positions: NDArray[np.int64]
    counts: NDArray[np.float32]
    mass: NDArray[np.float32]

    @classmethod
    def of(cls, counts: csr_matrix, weights: NDArray[np.float32]) -> Self:
        lengths = np.diff(counts.indptr)
        mask = np.arange(lengths.max(initial=1))[None] < lengths[:, None]
        positions, data = np.zeros(mask.shape, np.int64), np.zeros(mask.shape, np.float32)
        positions[mask], data[mask] = counts.indices, counts.data
        weighted = data * weights[positions]
        return cls(positions, weighted, weighted.sum(axis=1, keepdims=True))


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Vectors (N, D) scaled to length 1."""
    lengths = np.maximum(np.sqrt(_products(vectors, vectors)), np.float32(_SHORT))
    return np.asarray(vectors / lengths[:, None], dtype=np.float32)


def _products(one: NDArray[np.float32], other: NDArray[np.float32]) -> NDArray[np.float32]:
    """Inner products (N,) of the rows (N, D) of two matrices."""
    return np.asarray(np.einsum("nd,nd->n", one, other))


def _tangent(gradient: NDArray[np.float32], vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """The component of a gradient at a right angle to unit vectors: the rest would only change their length."""
    return gradient - _products(gradient, vectors)[:, None] * vectors


def _blocks(lengths: NDArray, generator: np.random.Generator | None) -> Iterator[NDArray[np.int64]]:
    """Indices of texts of similar length, at most MAX_BLOCK_TEXTS and MAX_BLOCK_NGRAMS; shuffled with a generator."""
    order = np.argsort(lengths, kind="stable") if generator is None else generator.permutation(len(lengths))
    blocks = []
    for start in range(0, len(order), 32 * MAX_BLOCK_TEXTS):
        part = order[start : start + 32 * MAX_BLOCK_TEXTS]
        part = part[np.argsort(lengths[part], kind="stable")]
        while len(part):
            longest = lengths[part[min(MAX_BLOCK_TEXTS, len(part)) - 1]]
            size = max(1, min(MAX_BLOCK_TEXTS, MAX_BLOCK_NGRAMS // max(1, longest)))
            blocks.append(part[:size])
            part = part[size:]
    yield from blocks if generator is None else (blocks[i] for i in generator.permutation(len(blocks)))
