"""How contextual are words' vectors? The measures of Ethayarajh 2019 (EMNLP, "How Contextual are Contextualized Word
Representations?"), definitions 1-3 and equation 4, with bootstrap draws of each.

All of them are of cosines or of directions, so each is found from vectors of length 1 and sums over them: a mean over
all pairs takes as long as one over all vectors. A vector of zeros has a cosine of 0 to all others.
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
    """(..., D) scaled to length 1 in float64; zeros stay zeros."""
    wide = np.asarray(vectors, dtype=np.float64)
    lengths = np.linalg.norm(wide, axis=-1, keepdims=True)
    return np.asarray(wide / np.where(lengths > 0, lengths, 1.0))


def mean_cosine(vectors: Vectors) -> float:
    """The mean cosine of all pairs of different rows (N, D).

    Of a word's occurrences it is its self-similarity (definition 1), of occurrences of words drawn at random the
    baseline that says how anisotropic a layer is (equation 4). Raises ValueError for fewer than two.
    """
    if len(vectors) < 2:
        raise ValueError("a mean over pairs takes two vectors.")
    units = directions(vectors)
    total, own, n = units.sum(axis=0), float((units**2).sum()), len(units)
    return float((total @ total - own) / (n * (n - 1)))


def intra_similarity(vectors: Vectors) -> float:
    """The mean cosine of a sentence's word vectors (W, D) to their mean (definition 2)."""
    mean = np.asarray(vectors, dtype=np.float64).mean(axis=0)
    return float((directions(vectors) @ directions(mean)).mean())


def explained_variance(vectors: Vectors) -> float:
    """The share of the squared singular values of a word's occurrences (N, D) that is the largest's (definition 3).

    1 if one static vector could stand for all of them; never below 1 / N. The matrix is taken as it is, not centred,
    as in the paper. Vectors that are all zeros are one and the same: 1.
    """
    wide = np.asarray(vectors, dtype=np.float64)
    squares = np.linalg.svd(wide, compute_uv=False) ** 2
    return float(squares[0] / squares.sum()) if squares.sum() > 0 else 1.0


def cone(vectors: Vectors) -> float:
    """The mean cosine of vectors (N, D) to the axis of the cone that they lie in, the mean of their directions.

    0 for vectors that point everywhere alike, 1 for vectors that all point one way (Gao et al. 2019, ICLR, found those
    of a language model's output in a narrow cone).
    """
    return float(np.linalg.norm(directions(vectors).mean(axis=0)))


def drawn_means(values: Sequence[float] | NDArray, generator: np.random.Generator, resamples: int = RESAMPLES) -> Draws:
    """(R,) means of as many values drawn with replacement: words, or sentences."""
    all_of = np.asarray(values, dtype=np.float64)
    return np.asarray(all_of[generator.integers(0, len(all_of), (resamples, len(all_of)))].mean(axis=1))


def drawn_mean_cosines(vectors: Vectors, generator: np.random.Generator, resamples: int = RESAMPLES) -> Draws:
    """(R,) the mean cosine of pairs among rows drawn with replacement; a row is no pair with itself, drawn twice."""
    units, n = directions(vectors), len(vectors)
    cosines = units @ units.T
    times = generator.multinomial(n, np.full(n, 1 / n), size=resamples).astype(np.float64)
    sums = ((times @ cosines) * times).sum(axis=1) - times**2 @ np.diagonal(cosines)
    pairs = n**2 - (times**2).sum(axis=1)
    return np.asarray(np.divide(sums, pairs, out=np.full(resamples, np.nan), where=pairs > 0))


def interval(value: float, draws: Draws, level: float = 0.95) -> Interval:
    """A value with the percentiles of its bootstrap draws around it."""
    tail = (1 - level) / 2
    low, high = np.nanquantile(draws, [tail, 1 - tail])
    return Interval(value, float(low), float(high))
