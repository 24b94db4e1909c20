"""Report of `tune`: one self-contained HTML file, made from results.json alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from textgraft.core import formatting
from textgraft.data.problems import Problem
from textgraft.metrics.classification import Interval
from textgraft.report import html
from textgraft.report.plots import ACCENT, SERIES, Plot, laid_out, style
from textgraft.tasks.classification.report import data_problems

READING_NOTE = (
    "Each point is a trial: its loss on the first fold, which all trials were trained on, by the value of one setting. "
    "The best trial is marked by a star, the recipe as it is by the dotted line. A setting that matters shows a slope "
    "or a valley; points at the edge of a range are a reason to widen it."
)
TABLE_NOTE = (
    "Trials with fewer folds were among the worse half after one of them, and their scores are of fewer texts. All are "
    "predictions of held-out texts."
)
COLUMNS = 3


def render_tuning(results: Mapping[str, Any]) -> str:
    """Render the report as an HTML document.

    Args:
        results: The contents of results.json, as textgraft.comparison.tuning.tune returns them.
    """
    head, rows = table_rows(results)
    caption = f"Trials from the recipe {results['recipe']}, in order of folds and {loss_name(results)}."
    table = html.table(head, rows, caption=caption, css=["number"] * (len(head) - 1) + [""])
    sections = [html.section("trials", "Trials", table, html.paragraph(TABLE_NOTE, "quiet"))]
    plot = settings_plot(results)
    if plot is not None:
        sections.append(
            html.section("settings", "What matters", html.figure(plot), html.paragraph(READING_NOTE, "quiet"))
        )
    sections.append(html.section("data", "Data", data_problems([Problem(**p) for p in results["problems"]])))
    sections.append(html.section("run", "Run and data", html.facts(results["run"])))
    verdict = f'<div class="verdict">{html.paragraph(results["verdict"])}</div>'
    return html.page("Search for settings", "\n".join([verdict, *sections]))


def loss_name(results: Mapping[str, Any]) -> str:
    """The loss in words."""
    return formatting.metric_name(results["loss"])


def ordered(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The trials, most folds and lowest loss first."""
    return sorted(results["trials"], key=lambda one: (-one["folds"], one.get("loss", math.inf), one["trial"]))


def table_rows(results: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table of trials."""
    metric, rows = results["metric"], []
    for one in ordered(results):
        score = formatting.interval(*_interval(one), metric) if "score" in one else "diverged"
        loss = f"{one['loss']:.3g}" if "loss" in one else ""
        shown = values_text(one["values"]) or "the recipe as it is"
        rows.append([str(one["trial"]), str(one["folds"]), loss, score, f"{one['seconds']:,.0f}", shown])
    return [
        "trial",
        "folds",
        loss_name(results),
        f"{formatting.metric_name(metric)} [95 % interval]",
        "s",
        "values",
    ], rows


def _interval(trial: Mapping[str, Any]) -> Interval:
    return Interval(**trial["score"])


def values_text(values: Mapping[str, Any]) -> str:
    """`batch_size 16, all.lr 0.0002`."""
    return ", ".join(f"{key.removeprefix('phases.')} {value}" for key, value in values.items())


def settings_plot(results: Mapping[str, Any]) -> Plot | None:
    """The loss on the first fold by the value of each setting; None where no trial has one."""
    trials = [one for one in results["trials"] if "first_loss" in one]
    drawn = [one for one in trials if one["values"]]
    keys = sorted({key for one in drawn for key in one["values"]})
    if not keys:
        return None
    base = next((one["first_loss"] for one in trials if not one["values"]), None)
    rows = math.ceil(len(keys) / COLUMNS)
    with style():
        figure = Figure(figsize=(9, 2.6 * rows))
        grid = figure.subplots(rows, COLUMNS, squeeze=False, sharey=True)
        for axis in grid.flat[len(keys) :]:
            axis.set_visible(False)
        for axis, key in zip(grid.flat, keys, strict=False):
            values = [one["values"][key] for one in drawn]
            numbers = _positions(axis, values)
            losses = [one["first_loss"] for one in drawn]
            axis.plot(numbers, losses, "o", color=ACCENT, alpha=0.7)
            best = [i for i, one in enumerate(drawn) if one["trial"] == results["best"]]
            axis.plot([numbers[i] for i in best], [losses[i] for i in best], "*", color=SERIES[1], markersize=12)
            if base is not None:
                axis.axhline(base, linestyle=":", color=SERIES[7], linewidth=1)
            axis.set_xlabel(key.removeprefix("phases."))
        for line in grid:
            line[0].set_ylabel(loss_name(results))
    return laid_out(figure, f"{loss_name(results)} of {len(drawn)} trials by {', '.join(keys)}.")


def _positions(axis: Any, values: Sequence[Any]) -> Sequence[float]:
    """Numbers as they are, on a logarithmic axis where they span a factor of five; else a place for each value."""
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        if min(values) > 0 and max(values) >= 5 * min(values):
            ticks = [float(f"{tick:.2g}") for tick in np.geomspace(min(values), max(values), 3)]
            axis.set_xscale("log")
            axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            axis.set_xticks([], minor=True)
        return values
    names = sorted({str(value) for value in values})
    axis.set_xticks(range(len(names)), names)
    return [names.index(str(value)) for value in values]
