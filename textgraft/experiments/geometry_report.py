"""Report of `inspect geometry`: one self-contained HTML file, made from results.json alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from textgraft.core import formatting
from textgraft.report import html
from textgraft.report.plots import SERIES, Plot, laid_out, shortened, style

LISTED_WORDS = 8
"""Number of words in each of the lists of the most and the least contextual words."""
MEASURES = {
    "self_similarity": "self-similarity of a word",
    "intra_similarity": "intra-sentence similarity",
    "explained_variance": "maximum explainable variance",
}
ANISOTROPY_NOTE = (
    "How to read it: the solid line is the mean cosine of random words from different sentences. 0 means that vectors "
    "point in all directions equally, 1 that all point in one direction: a cone. The dashed line is the same after "
    "the mean of the random words is subtracted from every vector; where it is near 0, the cone was one common "
    "direction. Bands are 95 % bootstrap intervals. The dotted line is the mean cosine to the cone's own axis."
)
CONTEXT_NOTE = (
    "How to read it: a static vector, independent of context, has a self-similarity and an explainable variance of 1; "
    "lower values mean more influence of context. Solid lines are the raw figures; in the dash-dotted lines the "
    "baseline of random words is subtracted (equation 4 of the paper), so that anisotropy is not mistaken for "
    "similarity; dashed lines are measured after the layer's mean is subtracted. Where the words of a sentence become "
    "more similar to each other, the intra-sentence similarity rises."
)
TABLE_NOTE = (
    "Each figure with its 95 % bootstrap interval over words, sentences or random words; adjusted: minus the baseline "
    "of random words. The paper is Ethayarajh 2019 (EMNLP), definitions 1 to 3 and equation 4. All words have the "
    "same number of contexts, and the explainable variance of random words is that of groups of the same size."
)
WORDS_NOTE = (
    "Raw self-similarity, not adjusted, of the words that change most and least with their context in the top layer. "
    "With few contexts per word, single values are uncertain; the list shows which kinds of words they are."
)
LINES: dict[str, Any] = {
    "raw": {"color": SERIES[0], "linestyle": "-", "marker": "o", "label": "raw"},
    "adjusted": {"color": SERIES[1], "linestyle": "-.", "marker": "s", "label": "adjusted"},
    "centred": {"color": SERIES[2], "linestyle": "--", "marker": "^", "label": "centred"},
}


def render_geometry(results: Mapping[str, Any]) -> str:
    """Render the report as an HTML document.

    Args:
        results: The contents of results.json, as textgraft.experiments.geometry returns them.
    """
    parts = [
        html.section(
            "cone",
            "Anisotropy: directions of random words",
            html.figure(anisotropy_plot(results)),
            html.paragraph(ANISOTROPY_NOTE, "quiet"),
        ),
        html.section(
            "context",
            "Influence of context",
            html.figure(context_plot(results)),
            html.paragraph(CONTEXT_NOTE, "quiet"),
        ),
        html.section("figures", "All figures", *_tables(results), html.paragraph(TABLE_NOTE, "quiet")),
        html.section("words", "Most and least contextual words", _words(results), html.paragraph(WORDS_NOTE, "quiet")),
        html.section("run", "Run and data", html.facts(results["sample"]), html.facts(results["run"])),
    ]
    verdict = "\n".join(html.paragraph(sentence, "verdict") for sentence in results["verdict"])
    return html.page(f"How contextual is {results['model']}?", "\n".join([verdict, *parts]))


def table_rows(results: Mapping[str, Any], variant: str = "raw") -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table of layers; `variant` is "raw" or "centred"."""
    names = ["anisotropy", "self_similarity", "self_similarity_adjusted", "intra_similarity"]
    names += ["intra_similarity_adjusted", "explained_variance", "explained_variance_adjusted"]
    head = ["layer", *("random words" if n == "anisotropy" else n.replace("_", " ") for n in names)]
    rows = [[layer["name"], *(_cell(layer[variant].get(name)) for name in names)] for layer in results["layers"]]
    return head, rows


def anisotropy_plot(results: Mapping[str, Any]) -> Plot:
    """Mean cosine of random words in each layer, before and after centring."""
    layers = results["layers"]
    with style():
        figure = Figure(figsize=(6.6, 3.4))
        axis = figure.subplots()
        for variant in ("raw", "centred"):
            _line(axis, [layer[variant]["anisotropy"] for layer in layers], LINES[variant])
        cones = [layer["raw"]["cone"] for layer in layers]
        axis.plot(range(len(layers)), cones, color=SERIES[-1], linestyle=":", label="to the cone's axis")
        _finish(axis, layers, "mean cosine of random words")
    values = "; ".join(f"{x['name']} {_cell(x['raw']['anisotropy'])}" for x in layers)
    return laid_out(figure, f"Mean cosine of random words in each layer, uncentred: {values}.")


def context_plot(results: Mapping[str, Any]) -> Plot:
    """Self-similarity, intra-sentence similarity and explainable variance of each layer."""
    layers = results["layers"]
    with style():
        figure = Figure(figsize=(11.4, 3.5))
        for axis, (name, title) in zip(figure.subplots(1, 3), MEASURES.items(), strict=True):
            _line(axis, [layer["raw"][name] for layer in layers], LINES["raw"])
            if all(f"{name}_adjusted" in layer["raw"] for layer in layers):
                _line(axis, [layer["raw"][f"{name}_adjusted"] for layer in layers], LINES["adjusted"])
            _line(axis, [layer["centred"][name] for layer in layers], LINES["centred"])
            _finish(axis, layers, "")
            axis.set_title(title)
    values = "; ".join(f"{x['name']} {_cell(x['raw']['self_similarity_adjusted'])}" for x in layers)
    return laid_out(figure, f"How contextual each layer is; self-similarity, adjusted: {values}.")


def _line(axis: Axes, values: Sequence[Mapping[str, float]], style: Mapping[str, Any]) -> None:
    x = range(len(values))
    low, mean, high = ([value[end] for value in values] for end in ("low", "mean", "high"))
    axis.fill_between(x, low, high, color=style["color"], alpha=0.13, linewidth=0)
    axis.plot(x, mean, **style)


def _finish(axis: Axes, layers: Sequence[Mapping[str, Any]], name: str) -> None:
    many = len(layers) > 6
    labels = [shortened(layer["name"].removeprefix("layer ") if many else layer["name"]) for layer in layers]
    axis.set_xticks(range(len(layers)), ["0" if many and i == 0 else label for i, label in enumerate(labels)])
    axis.set_xlim(-0.4, len(layers) - 0.6)
    axis.set(ylabel=name, xlabel="layer, 0 the embeddings" if many else "")
    axis.legend(loc="best")


def _tables(results: Mapping[str, Any]) -> list[str]:
    tables = []
    for variant, caption in (
        ("raw", "Uncentred."),
        ("centred", "With the mean vector of the random words subtracted."),
    ):
        head, rows = table_rows(results, variant)
        # Seven intervals side by side are wider than a page: each interval goes below its figure, unbroken.
        rows = [[name, *(cell.replace(", ", ",\u00a0") for cell in cells)] for name, *cells in rows]
        tables.append(html.table(head, rows, caption=caption, css=["", *["number wraps"] * (len(head) - 1)]))
    return tables


def _words(results: Mapping[str, Any]) -> str:
    ranked = sorted(results["words"].items(), key=lambda item: item[1][-1])
    listed = ranked if len(ranked) <= 2 * LISTED_WORDS else ranked[:LISTED_WORDS] + ranked[-LISTED_WORDS:]
    head = ["word", *(layer["name"] for layer in results["layers"])]
    rows = [[word, *(f"{value:.2f}" for value in values)] for word, values in listed]
    caption = f"The {min(LISTED_WORDS, len(ranked))} most contextual words, then the least."
    return html.table(head, rows, caption=caption, css=["", *["number"] * (len(head) - 1)])


def _cell(value: Mapping[str, float] | None) -> str:
    return formatting.NOT_KNOWN if value is None else formatting.cosine_interval(*value.values())
