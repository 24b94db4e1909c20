"""Projection of word vectors to two dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from textgraft.core.errors import UserError, did_you_mean
from textgraft.word_embeddings.word_vectors import WordVectors, unit


def pca(vectors: NDArray[np.float32], seed: int = 0) -> NDArray[np.float64]:
    """Points (N, 2) on the first two principal axes of the vectors (N, D); each axis points to
    its largest component.
    """
    centred = vectors.astype(np.float64) - vectors.mean(axis=0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    axes = axes[:2] * np.sign(axes[:2][np.arange(len(axes[:2])), np.abs(axes[:2]).argmax(axis=1)])[:, None]
    points = centred @ axes.T
    return np.pad(points, ((0, 0), (0, 2 - points.shape[1])))


def tsne(vectors: NDArray[np.float32], seed: int = 0) -> NDArray[np.float64]:
    """Points (N, 2) by scikit-learn's t-SNE (van der Maaten & Hinton 2008), which preserves neighbourhoods, not large
    distances.
    """
    from sklearn.manifold import TSNE

    perplexity = min(30.0, (len(vectors) - 1) / 3)
    points = TSNE(n_components=2, perplexity=perplexity, init="pca", random_state=seed).fit_transform(vectors)
    return np.asarray(points, dtype=np.float64)


PROJECTIONS: dict[str, Callable[[NDArray[np.float32], int], NDArray[np.float64]]] = {"pca": pca, "tsne": tsne}
MIN_WORDS = 4


def project(
    vectors: WordVectors, words: Sequence[str], *, method: str = "pca", seed: int = 0
) -> tuple[list[str], NDArray[np.float64]]:
    """Project the words that have vectors, scaled to unit length.

    Returns:
        The words, and their points (N, 2).

    Raises:
        UserError: The method is unknown, or fewer than four words have vectors.
    """
    if method not in PROJECTIONS:
        raise UserError(f"unknown projection '{method}'.", remedy=did_you_mean(method, PROJECTIONS))
    distinct = list(dict.fromkeys(words))
    rows = vectors.vectors(distinct)
    covered: NDArray[np.bool_] = np.any(rows != 0, axis=1)
    if covered.sum() < MIN_WORDS:
        message = f"{int(covered.sum())} of the words have a vector; a map needs {MIN_WORDS}."
        raise UserError(message, remedy="Give more words.")
    points = PROJECTIONS[method](unit(rows[covered]), seed)
    return [word for word, is_covered in zip(distinct, covered.tolist(), strict=True) if is_covered], points
