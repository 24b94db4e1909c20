"""Heat map of an alignment: attention weights of a translation over its source."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from textgraft.report.plots import ACCENT, Plot, laid_out, shortened, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from textgraft.tasks.translation.predictor import Alignment


def alignment(result: Alignment) -> Plot:
    """The weights (T', S), with source words across and target words down, as Bahdanau et al. 2015, figure 3.

    Darker is higher; the weights of a row sum to 1, or less with local-p attention.
    """
    width, height = len(result.source), len(result.target)
    with style():
        figure = Figure(figsize=(max(2.4, 0.34 * width) + 1.6, max(1.6, 0.3 * height) + 1.2))
        heat_map(figure.subplots(), result)
    pairs = ((word, result.source[int(row.argmax())]) for word, row in zip(result.target, result.weights, strict=True))
    to_dict = ", ".join(f"{target} to {source}" for target, source in pairs)
    return laid_out(figure, f"The source word of the highest weight for each target word: {to_dict}.")


def heat_map(axis: Axes, result: Alignment) -> None:
    """Draw the weights of an alignment on `axis`."""
    source, target = ([shortened(word) for word in side] for side in (result.source, result.target))
    for row, weights in enumerate(result.weights):
        for column, weight in enumerate(weights):
            if weight >= 0.005:
                box = ([column, column + 1], row, row + 1)
                axis.fill_between(*box, color=ACCENT, alpha=float(min(1.0, weight)), linewidth=0)
    axis.set_xticks(np.arange(len(source)) + 0.5, source, rotation=60, ha="left", rotation_mode="anchor")
    axis.set_yticks(np.arange(len(target)) + 0.5, target)
    axis.xaxis.tick_top()
    axis.set(xlim=(0, len(source)), ylim=(len(target), 0))
    axis.grid(False)
    axis.tick_params(length=0)
