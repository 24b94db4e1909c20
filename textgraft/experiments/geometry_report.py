"""The report of `inspect geometry`: one self-contained HTML file made from results.json and from nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from textgraft.core import formatting
from textgraft.report import html
from textgraft.report.plots import SERIES, Plot, laid_out, shortened, style

NOTED = 8
"""How many words stand in each of the lists of the most and the least contextual ones."""
MEASURES = {
    "self_similarity": "self-similarity of a word",
    "intra_similarity": "intra-sentence similarity",
    "explained_variance": "maximum explainable variance",
}
ANISOTROPY = (
    "How to read it: the solid line is the mean cosine of words drawn at random from different sentences. 0 is a layer "
    "whose words point everywhere alike, 1 one in which all words point one way: the cone. The dashed line is the same "
    "after the mean of the random words is taken away from every vector; where it is near 0, the cone was one common "
    "direction. Bands are 95 % bootstrap intervals. The dotted line is the mean cosine to the cone's own axis."
)
CONTEXT = (
    "How to read it: a word whose vector does not know its context has a self-similarity and an explainable variance "
    "of 1; the lower, the more the context has to say. Solid lines are the figures as they are; dash-dotted ones have "
    "what random words would show taken away (equation 4 of the paper), so that a cone is not mistaken for likeness; "
    "dashed ones are measured after the layer's mean is taken away. Words of one sentence that grow alike raise the "
    "intra-sentence similarity."
)
TABLE = (
    "Each figure with its 95 % bootstrap interval over words, sentences or random words; adjusted is less what random "
    "words show. The paper is Ethayarajh 2019 (EMNLP), definitions 1 to 3 and equation 4. Every word has as many "
    "contexts as any other, and the explainable variance of random words is that of groups of as many."
)
WORDS = (
    "Self-similarity as it is, not adjusted, of the words that change most and least with their context in the top "
    "layer. With few contexts each, single words are uncertain; the list shows of what kind they are."
)
LINES: dict[str, Any] = {
    "raw": {"color": SERIES[0], "linestyle": "-", "marker": "o", "label": "as it is"},
    "adjusted": {"color": SERIES[1], "linestyle": "-.", "marker": "s", "label": "adjusted"},
    "centred": {"color": SERIES[2], "linestyle": "--", "marker": "^", "label": "centred"},
}


def render_geometry(results: Mapping[str, Any]) -> str:
    """The report as an HTML document. `results` is what textgraft.experiments.geometry returns."""
    parts = [
        html.section(
            "cone",
            "Where random words point",
            html.figure(anisotropy_plot(results)),
            html.paragraph(ANISOTROPY, "quiet"),
        ),
        html.section(
            "context",
            "How much the context says",
            html.figure(context_plot(results)),
            html.paragraph(CONTEXT, "quiet"),
        ),
        html.section("figures", "The figures", *_tables(results), html.paragraph(TABLE, "quiet")),
        html.section("words", "Words that change", _words(results), html.paragraph(WORDS, "quiet")),
        html.section(
            "run", "What was measured, and on what", html.facts(results["sample"]), html.facts(results["run"])
        ),
    ]
    told = "\n".join(html.paragraph(sentence, "verdict") for sentence in results["verdict"])
    return html.page(f"How contextual is {results['model']}?", "\n".join([told, *parts]))


def table_rows(results: Mapping[str, Any], way: str = "raw") -> tuple[list[str], list[list[str]]]:
    """Head and rows of the table of layers; `way` is "raw" or "centred"."""
    names = ["anisotropy", "self_similarity", "self_similarity_adjusted", "intra_similarity"]
    names += ["intra_similarity_adjusted", "explained_variance", "explained_variance_adjusted"]
    head = ["layer", *("random words" if n == "anisotropy" else n.replace("_", " ") for n in names)]
    rows = [[layer["name"], *(_cell(layer[way].get(name)) for name in names)] for layer in results["layers"]]
    return head, rows


def anisotropy_plot(results: Mapping[str, Any]) -> Plot:
    """The mean cosine of random words in each layer, before and after centring."""
    layers = results["layers"]
    with style():
        figure = Figure(figsize=(6.6, 3.4))
        axis = figure.subplots()
        for way in ("raw", "centred"):
            _line(axis, [layer[way]["anisotropy"] for layer in layers], LINES[way])
        cones = [layer["raw"]["cone"] for layer in layers]
        axis.plot(range(len(layers)), cones, color=SERIES[-1], linestyle=":", label="to the cone's axis")
        _finish(axis, layers, "mean cosine of random words")
    said = "; ".join(f"{x['name']} {_cell(x['raw']['anisotropy'])}" for x in layers)
    return laid_out(figure, f"Mean cosine of random words in each layer, as it is: {said}.")


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
    said = "; ".join(f"{x['name']} {_cell(x['raw']['self_similarity_adjusted'])}" for x in layers)
    return laid_out(figure, f"How contextual each layer is; self-similarity, adjusted: {said}.")


def _line(axis: Axes, values: Sequence[Mapping[str, float]], look: Mapping[str, Any]) -> None:
    x = range(len(values))
    low, mean, high = ([value[end] for value in values] for end in ("low", "mean", "high"))
    axis.fill_between(x, low, high, color=look["color"], alpha=0.13, linewidth=0)
    axis.plot(x, mean, **look)


def _finish(axis: Axes, layers: Sequence[Mapping[str, Any]], name: str) -> None:
    many = len(layers) > 6
    labels = [shortened(layer["name"].removeprefix("layer ") if many else layer["name"]) for layer in layers]
    axis.set_xticks(range(len(layers)), ["0" if many and i == 0 else label for i, label in enumerate(labels)])
    axis.set_xlim(-0.4, len(layers) - 0.6)
    axis.set(ylabel=name, xlabel="layer, 0 the embeddings" if many else "")
    axis.legend(loc="best")


def _tables(results: Mapping[str, Any]) -> list[str]:
    found = []
    for way, caption in (("raw", "As it is."), ("centred", "Without the mean vector of the random words.")):
        head, rows = table_rows(results, way)
        # Seven intervals side by side are wider than a page: each goes below its figure, and is not broken itself.
        rows = [[name, *(cell.replace(", ", ",\u00a0") for cell in cells)] for name, *cells in rows]
        found.append(html.table(head, rows, caption=caption, css=["", *["number wraps"] * (len(head) - 1)]))
    return found


def _words(results: Mapping[str, Any]) -> str:
    ranked = sorted(results["words"].items(), key=lambda item: item[1][-1])
    chosen = ranked if len(ranked) <= 2 * NOTED else ranked[:NOTED] + ranked[-NOTED:]
    head = ["word", *(layer["name"] for layer in results["layers"])]
    rows = [[word, *(f"{value:.2f}" for value in values)] for word, values in chosen]
    caption = f"The {min(NOTED, len(ranked))} most contextual words, then the least."
    return html.table(head, rows, caption=caption, css=["", *["number"] * (len(head) - 1)])


def _cell(value: Mapping[str, float] | None) -> str:
    return formatting.NOT_KNOWN if value is None else formatting.cosine_interval(*value.values())
