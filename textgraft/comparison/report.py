"""Report of `compare`: one self-contained HTML file, made from results.json alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from textgraft.core import formatting
from textgraft.data.problems import Problem
from textgraft.metrics.classification import Interval
from textgraft.metrics.paired_differences import difference_text, significance_text
from textgraft.report import html, plots
from textgraft.tasks.classification.report import data_problems

CURVE_NOTE = (
    "Each point is the mean over {seeds}. Each seed has its own stratified sample of the training texts, which all "
    "methods share and which contains the seed's smaller samples. The band is the 95 % interval over test texts and "
    "seeds."
)
COST_NOTE = (
    "Minutes are for one training and the predictions on the test texts; the one-time work of a method before it uses "
    "labels (training on the unlabelled texts) is included in each of its rows. Peak MB is the peak memory of the "
    "whole process, its data and libraries included; model MB is the size of the trained model. The description is "
    "that of the first seed's model."
)
TEST_NOTE = (
    "The method with the best mean against each other method on the same test texts. p is a paired test (McNemar's, "
    "or sign flips of the mean over seeds) with Holm's correction for the number of comparisons: would other test "
    "texts give the same order for these trained models? The interval of the difference also includes the variation "
    "between seeds, each of which has its own labels. A difference counts as more than chance if both agree. The best "
    "method is chosen on the same texts, which favours it slightly."
)
EFFICIENCY_NOTE = (
    "Each cell: the number of labels that the column's method needs for the score of the row. Between two measured "
    "numbers of labels, the score is interpolated linearly over the logarithm of the labels; the first crossing "
    "counts. “Not reached” means with any number of labels in this comparison; “at most” means that the fewest labels "
    "in this comparison are enough."
)


def render_curves(results: Mapping[str, Any]) -> str:
    """Render the report as an HTML document.

    Args:
        results: The contents of results.json, as textgraft.comparison.compare returns them.
    """
    facts = dict(results["run"])
    facts["methods"] = results["methods"]
    parts = {
        "results": ("Results", _results(results)),
        "efficiency": ("How many labels does each method need?", _efficiency(results)),
        "tests": ("Which differences are more than chance?", _tests(results)),
        "data": ("Data", [data_problems([Problem(**p) for p in results["problems"]])]),
        "run": ("Run and data", [html.facts(facts)]),
    }
    sections = {name: html.section(name, title, *body) for name, (title, body) in parts.items()}
    links = "".join(f'<li><a href="#{n}">{html.text(parts[n][0])}</a></li>' for n, body in sections.items() if body)
    verdict = "\n".join(html.paragraph(sentence) for sentence in results["verdict"])
    contents = f'<nav aria-label="Contents"><ul>{links}</ul></nav>'
    return html.page(
        "Learning curves by number of labels",
        "\n".join([f'<div class="verdict">{verdict}</div>', contents, *sections.values()]),
    )


def _names(results: Mapping[str, Any]) -> list[str]:
    return list(results["budgets"][0]["methods"])


def _interval(row: Mapping[str, Any]) -> Interval:
    return Interval(row["mean"], row["low"], row["high"])


def _results(results: Mapping[str, Any]) -> list[str]:
    metric, budgets = results["metric"], results["budgets"]
    curves = {name: [(b["labels"], _interval(b["methods"][name][metric])) for b in budgets] for name in _names(results)}
    second = next((m for m in ("macro_f1", "rmse") if m in budgets[0]["methods"][_names(results)[0]]), None)
    head = ["labels", "method", f"{formatting.metric_name(metric)} [95 % interval]", "spread over seeds"]
    head += [formatting.metric_name(second)] if second else []
    rows = [
        [f"{b['labels']:,}", name, *_scores(row, metric, second), *_costs(row), row.get("about", "")]
        for b in budgets
        for name, row in b["methods"].items()
    ]
    split = "a held-out part of the training texts" if results["held_out"] else "the test set"
    seeds = "one seed" if results["seeds"] == 1 else f"{results['seeds']} seeds"
    return [
        html.figure(plots.label_curves(curves, metric)),
        html.paragraph(CURVE_NOTE.format(seeds=seeds), "quiet"),
        html.table(
            [*head, "minutes", "peak MB", "model MB", "description"],
            rows,
            caption=f"On {results['test_n']:,} test texts ({split}).",
            css=["number", "", *["number"] * (len(head) + 1), "quiet"],
        ),
        html.paragraph(COST_NOTE, "quiet"),
    ]


def _scores(row: Mapping[str, Any], metric: str, second: str | None) -> list[str]:
    score = row[metric]
    cells = [formatting.interval(*_interval(score), metric), formatting.score(score.get("spread"), metric)]
    if second:
        cells.append(formatting.score((row.get(second) or {}).get("mean"), second))
    return cells


def _costs(row: Mapping[str, Any]) -> list[str]:
    return [f"{row['minutes']:,.2f}", f"{row['peak_mb']:,}", f"{row['model_mb']:,.3g}"]


def _efficiency(results: Mapping[str, Any]) -> list[str]:
    names, metric = _names(results), results["metric"]
    targets = list(dict.fromkeys((e["at"], e["reaches"], e["score"]) for e in results["label_efficiency"]))
    needed_labels = {(e["at"], e["reaches"], e["method"]): needed_text(e) for e in results["label_efficiency"]}
    rows = [
        [
            f"{goal} with {at:,}",
            formatting.score(score, metric),
            *("" if name == goal else needed_labels[at, goal, name] for name in names),
        ]
        for at, goal, score in sorted(targets, key=lambda g: (g[0], names.index(g[1])))
    ]
    head = ["score of this method", formatting.metric_name(metric), *names]
    caption = "Labels that each method needs for the same score."
    return (
        [
            html.table(head, rows, caption=caption, css=["", *["number"] * (len(head) - 1)]),
            html.paragraph(EFFICIENCY_NOTE, "quiet"),
        ]
        if rows
        else []
    )


def needed_text(entry: Mapping[str, Any]) -> str:
    """`about 640`, `at most 50` or `not reached`."""
    return entry["how"] if entry["labels"] is None else f"{entry['how']} {entry['labels']:,}"


def _tests(results: Mapping[str, Any]) -> list[str]:
    metric, rows = results["metric"], []
    for budget in results["budgets"]:
        best = budget["winner"]
        for name, test in best["tests"].items():
            p = formatting.p_value(test["p_holm"])
            rows.append(
                [
                    f"{budget['labels']:,}",
                    best["leader"],
                    name,
                    difference_text(test, metric),
                    p,
                    significance_text(test),
                ]
            )
    if not rows:
        return []
    head = ["labels", "best mean", "compared with", "difference [95 % interval]", "p", "more than chance?"]
    css = ["number", "", "", "number", "number", ""]
    return [
        html.table(head, rows, caption="The best method against each other method.", css=css),
        html.paragraph(TEST_NOTE, "quiet"),
    ]


def table_text(results: Mapping[str, Any]) -> str:
    """Results at each number of labels and the verdict, as plain text."""
    metric = results["metric"]
    head = [
        "labels",
        "method",
        f"{formatting.metric_name(metric)} [95 % interval]",
        "spread",
        "minutes",
        "peak MB",
        "model MB",
    ]
    rows = [
        [f"{b['labels']:,}", name, *_scores(row, metric, None), *_costs(row)]
        for b in results["budgets"]
        for name, row in b["methods"].items()
    ]
    return "\n".join([formatting.aligned([head, *rows], left={1}), "", *results["verdict"]])
