"""The report of `inspect weights`: one self-contained HTML file made from results.json and from nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from textgraft.core import formatting
from textgraft.report import html
from textgraft.report.plots import ACCENT, Plot, laid_out, shortened, style

READ = (
    "How to read it: each row is a model, each cell the share of a layer in what its head reads, after the softmax; a "
    "row adds up to 1. The darker, the more of that layer. Training begins with equal shares, so a row of equal "
    "shares has learned no preference, or had no reason to. Gamma scales the whole mix. Where layers are not "
    "normalised (layer aggregation mix), a layer of long vectors weighs more than its share; with elmo-mix all are as "
    "long."
)


def render_weights(results: Mapping[str, Any]) -> str:
    """The report as an HTML document. `results` is what textgraft.experiments.layer_weights returns."""
    head, rows = table_rows(results)
    css = ["", "", "", *["number"] * (len(head) - 3)]
    body = [
        html.figure(weights_plot(results)),
        html.paragraph(READ, "quiet"),
        html.table(head, rows, caption="Shares and gamma; – where a model has fewer layers.", css=css),
    ]
    return html.page("Which layers have tasks learned to read?", html.section("weights", "Learned weights", *body))


def table_rows(results: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the table of shares."""
    layers = _layers(results)
    rows = []
    for one in results["models"]:
        shares = [f"{share:.3f}" for share in one["shares"]]
        shares += [formatting.NOT_KNOWN] * (len(layers) - len(shares))
        rows.append([one["name"], one["task"], one["layer_aggregation"], *shares, f"{one['gamma']:.3f}"])
    return ["model", "task", "layer_aggregation", *layers, "gamma"], rows


def weights_plot(results: Mapping[str, Any]) -> Plot:
    """The shares as a map of models and layers, like figure 2 of Peters et al. 2018."""
    layers, models = _layers(results), results["models"]
    most = max(share for one in models for share in one["shares"])
    with style(), matplotlib.rc_context({"axes.grid": False}):
        figure = Figure(figsize=(1.8 + 0.85 * len(layers), 0.9 + 0.42 * len(models)))
        axis = figure.subplots()
        for row, one in enumerate(models):
            for column, share in enumerate(one["shares"]):
                shade = 0.75 * share / most
                axis.fill_between([column, column + 1], row, row + 1, color=ACCENT, alpha=shade, linewidth=0)
                axis.text(column + 0.5, row + 0.5, f"{share:.2f}", ha="center", va="center")
        axis.set_xticks([i + 0.5 for i in range(len(layers))], layers)
        axis.set_yticks([i + 0.5 for i in range(len(models))], [shortened(one["name"]) for one in models])
        axis.set(xlim=(0, len(layers)), ylim=(len(models), 0))
        axis.tick_params(length=0)
    tops = [f"{one['name']} most of {one['layers'][one['shares'].index(max(one['shares']))]}" for one in models]
    return laid_out(figure, f"Shares of the layers in what each model reads: {'; '.join(tops)}.")


def _layers(results: Mapping[str, Any]) -> list[str]:
    """The names of the layers of the deepest model."""
    deepest = max(results["models"], key=lambda one: len(one["layers"]))
    return list(deepest["layers"])
