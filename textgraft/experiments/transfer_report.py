"""Report of `inspect transfer`: one self-contained HTML file, made from results.json alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from textgraft.core import formatting
from textgraft.experiments.transfer_results import ARMS, BENEFITS, benefit, benefit_weights
from textgraft.metrics.paired_differences import difference_text, is_robust
from textgraft.report import html
from textgraft.report.plots import FAINT, INK, SERIES, Plot, laid_out, shortened, style

LINES = {"AnB": (SERIES[0], "-", "o"), "AnB+": (SERIES[2], "--", "s")}
LINES |= {"BnB": (SERIES[1], "-", "v"), "BnB+": (SERIES[3], "--", "^")}
ARM_DESCRIPTIONS = {
    "AnB": "the first n layer groups copied from the pretrained model and frozen, the rest fresh",
    "AnB+": "the same, with the copied groups fine-tuned too",
    "BnB": "the first n copied from a network trained on this task from scratch and frozen, the rest fresh",
    "BnB+": "the same, with the copied groups fine-tuned too",
}
METHOD_NOTE = (
    "Fresh layers and the head are the same in all networks of one seed, which are trained on the texts in the same "
    "order; B has seeds of its own. n = 0 is all fresh, as B is: the two differ only in their seeds. Bands and "
    "brackets are 95 % intervals over test texts{seeds}. p is a paired test on the same texts (McNemar's, or sign "
    "flips of the mean over seeds), with Holm's correction for the number of tests against the same reference; it "
    "holds for these trained networks, and only the interval includes the variation between seeds. Differences that "
    "are not more than chance by both are marked ns. All networks are measured after their last step; nothing is "
    "chosen by the test texts."
)
READING_NOTE = (
    "AnB below AnB+: the frozen layers are too specific to A. AnB falling with n: higher layers are less general. BnB "
    "below B: layers are co-adapted. AnB+ above B: pretraining helps."
)
BENEFIT_DEFINITIONS = {
    "start": "at the first measurement",
    "slope": "least squares over the first half of the measurements, an epoch",
    "asymptote": "the mean of the last quarter of the measurements",
}
BENEFITS_NOTE = (
    "A difference above 0 favours transfer, also for metrics where lower is better. A model that starts higher has "
    "less to gain: a slope below 0 beside a higher start is not a disadvantage. Both sides train for the same number "
    "of epochs at the same rates; the asymptote is the end of this training, not of a longer one."
)


def render_transfer(results: Mapping[str, Any]) -> str:
    """Render the report as an HTML document.

    Args:
        results: The contents of results.json, as textgraft.experiments.transfer returns them.
    """
    parts = {
        "layers": ("Which layers transfer?", _layers(results)),
        "benefits": ("Higher start, higher slope, higher asymptote", _benefits(results)),
        "run": ("Run and data", [html.facts(results["run"])]),
    }
    sections = {name: html.section(name, title, *body) for name, (title, body) in parts.items()}
    links = "".join(f'<li><a href="#{name}">{html.text(title)}</a></li>' for name, (title, _) in parts.items())
    verdict = "\n".join(html.paragraph(sentence, "verdict") for sentence in results["verdict"])
    contents = f'<nav aria-label="Contents"><ul>{links}</ul></nav>'
    return html.page("Benefits of transfer", "\n".join([verdict, contents, *sections.values()]))


def table_rows(results: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table of networks: score, spread, and the tests against n = 0 and B."""
    metric = results["metric"]
    head = ["network", "copied", f"{formatting.metric_name(metric)} [95 % interval]", "spread over seeds"]
    head += ["against n = 0", "against B"]
    networks = [
        ("linear", "", results["baseline"]),
        ("B", "nothing", results["b"]),
        ("n = 0", "nothing", results["fresh"]),
    ]
    networks += [
        (f"{cell['arm']}, n = {cell['n']}", _copied(results["groups"], cell["n"]), cell) for cell in results["cells"]
    ]
    rows = [
        [name, copied, formatting.interval(cell["mean"], cell["low"], cell["high"], metric)]
        + [formatting.score(cell["spread"], metric)]
        + [_test(cell.get(rival), metric) for rival in ("against_fresh", "against_b")]
        for name, copied, cell in networks
    ]
    return head, rows


def benefit_rows(results: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table of benefits."""
    metric = results["metric"]
    head = ["benefit", "pretrained", "from scratch", "difference [95 % interval]", "p", "definition"]
    rows = []
    for name, values in results["benefits"].items():
        sides = [formatting.score(values[side], metric) for side in ("pretrained", "scratch")]
        p = formatting.p_value(values["p"])
        rows.append([f"higher {name}", *sides, benefit(values, metric, name), p, BENEFIT_DEFINITIONS[name]])
    return head, rows


def _copied(groups: Sequence[str], n: int) -> str:
    return "all but the head" if n == len(groups) else f"up to {groups[n - 1]}"


def _test(test: Mapping[str, float] | None, metric: str) -> str:
    if test is None:
        return formatting.NOT_KNOWN
    p = f"{formatting.p_value(test['p_holm'])}{'' if is_robust(test) else ', ns'}"
    return f"{difference_text(test, metric)} ({p})"


def _layers(results: Mapping[str, Any]) -> list[str]:
    head, rows = table_rows(results)
    seeds = f" and {results['seeds']} seeds" if results["seeds"] > 1 else "; with one seed there is no spread"
    split = "a held-out fifth of the training texts" if results["held_out"] else "the test set"
    return [
        html.figure(layers_plot(results)),
        html.paragraph("; ".join(f"{arm}: {about}" for arm, about in ARM_DESCRIPTIONS.items()) + ".", "quiet"),
        html.paragraph(READING_NOTE, "quiet"),
        html.table(
            head,
            rows,
            caption=f"On {results['test_n']:,} test texts ({split}); ns: not more than chance.",
            css=["", "", *["number"] * 4],
        ),
        html.paragraph(METHOD_NOTE.format(seeds=seeds), "quiet"),
    ]


def _benefits(results: Mapping[str, Any]) -> list[str]:
    head, rows = benefit_rows(results)
    return [
        html.figure(benefits_plot(results)),
        html.table(head, rows, caption="Pretrained and fine-tuned against from scratch.", css=["", *["number"] * 4]),
        html.paragraph(BENEFITS_NOTE, "quiet"),
        _points(results),
    ]


def _points(results: Mapping[str, Any]) -> str:
    metric, curves = results["metric"], results["curves"]
    rows = [
        [
            f"{a['epoch']:.3g}",
            *(formatting.interval(value["mean"], value["low"], value["high"], metric) for value in (a, b)),
        ]
        for a, b in zip(curves["pretrained"], curves["scratch"], strict=True)
    ]
    head = ["epoch", "pretrained [95 % interval]", "from scratch [95 % interval]"]
    return html.table(head, rows, caption="Points of the curves.", css=["number"] * 3)


def layers_plot(results: Mapping[str, Any]) -> Plot:
    """Score of each arm over the number of copied layer groups, with 95 % intervals as bands; A left, B right."""
    with style():
        figure = Figure(figsize=(9.6, 4.2))
        axes = figure.subplots(1, 2, sharey=True, gridspec_kw={"wspace": 0.08})
        for axis, source in zip(axes, "AB", strict=True):
            _draw_arms(axis, results, [arm for arm in ARMS if arm[0] == source])
            axis.set_title(
                "copied from the pretrained model, A" if source == "A" else "copied from B, trained on this task"
            )
            axis.set_xlabel("n, the layer groups copied")
        axes[0].set_ylabel(_axis_name(results))
    ends = {arm: [cell for cell in results["cells"] if cell["arm"] == arm][-1] for arm in ARMS}
    scores = "; ".join(f"{arm} {formatting.score(cell['mean'], results['metric'])}" for arm, cell in ends.items())
    start = formatting.score(results["fresh"]["mean"], results["metric"])
    return laid_out(figure, f"{_axis_name(results)} over n, from {start} with nothing copied to, with all: {scores}.")


def _draw_arms(axis: Axes, results: Mapping[str, Any], arms: Sequence[str]) -> None:
    """Draw arms over n, with the references: B with its interval, and the linear classifier."""
    factor, reference, names = _factor(results), results["b"], ["nothing", *results["groups"]]
    axis.axhspan(factor * reference["low"], factor * reference["high"], color=FAINT, alpha=0.5, linewidth=0, zorder=0)
    axis.axhline(factor * reference["mean"], color=SERIES[-1], linewidth=1.2, label="B", zorder=1)
    linear = factor * results["baseline"]["mean"]
    axis.axhline(linear, color=SERIES[-1], linewidth=1.2, linestyle=":", label="linear", zorder=1)
    for arm in arms:
        points = {0: results["fresh"]} | {cell["n"]: cell for cell in results["cells"] if cell["arm"] == arm}
        colour, line, marker = LINES[arm]
        _band(axis, list(points), list(points.values()), factor, color=colour, linestyle=line, marker=marker, label=arm)
    ticks = [0, *sorted({cell["n"] for cell in results["cells"]})]
    axis.set_xticks(ticks, [f"{n}\n{shortened(names[n])}" for n in ticks])
    axis.legend(loc="best")


def benefits_plot(results: Mapping[str, Any]) -> Plot:
    """Learning curves of pretrained and from scratch, with the three benefits of transfer marked."""
    factor, curves = _factor(results), results["curves"]
    epochs = [point["epoch"] for point in curves["scratch"]]
    sides = {"pretrained": ("pretrained, fine-tuned", SERIES[2]), "scratch": ("from scratch", SERIES[1])}
    with style():
        figure = Figure(figsize=(8.4, 4.4))
        axis = figure.subplots()
        for name, (label, colour) in sides.items():
            _band(axis, epochs, curves[name], factor, color=colour, marker="o", label=label)
            if "slope" in results["benefits"]:
                _mark_slope(axis, epochs, [factor * point["mean"] for point in curves[name]], colour)
        width = max(epochs[-1] - epochs[0], 1e-9)
        places = {"start": epochs[0] - 0.05 * width, "asymptote": epochs[-1] + 0.05 * width}
        for name, x in places.items():
            _mark_gap(axis, x, [factor * results["benefits"][name][side] for side in sides])
        axis.set_xlim(epochs[0] - 0.1 * width, epochs[-1] + 0.1 * width)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=10))
        axis.set(xlabel="epoch", ylabel=f"test {_axis_name(results)}")
        axis.set_title("\n".join(_marked(results)), fontweight="normal")
        axis.legend(loc="best")
    return laid_out(figure, f"Learning curves; pretrained minus from scratch: {'; '.join(_marked(results))}.")


def _marked(results: Mapping[str, Any]) -> list[str]:
    benefits = results["benefits"]
    signs = {"start": "↕ left: start", "slope": "┈ dotted: slope", "asymptote": "↕ right: asymptote"}
    return [
        f"{signs[name]} {benefit(benefits[name], results['metric'], name)}" for name in BENEFITS if name in benefits
    ]


def _band(axis: Axes, x: Sequence[float], points: Sequence[Mapping[str, Any]], factor: int, **style: Any) -> None:
    low, mean, high = ([factor * point[end] for point in points] for end in ("low", "mean", "high"))
    axis.fill_between(x, low, high, color=style["color"], alpha=0.12, linewidth=0)
    axis.plot(x, mean, **style)


def _mark_slope(axis: Axes, epochs: Sequence[float], means: Sequence[float], colour: str) -> None:
    """Draw the least-squares line through the first half of the measurements."""
    weights = benefit_weights(epochs)["slope"]
    early = [i for i, weight in enumerate(weights) if weight] or [0]
    span = range(max(early) + 1)
    slope = sum(weight * mean for weight, mean in zip(weights, means, strict=True))
    middle = sum(epochs[i] for i in span) / len(span), sum(means[i] for i in span) / len(span)
    ends = [epochs[0], epochs[span[-1]]]
    axis.plot(ends, [middle[1] + slope * (x - middle[0]) for x in ends], color=colour, linestyle=":", linewidth=2.4)


def _mark_gap(axis: Axes, x: float, ends: Sequence[float]) -> None:
    axis.annotate("", xy=(x, ends[0]), xytext=(x, ends[1]), arrowprops={"arrowstyle": "<->", "color": INK})


def _factor(results: Mapping[str, Any]) -> int:
    return 100 if formatting.is_share(results["metric"]) else 1


def _axis_name(results: Mapping[str, Any]) -> str:
    return formatting.metric_name(results["metric"]) + (" (%)" if _factor(results) == 100 else "")
