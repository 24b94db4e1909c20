"""Measures of contextuality with bootstrap draws: Ethayarajh 2019 (EMNLP, "How Contextual are Contextualized Word
Representations?"), definitions 1-3 and equation 4.

All are functions of cosines or directions, so each is computed from unit vectors and their sums: a mean over all pairs
costs as much as one over all vectors. A zero vector has a cosine of 0 to all others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from textgraft.metrics.classification import Interval

Vectors = NDArray[np.floating]
Draws = NDArray[np.float64]
RESAMPLES = 1000


def directions(vectors: Vectors) -> NDArray[np.float64]:
    """Vectors (..., D) scaled to unit length in float64; zero vectors stay zero."""
    doubles = np.asarray(vectors, dtype=np.float64)
    lengths = np.linalg.norm(doubles, axis=-1, keepdims=True)
    return np.asarray(doubles / np.where(lengths > 0, lengths, 1.0))


def mean_cosine(vectors: Vectors) -> float:
    """Mean cosine of all pairs of different rows (N, D).

    For a word's occurrences this is its self-similarity (definition 1); for random words it is the baseline that
    measures anisotropy (equation 4).

    Raises:
        ValueError: There are fewer than two rows.

    >>> mean_cosine(np.array([[1.0, 0.0], [0.0, 2.0]]))
    0.0
    """
    if len(vectors) < 2:
        raise ValueError("a mean over pairs needs two vectors.")
    units = directions(vectors)
    total, diagonal, n = units.sum(axis=0), float((units**2).sum()), len(units)
    return float((total @ total - diagonal) / (n * (n - 1)))


def intra_similarity(vectors: Vectors) -> float:
    """Mean cosine of a sentence's word vectors (W, D) to their mean (definition 2)."""
    mean = np.asarray(vectors, dtype=np.float64).mean(axis=0)
    return float((directions(vectors) @ directions(mean)).mean())


def explained_variance(vectors: Vectors) -> float:
    """Share of the largest squared singular value in all those of a word's occurrences (N, D) (definition 3).

    It is 1 if a single static vector can replace all of them, and at least 1 / N. The matrix is not centred, as in the
    paper. Zero vectors count as equal: 1.
    """
    doubles = np.asarray(vectors, dtype=np.float64)
    squares = np.linalg.svd(doubles, compute_uv=False) ** 2
    return float(squares[0] / squares.sum()) if squares.sum() > 0 else 1.0


def cone(vectors: Vectors) -> float:
    """Mean cosine of vectors (N, D) to the axis of their cone, the mean of their directions.

    It is 0 for isotropic vectors and 1 for vectors of one direction (Gao et al. 2019, ICLR, found the output embeddings
    of a language model in a narrow cone).
    """
    return float(np.linalg.norm(directions(vectors).mean(axis=0)))


def drawn_means(values: Sequence[float] | NDArray, generator: np.random.Generator, resamples: int = RESAMPLES) -> Draws:
    """Bootstrap means (R,) of values, resampled with replacement: of words, or of sentences."""
    array = np.asarray(values, dtype=np.float64)
    return np.asarray(array[generator.integers(0, len(array), (resamples, len(array)))].mean(axis=1))


def drawn_mean_cosines(vectors: Vectors, generator: np.random.Generator, resamples: int = RESAMPLES) -> Draws:
    """Bootstrap draws (R,) of the mean cosine over pairs of rows; a row that is drawn twice does not
    pair with itself.
    """
    units, n = directions(vectors), len(vectors)
    cosines = units @ units.T
    times = generator.multinomial(n, np.full(n, 1 / n), size=resamples).astype(np.float64)
    sums = ((times @ cosines) * times).sum(axis=1) - times**2 @ np.diagonal(cosines)
    pairs = n**2 - (times**2).sum(axis=1)
    return np.asarray(np.divide(sums, pairs, out=np.full(resamples, np.nan), where=pairs > 0))


def interval(value: float, draws: Draws, level: float = 0.95) -> Interval:
    """A value with the percentiles of its bootstrap draws."""
    tail = (1 - level) / 2
    low, high = np.nanquantile(draws, [tail, 1 - tail])
    return Interval(value, float(low), float(high))
