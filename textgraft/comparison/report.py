"""The report of `compare`: one self-contained HTML file made from results.json and from nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from textgraft.core import formatting
from textgraft.data.checks import Problem
from textgraft.metrics.classification import Interval
from textgraft.metrics.paired_differences import difference_text, significance_text
from textgraft.report import html, plots
from textgraft.tasks.classification.report import data_problems

EXPLAINED = (
    "Each point is the mean over {seeds}, each with a stratified sample of the training texts of its own that all "
    "methods share and that holds its smaller samples; the band is the 95 % interval over test texts and seeds."
)
COSTS = (
    "Minutes are for one training and the answers to the test texts, and hold in every row what a method does once, "
    "before it sees a label (reading the unlabelled texts). Peak MB is what the whole process took meanwhile, its data "
    "and libraries included; model MB is what the trained model takes. What it is: by the first seed's training."
)
TESTED = (
    "The method with the best mean beside every other on the same test texts. p is a paired test (McNemar's, or sign "
    "flips of the mean over seeds) with Holm's correction for the number of comparisons; it asks whether other texts "
    "would say so too, of the models that were trained. The interval of the difference holds the luck of the seeds as "
    "well, each of which has labels of its own. Both have to be clear of chance. The best is picked by the same texts, "
    "which favours it a little."
)
CROSSED = (
    "Each cell: how many labels the column's method needs for the score of the row. Between two numbers of labels "
    "that were tried, the score is taken to change evenly with the logarithm of the labels; the first crossing counts. "
    "“Not reached” is with any number that was tried; “at most” is where the fewest that were tried are enough."
)


def render_curves(results: Mapping[str, Any]) -> str:
    """The report as an HTML document. `results` is what textgraft.comparison.compare returns."""
    facts = dict(results["run"])
    facts["methods"] = results["methods"]
    parts = {
        "results": ("Results", _results(results)),
        "efficiency": ("How many labels is that worth?", _efficiency(results)),
        "tests": ("Which differences are more than chance?", _tests(results)),
        "data": ("Data", [data_problems([Problem(**p) for p in results["problems"]])]),
        "run": ("What was run, and on what", [html.facts(facts)]),
    }
    sections = {name: html.section(name, title, *body) for name, (title, body) in parts.items()}
    links = "".join(f'<li><a href="#{n}">{html.text(parts[n][0])}</a></li>' for n, body in sections.items() if body)
    verdict = "\n".join(html.paragraph(sentence) for sentence in results["verdict"])
    contents = f'<nav aria-label="Contents"><ul>{links}</ul></nav>'
    return html.page(
        "How many labels does it take?",
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
    split = "a part of the training texts that was held out once" if results["held_out"] else "the test set"
    seeds = "one seed" if results["seeds"] == 1 else f"{results['seeds']} seeds"
    return [
        html.figure(plots.label_curves(curves, metric)),
        html.paragraph(EXPLAINED.format(seeds=seeds), "quiet"),
        html.table(
            [*head, "minutes", "peak MB", "model MB", "what it is"],
            rows,
            caption=f"On {results['test_n']:,} test texts ({split}).",
            css=["number", "", *["number"] * (len(head) + 1), "quiet"],
        ),
        html.paragraph(COSTS, "quiet"),
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
    goals = list(dict.fromkeys((e["at"], e["reaches"], e["score"]) for e in results["label_efficiency"]))
    needed = {(e["at"], e["reaches"], e["method"]): needed_text(e) for e in results["label_efficiency"]}
    rows = [
        [
            f"{goal} with {at:,}",
            formatting.score(score, metric),
            *("" if name == goal else needed[at, goal, name] for name in names),
        ]
        for at, goal, score in sorted(goals, key=lambda g: (g[0], names.index(g[1])))
    ]
    head = ["what this method has", formatting.metric_name(metric), *names]
    caption = "Labels that each method needs to have it too."
    return (
        [
            html.table(head, rows, caption=caption, css=["", *["number"] * (len(head) - 1)]),
            html.paragraph(CROSSED, "quiet"),
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
        found = budget["winner"]
        for name, test in found["tests"].items():
            p = formatting.p_value(test["p_holm"])
            rows.append(
                [
                    f"{budget['labels']:,}",
                    found["leader"],
                    name,
                    difference_text(test, metric),
                    p,
                    significance_text(test),
                ]
            )
    if not rows:
        return []
    head = ["labels", "best mean", "beside", "difference [95 % interval]", "p", "is it more than chance?"]
    css = ["number", "", "", "number", "number", ""]
    return [
        html.table(head, rows, caption="The best method beside each other one.", css=css),
        html.paragraph(TESTED, "quiet"),
    ]


def table_text(results: Mapping[str, Any]) -> str:
    """Results, label efficiency of the best at each number of labels, and the verdict, as plain text."""
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
