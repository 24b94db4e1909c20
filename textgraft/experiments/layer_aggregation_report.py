"""The report of `inspect layers`: one self-contained HTML file made from results.json and from nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from textgraft.core import formatting
from textgraft.metrics.classification import Interval
from textgraft.report import html, plots
from textgraft.report.plots import Plot

READ = (
    "How to read it: each row is one way to read the encoder's layers, with a head that learns over it. Points are the "
    "score of all seeds together, lines and brackets its 95 % interval over {unit}; the spread is the standard "
    "deviation over seeds. Intervals of single rows overlap sooner than the layer aggregations are alike, since all are measured "
    "on the same {unit}: the test against the last layer is paired, with Holm's correction for the number of tests. "
    "Nothing was chosen by the test set; who picks the best row has chosen by it."
)


def render_layers(results: Mapping[str, Any]) -> str:
    """The report as an HTML document. `results` is what textgraft.experiments.layer_aggregation returns."""
    head, rows = table_rows(results)
    sizes = results["sizes"]
    caption = f"{sizes['train']:,} {results['unit']} to learn from, {sizes['test']:,} to measure on."
    left_out = [f"Left out: {why}" for why in results["left_out"].values()]
    body = [
        html.figure(layer_scores_plot(results)),
        html.paragraph(READ.format(unit=results["unit"]), "quiet"),
        html.table(head, rows, caption=caption, css=["", *["number"] * (len(head) - 1)]),
        *(html.paragraph(sentence, "quiet") for sentence in left_out),
    ]
    told = "\n".join(html.paragraph(sentence, "verdict") for sentence in results["verdict"])
    sections = [
        html.section("layers", "Readouts", *body),
        html.section("run", "What was run, and on what", html.facts(results["run"])),
    ]
    return html.page("Which layers serve the task best?", "\n".join([told, *sections]))


def table_rows(results: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the table of layer aggregations."""
    metric = results["metric"]
    head = ["layer_aggregation", "width", f"{formatting.metric_name(metric)} [95 % interval]", "spread", "seeds"]
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
    """Each layer aggregation's score with its interval, the best on top."""
    known = {row["layer_aggregation"]: Interval(**row["score"]) for row in results["rows"] if row["score"] is not None}
    return plots.methods(known, results["metric"])
