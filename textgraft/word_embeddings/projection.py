"""Word vectors in two dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from textgraft.core.errors import UserError, did_you_mean
from textgraft.word_embeddings.word_vectors import WordVectors, unit


def pca(vectors: NDArray[np.float32], seed: int = 0) -> NDArray[np.float64]:
    """(N, 2) on the two axes along which the vectors (N, D) differ most; each axis points to its largest part."""
    centred = vectors.astype(np.float64) - vectors.mean(axis=0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    axes = axes[:2] * np.sign(axes[:2][np.arange(len(axes[:2])), np.abs(axes[:2]).argmax(axis=1)])[:, None]
    points = centred @ axes.T
    return np.pad(points, ((0, 0), (0, 2 - points.shape[1])))


def tsne(vectors: NDArray[np.float32], seed: int = 0) -> NDArray[np.float64]:
    """(N, 2) in which near vectors stay near (van der Maaten & Hinton 2008), by scikit-learn; distances far off lie."""
    from sklearn.manifold import TSNE

    perplexity = min(30.0, (len(vectors) - 1) / 3)
    found = TSNE(n_components=2, perplexity=perplexity, init="pca", random_state=seed).fit_transform(vectors)
    return np.asarray(found, dtype=np.float64)


PROJECTIONS: dict[str, Callable[[NDArray[np.float32], int], NDArray[np.float64]]] = {"pca": pca, "tsne": tsne}
LEAST = 4


def project(
    vectors: WordVectors, words: Sequence[str], *, method: str = "pca", seed: int = 0
) -> tuple[list[str], NDArray[np.float64]]:
    """Those of the words that have a vector, and where they lie, (N, 2); vectors are scaled to length 1 before.

    Raises UserError for an unknown method, and for fewer than four words.
    """
    if method not in PROJECTIONS:
        raise UserError(f"unknown projection '{method}'.", remedy=did_you_mean(method, PROJECTIONS))
    asked = list(dict.fromkeys(words))
    rows = vectors.vectors(asked)
    known: NDArray[np.bool_] = np.any(rows != 0, axis=1)
    if known.sum() < LEAST:
        message = f"{int(known.sum())} of the words have a vector, and a map takes {LEAST}."
        raise UserError(message, remedy="Name more words.")
    points = PROJECTIONS[method](unit(rows[known]), seed)
    return [word for word, there in zip(asked, known.tolist(), strict=True) if there], points
