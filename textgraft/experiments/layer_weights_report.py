"""Report of `inspect weights`: one self-contained HTML file, made from results.json alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from textgraft.core import formatting
from textgraft.report import html
from textgraft.report.plots import ACCENT, Plot, laid_out, shortened, style

READING_NOTE = (
    "How to read it: each row is a model, each cell the weight of a layer in the input of its head, after the "
    "softmax; a row adds up to 1. Darker cells have higher weights. Training begins with equal weights, so a row of "
    "equal weights shows no learned preference. Gamma scales the whole mix. Where layers are not normalised (layer "
    "aggregation mix), a layer of long vectors contributes more than its weight; with elmo-mix all have the same "
    "length."
)


def render_weights(results: Mapping[str, Any]) -> str:
    """Render the report as an HTML document.

    Args:
        results: The contents of results.json, as textgraft.experiments.layer_weights returns them.
    """
    head, rows = table_rows(results)
    css = ["", "", "", *["number"] * (len(head) - 3)]
    body = [
        html.figure(weights_plot(results)),
        html.paragraph(READING_NOTE, "quiet"),
        html.table(head, rows, caption="Layer weights and gamma; – where a model has fewer layers.", css=css),
    ]
    return html.page("Learned layer weights", html.section("weights", "Weights by model", *body))


def table_rows(results: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table of layer weights."""
    layers = _layers(results)
    rows = []
    for model in results["models"]:
        shares = [f"{share:.3f}" for share in model["shares"]]
        shares += [formatting.NOT_KNOWN] * (len(layers) - len(shares))
        rows.append([model["name"], model["task"], model["layer_aggregation"], *shares, f"{model['gamma']:.3f}"])
    return ["model", "task", "layer aggregation", *layers, "gamma"], rows


def weights_plot(results: Mapping[str, Any]) -> Plot:
    """Heat map of layer weights by model and layer, like figure 2 of Peters et al. 2018."""
    layers, models = _layers(results), results["models"]
    maximum = max(share for model in models for share in model["shares"])
    with style(), matplotlib.rc_context({"axes.grid": False}):
        figure = Figure(figsize=(1.8 + 0.85 * len(layers), 0.9 + 0.42 * len(models)))
        axis = figure.subplots()
        for row, model in enumerate(models):
            for column, share in enumerate(model["shares"]):
                shade = 0.75 * share / maximum
                axis.fill_between([column, column + 1], row, row + 1, color=ACCENT, alpha=shade, linewidth=0)
                axis.text(column + 0.5, row + 0.5, f"{share:.2f}", ha="center", va="center")
        axis.set_xticks([i + 0.5 for i in range(len(layers))], layers)
        axis.set_yticks([i + 0.5 for i in range(len(models))], [shortened(model["name"]) for model in models])
        axis.set(xlim=(0, len(layers)), ylim=(len(models), 0))
        axis.tick_params(length=0)
    tops = [
        f"{model['name']} mostly {model['layers'][model['shares'].index(max(model['shares']))]}" for model in models
    ]
    return laid_out(figure, f"Layer weights in the input of each model's head: {'; '.join(tops)}.")


def _layers(results: Mapping[str, Any]) -> list[str]:
    """Layer names of the deepest model."""
    deepest = max(results["models"], key=lambda model: len(model["layers"]))
    return list(deepest["layers"])
