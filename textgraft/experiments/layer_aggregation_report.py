"""Report of `inspect layers`: one self-contained HTML file, made from results.json alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from textgraft.core import formatting
from textgraft.metrics.classification import Interval
from textgraft.report import html, plots
from textgraft.report.plots import Plot

READING_NOTE = (
    "How to read it: each row is one layer aggregation, with a head trained on top. Points are the score of all seeds "
    "together, lines and brackets its 95 % interval over {unit}; the spread is the standard deviation over seeds. "
    "Intervals of single rows may overlap although the rows differ, since all are measured on the same {unit}: the "
    "test against the last layer is paired, with Holm's correction for the number of tests. Nothing was chosen by the "
    "test set; picking the best row is a choice by it."
)


def render_layers(results: Mapping[str, Any]) -> str:
    """Render the report as an HTML document.

    Args:
        results: The contents of results.json, as textgraft.experiments.layer_aggregation returns them.
    """
    head, rows = table_rows(results)
    sizes = results["sizes"]
    caption = f"{sizes['train']:,} training {results['unit']}, {sizes['test']:,} test {results['unit']}."
    left_out = [f"Left out: {why}" for why in results["left_out"].values()]
    body = [
        html.figure(layer_scores_plot(results)),
        html.paragraph(READING_NOTE.format(unit=results["unit"]), "quiet"),
        html.table(head, rows, caption=caption, css=["", *["number"] * (len(head) - 1)]),
        *(html.paragraph(sentence, "quiet") for sentence in left_out),
    ]
    verdict = "\n".join(html.paragraph(sentence, "verdict") for sentence in results["verdict"])
    sections = [
        html.section("layers", "Layer aggregations", *body),
        html.section("run", "Run and data", html.facts(results["run"])),
    ]
    return html.page("Layer aggregations compared", "\n".join([verdict, *sections]))


def table_rows(results: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table of layer aggregations."""
    metric = results["metric"]
    head = ["layer aggregation", "width", f"{formatting.metric_name(metric)} [95 % interval]", "spread", "seeds"]
    rows = []
    for row in results["rows"]:
        score, test = row["score"], row["against_last"]
        shown = (
            formatting.NOT_KNOWN
            if score is None
            else formatting.interval(score["mean"], score["low"], score["high"], metric)
        )
        against = formatting.NOT_KNOWN if test is None else formatting.p_value(test["p_holm"])
        spread = formatting.score(row["spread"], metric)
        cells = [row["layer_aggregation"], f"{row['width']:,}", shown, spread, str(row["seeds"]), against]
        rows.append([*cells, f"{row['minutes']:.1f}"])
    return [*head, "against last", "minutes"], rows


def layer_scores_plot(results: Mapping[str, Any]) -> Plot:
    """Score of each layer aggregation with its interval, the best on top."""
    intervals = {
        row["layer_aggregation"]: Interval(**row["score"]) for row in results["rows"] if row["score"] is not None
    }
    return plots.methods(intervals, results["metric"])
