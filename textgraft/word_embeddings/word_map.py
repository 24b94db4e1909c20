"""Map of word vectors in two dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import matplotlib
from matplotlib.figure import Figure
from numpy.typing import NDArray

from textgraft.report.plots import ACCENT, INK, Plot, laid_out, shortened, style

if TYPE_CHECKING:
    from textgraft.word_embeddings.word_vectors import WordVectors

NAMES = {"pca": "principal components", "tsne": "t-SNE"}


def plot_vectors(vectors: WordVectors, words: Sequence[str], *, method: str = "pca", seed: int = 0) -> Plot:
    """Plot a map of words, by principal components or t-SNE; words without a vector are left out.

    Raises:
        UserError: As word_embeddings.projection.project.
    """
    from textgraft.word_embeddings.projection import project

    shown, points = project(vectors, words, method=method, seed=seed)
    return word_map(shown, points, NAMES[method])


def word_map(words: Sequence[str], points: NDArray, name: str) -> Plot:
    """Plot `points` (N, 2) labelled with their words."""
    with style(), matplotlib.rc_context({"axes.grid": False}):
        side = min(12.0, 5.0 + len(words) / 40)
        figure = Figure(figsize=(side * 1.3, side))
        axis = figure.add_subplot()
        axis.scatter(points[:, 0], points[:, 1], s=10, color=ACCENT)
        for word, (x, y) in zip(words, points.tolist(), strict=True):
            axis.annotate(shortened(word), (x, y), xytext=(3, 2), textcoords="offset points", fontsize=8, color=INK)
        axis.set_title(f"{len(words):,} words by {name}")
        axis.set_xticks([])
        axis.set_yticks([])
        return laid_out(figure, f"Map of {len(words):,} words by {name}: {', '.join(map(shortened, words[:20]))}.")
