"""The report of a model as one self-contained HTML file: scores beside baselines, errors, calibration, data, run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from textgraft.core import formatting
from textgraft.core.files import relative_path, write_atomically
from textgraft.data.sequences import Truncation
from textgraft.report import html, plots

if TYPE_CHECKING:
    from textgraft.data.problems import Problem
    from textgraft.metrics.calibration import Coverage, Reliability
    from textgraft.metrics.classification import ClassScores, Interval, PairedTest
    from textgraft.training.phases import ScheduleRow

EXCERPT = 360
"""Characters of a text that the report shows: two thirds from its start, one third from its end."""
MAX_PAIRS = 20
LOWER_IS_BETTER = ("mae", "rmse", "log_loss", "perplexity")


@dataclass(frozen=True)
class Method:
    """A method with its score on the test set and its costs; None is unknown."""

    name: str
    score: Interval | None = None
    spread: float | None = None  # standard deviation between seeds
    minutes: float | None = None
    peak_mb: float | None = None
    about: str = ""
    difference: PairedTest | None = None  # of the report's own model to this one


@dataclass(frozen=True)
class Mistake:
    """A test text with a wrong prediction of high probability, and its place in the data."""

    text: str
    true: str
    predicted: str
    confidence: float
    place: str


@dataclass(frozen=True)
class Report:
    """Contents of a report; a section whose fields are empty is left out.

    `histories` are validation rows (`phase`, `epoch`, `train_loss`, `loss`, metrics) by the name of the run;
    `schedule_curves` the learning rate of every step by layer group, bottom -> top; `facts` the configuration, data and
    machine of the run (a mapping in it becomes a block of its own); `confusion` (C, C), rows true, columns predicted.
    """

    title: str
    headline: str = ""  # the result in words for anyone
    verdict: str = ""
    metric: str = "accuracy"
    texts: str = ""  # the texts that were measured on: "100 texts"
    methods: Sequence[Method] = ()
    scores: Mapping[str, float | None] = field(default_factory=dict)
    classes: Sequence[str] = ()
    confusion: NDArray | None = None
    per_class: Sequence[ClassScores] = ()
    reliability: Mapping[str, Reliability] = field(default_factory=dict)
    temperature: float | None = None
    coverage: Sequence[Coverage] = ()
    mistakes: Sequence[Mistake] = ()
    mistakes_in: str = "place"  # what the places of mistakes are: "line of test.csv"
    histories: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    schedule: Sequence[ScheduleRow] = ()
    schedule_curves: Mapping[str, Sequence[float]] = field(default_factory=dict)
    steps_per_epoch: int = 1
    truncation: Truncation | None = None
    problems: Sequence[Problem] | None = None  # (): the data were checked, without findings
    facts: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""  # how the results were measured


def write_report(path: Path | str, report: Report) -> Path:
    """Write `report` as one HTML file: style and plots inside, no script, nothing fetched, safe with any text.

    The same report gives the same bytes.

    Raises:
        UserError: The file cannot be written.
    """
    path = Path(path)
    write_atomically(path, render(report).encode("utf-8"))
    return path


def render(report: Report) -> str:
    """The report as an HTML document."""
    parts = {
        "results": ("Results", _results(report)),
        "mistakes": ("Most confident mistakes", [_mistakes(report)]),
        "confusion": ("Confusion matrix", _confusion(report)),
        "classes": ("By class", [_per_class(report)]),
        "calibration": ("Calibration", _calibration(report)),
        "curves": ("Learning curves", _curves(report)),
        "schedule": ("Schedule", _schedule(report)),
        "data": ("Data", _data(report)),
        "run": ("Run", [html.facts(report.facts)]),
    }
    sections = {name: html.section(name, title, *body) for name, (title, body) in parts.items()}
    links = "".join(f'<li><a href="#{n}">{html.text(parts[n][0])}</a></li>' for n, body in sections.items() if body)
    contents = f'<nav aria-label="Contents"><ul>{links}</ul></nav>' if links else ""
    opening = html.paragraph(report.headline or report.verdict, "verdict")
    evidence = html.paragraph(report.verdict) if report.headline else ""
    body = [opening, evidence, contents, *sections.values()]
    return html.page(report.title, "\n".join(part for part in body if part))


def confident_mistakes(
    texts: Sequence[str],
    targets: NDArray,
    probabilities: NDArray,
    names: Sequence[str],
    places: Sequence[str],
    *,
    most: int = 20,
) -> list[Mistake]:
    """The wrong predictions with the highest probabilities, highest first.

    Args:
        texts: N texts.
        targets: (N,) class indices.
        probabilities: (N, C).
        names: Names of the classes.
        places: The place of each text in the data, such as "37".
        most: Maximum number of mistakes.
    """
    predicted, confidence = probabilities.argmax(1), probabilities.max(1)
    wrong = np.flatnonzero(predicted != targets)
    wrong = wrong[np.argsort(-confidence[wrong], kind="stable")][:most]
    return [
        Mistake(texts[i], names[targets[i]], names[predicted[i]], float(confidence[i]), places[i])
        for i in wrong.tolist()
    ]


def excerpt(value: str, length: int = EXCERPT) -> str:
    """The start and the end of a text that is longer than `length` characters."""
    if len(value) <= length:
        return value
    tail = length // 3
    return f"{value[: length - tail].rstrip()} […] {value[-tail:].lstrip()}"


def _results(report: Report) -> list[str]:
    scores = {m.name: m.score for m in report.methods if m.score is not None}
    columns: list[tuple[str, list[str]]] = [
        (
            f"{formatting.metric_name(report.metric)} [95 % interval]",
            [formatting.interval(*m.score, report.metric) if m.score else formatting.NOT_KNOWN for m in report.methods],
        ),
        (
            "spread over seeds",
            [_cell(m.spread, lambda s: formatting.score(s, report.metric)) for m in report.methods],
        ),
        (
            "this model − method",
            [_cell(m.difference, _difference(report.metric)) for m in report.methods],
        ),
        ("minutes", [_cell(m.minutes, lambda v: f"{v:,.1f}") for m in report.methods]),
        ("peak MB", [_cell(m.peak_mb, lambda v: f"{v:,.0f}") for m in report.methods]),
    ]
    shown = [(head, cells) for head, cells in columns if any(cell != formatting.NOT_KNOWN for cell in cells)]
    rows = [[m.name, *(cells[i] for _, cells in shown), m.about] for i, m in enumerate(report.methods)]
    head = ["method", *(head for head, _ in shown), "description"]
    where = f"On {report.texts or 'the test texts'}."
    others = [[_title(name), formatting.score(value, name)] for name, value in report.scores.items()]
    return [
        html.figure(plots.methods(scores, report.metric)) if len(scores) > 1 else "",
        html.table(head, rows, caption=where, css=["", *["number"] * len(shown), "quiet"]),
        html.table(["score", "value"], others, caption="All scores of this model.", css=["", "number"]),
        html.paragraph(report.note, "quiet"),
    ]


def _difference(metric: str) -> Any:
    def show(test: PairedTest) -> str:
        gap = f"{100 * test.difference:+.1f} points" if formatting.is_share(metric) else f"{test.difference:+.4g}"
        return f"{gap} ({formatting.p_value(test.p)})"

    return show


def _mistakes(report: Report) -> str:
    rows = [[m.place, m.true, m.predicted, f"{100 * m.confidence:.1f} %", excerpt(m.text)] for m in report.mistakes]
    caption = "Some of these may be wrong labels in the data."
    return html.table(
        [report.mistakes_in, "true", "predicted", "confidence", "text"],
        rows,
        caption=caption,
        css=["place", "", "", "number", "text"],
    )


def _confusion(report: Report) -> list[str]:
    if report.confusion is None or not len(report.classes):
        return []
    counts = np.asarray(report.confusion)
    # The few cells that are not zero: thousands of classes make a matrix of millions.
    true, predicted = np.nonzero(counts)
    wrong = np.flatnonzero(true != predicted)
    wrong = wrong[np.argsort(-counts[true[wrong], predicted[wrong]], kind="stable")][:MAX_PAIRS]
    rows = []
    for t, p in zip(true[wrong].tolist(), predicted[wrong].tolist()):
        share = formatting.score(counts[t, p] / counts[t].sum(), "accuracy")
        rows.append([report.classes[t], report.classes[p], f"{counts[t, p]:,}", share])
    return [
        html.figure(plots.confusion(counts, report.classes)) if len(counts) <= 60 else "",
        html.table(
            ["true", "predicted", "texts", "of the true class"],
            rows,
            caption="Most frequent confusions.",
            css=["", "", "number", "number"],
        ),
    ]


def _per_class(report: Report) -> str:
    rows = [
        [c.name, *(formatting.score(v, "f1") for v in (c.precision, c.recall, c.f1)), f"{c.support:,}"]
        for c in report.per_class
    ]
    return html.table(
        ["class", "precision", "recall", "F1", "texts"],
        rows,
        caption=f"{formatting.NOT_KNOWN}: undefined (division by zero).",
        css=["", *["number"] * 4],
    )


def _calibration(report: Report) -> list[str]:
    parts = []
    if report.reliability:
        parts.append(html.figure(plots.reliability(report.reliability)))
        errors = [[name, _cell(d.ece, lambda e: f"{100 * e:.2f} %")] for name, d in report.reliability.items()]
        caption = "Expected calibration error (ECE): the mean gap between confidence and accuracy."
        parts.append(html.table(["probabilities", "ECE"], errors, caption=caption, css=["", "number"]))
    if report.temperature is not None:
        parts.append(html.paragraph(f"Temperature, fitted on held-out texts: {report.temperature:.3g}.", "quiet"))
    rows = []
    for c in report.coverage:
        answered, right = formatting.score(c.answered, "accuracy"), formatting.score(c.accuracy, "accuracy")
        rows.append([f"{100 * c.threshold:g} %", answered, f"{c.count:,}", right])
    caption = "Coverage and accuracy with abstention below a confidence (--abstain-below)."
    head = ["minimum confidence", "coverage", "texts", "accuracy"]
    return [*parts, html.table(head, rows, caption=caption, css=["", *["number"] * 3])]


def _curves(report: Report) -> list[str]:
    parts = []
    for name, rows in report.histories.items():
        if rows:
            parts += [f"<h3>{html.text(name)}</h3>", html.figure(plots.learning_curves(rows, report.metric))]
            parts.append(_history_table(rows, report.metric))
    return parts


def _history_table(rows: Sequence[Mapping[str, Any]], metric: str) -> str:
    names = {"phase": "phase", "epoch": "epoch", "train_loss": "training loss", "loss": "validation loss"}
    names[metric] = f"validation {formatting.metric_name(metric)}"
    keys = [key for key in names if any(row.get(key) is not None for row in rows)]

    def cell(row: Mapping[str, Any], key: str) -> str:
        value = row.get(key)
        return formatting.score(value, key) if isinstance(value, float) or value is None else str(value)

    cells = [[cell(row, key) for key in keys] for row in rows]
    css = ["" if key == "phase" else "number" for key in keys]
    return html.table([names[k] for k in keys], cells, caption="One row a validation.", css=css)


def _schedule(report: Report) -> list[str]:
    if not report.schedule:
        return []
    groups = list(dict.fromkeys(row.group for row in report.schedule))
    epochs: dict[tuple[int, str], dict[str, str]] = {}
    for row in report.schedule:
        rate = f"{row.peak:.3g}" if row.trainable else "frozen"
        epochs.setdefault((row.epoch, row.phase), {})[row.group] = rate
    rows = [
        [str(epoch), phase, *(rates.get(group, "") for group in groups)] for (epoch, phase), rates in epochs.items()
    ]
    curves = report.schedule_curves
    return [
        html.figure(plots.schedule(curves, report.steps_per_epoch)) if curves else "",
        html.table(
            ["epoch", "phase", *groups],
            rows,
            caption="Highest learning rate of each layer group in each epoch.",
            css=["", "", *["number"] * len(groups)],
        ),
    ]


def _data(report: Report) -> list[str]:
    parts = []
    if report.truncation is not None:
        t = report.truncation
        lost = f"{100 * t.lost_tokens / t.tokens:.2f} % of the tokens" if t.tokens else "No tokens"
        parts.append(html.paragraph(f"{lost} were lost to truncation ({t.cut_texts:,} of {t.texts:,} texts were cut)."))
    return parts if report.problems is None else [*parts, data_problems(report.problems)]


def data_problems(problems: Sequence[Problem]) -> str:
    """Findings of the check of the data, a table for each part of it, or a sentence that there are none."""
    if not problems:
        return html.paragraph("The data were checked; nothing suspicious was found.")
    by_source: dict[str, list[Problem]] = {}
    for problem in problems:
        by_source.setdefault(problem.source, []).append(problem)
    head = ["severity", "finding", "where", "what to do"]
    return "\n".join(
        html.table(
            head,
            [[p.severity, p.message, _place(p), p.remedy] for p in found],
            caption=f"Problems in {relative_path(source)}." if source else "Problems in the data.",
        )
        for source, found in by_source.items()
    )


def _place(problem: Problem) -> str:
    shown = ", ".join(str(line) for line in problem.lines[:8]) + (", …" if problem.count > 8 else "")
    return f"{problem.unit}{'s' * (len(problem.lines) > 1)} {shown}" if problem.lines else ""


def _cell(value: Any, show: Any) -> str:
    return formatting.NOT_KNOWN if value is None else show(value)


def _title(metric: str) -> str:
    name = formatting.metric_name(metric)
    return name.upper() if metric in ("mae", "rmse") else name[:1].upper() + name[1:]
