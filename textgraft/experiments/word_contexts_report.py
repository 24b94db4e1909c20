"""Report of `inspect words`: one self-contained HTML file, made from results.json alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from textgraft.core import formatting
from textgraft.report import html
from textgraft.report.plots import INK, SERIES, Plot, laid_out, shortened, style

CONTEXT_WIDTH = 55
"""Number of characters shown on either side of a word."""
MAX_COLUMNS = 4
PROJECTION_NAMES = {"pca": "principal components", "tsne": "t-SNE"}
MARKERS = ("o", "s", "^", "D")
MAP_NOTE = (
    "How to read it: each point is one occurrence, numbered as in the table below; hover over a point to see its "
    "sentence. Points that lie together have similar vectors in that layer. Colours and marks are clusters that "
    "k-means found in that layer, on all dimensions; where no split reaches a silhouette of 0.1, all are one. If the "
    "clusters follow the word's meanings, the layer distinguishes them. Below each map, self-similarity is the mean "
    "cosine of the occurrences: 1 is a static vector, independent of context."
)
NEIGHBOUR_NOTE = (
    "How to read it: for each occurrence the nearest of all words in other sentences, by the cosine of their "
    "uncentred vectors. In a contextual layer, neighbours are the same word in the same meaning, or a synonym; in a "
    "static one, the same word in any sentence. Cosines are comparable within a layer, not between layers: inspect "
    "geometry measures the cosines of random words."
)


def render_words(results: Mapping[str, Any]) -> str:
    """Render the report as an HTML document.

    Args:
        results: The contents of results.json, as textgraft.experiments.word_contexts returns them.
    """
    sections = {f"word-{i}": word for i, word in enumerate(results["words"])}
    links = "".join(f'<li><a href="#{name}">{html.text(word["word"])}</a></li>' for name, word in sections.items())
    parts = [f'<nav aria-label="Contents"><ul>{links}</ul></nav>']
    parts += [html.section(name, word["word"], *_word(word, results)) for name, word in sections.items()]
    facts = html.facts({**results["sample"], "map": PROJECTION_NAMES[results["projection"]]})
    parts.append(html.section("run", "Run and data", facts, html.facts(results["run"])))
    words = ", ".join(word["word"] for word in results["words"])
    return html.page(f"Occurrences of {words} in {results['model']}", "\n".join(parts))


def neighbour_rows(word: Mapping[str, Any], layer: int) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table of a word's neighbours in a layer: the occurrence, then each of its neighbours."""
    head = ["occurrence", "cosine", "before", "word", "after"]
    rows = []
    layer_neighbours = word["layers"][layer]["neighbours"]
    for number, (occurrence, neighbours) in enumerate(zip(word["occurrences"], layer_neighbours, strict=True), start=1):
        rows.append([str(number), "", *concordance(occurrence)])
        rows += [["", formatting.cosine(neighbour["cosine"]), *concordance(neighbour)] for neighbour in neighbours]
    return head, rows


def map_plot(word: Mapping[str, Any], layers: Sequence[str], projection: str) -> Plot:
    """A panel for each layer: the word's occurrences in two dimensions, coloured by cluster and numbered."""
    columns = min(MAX_COLUMNS, len(layers))
    rows = math.ceil(len(layers) / columns)
    sentences = [
        f"{i}: {' '.join(concordance(occurrence)).strip()}" for i, occurrence in enumerate(word["occurrences"], start=1)
    ]
    hints: dict[str, str] = {}
    with style(), matplotlib.rc_context({"axes.grid": False}):
        figure = Figure(figsize=(max(3.4, 2.9 * columns), 2.9 * rows))
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for number, (axis, name, layer) in enumerate(zip(axes, layers, word["layers"], strict=False)):
            axis.set_title(name)
            hints |= _draw_map(axis, layer, [(f"hint-{number}-{i}", hint) for i, hint in enumerate(sentences)])
        for axis in axes[len(layers) :]:
            axis.set_axis_off()
    similarities = "; ".join(
        f"{name} {_similarity_text(layer)}" for name, layer in zip(layers, word["layers"], strict=True)
    )
    count = len(word["occurrences"])
    alt = f"{count} occurrences of {shortened(word['word'])} by {PROJECTION_NAMES[projection]}; "
    alt += f"self-similarity: {similarities}."
    return laid_out(figure, alt, hints)


def _draw_map(axis: Axes, layer: Mapping[str, Any], hints: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Draw the points of a layer, each with the gid of its hint; points on one spot share a label."""
    spots: dict[tuple[float, float], list[int]] = {}
    for i, (point, group) in enumerate(zip(layer["points"], layer["groups"], strict=True)):
        spots.setdefault((round(point[0], 3), round(point[1], 3)), []).append(i + 1)
        axis.plot(*point, linestyle="", color=SERIES[group], marker=MARKERS[group], markersize=7, gid=hints[i][0])
    for spot, numbers in spots.items():
        label = ", ".join(map(str, numbers)) if len(numbers) < 4 else f"{numbers[0]} … {numbers[-1]}"
        axis.annotate(label, spot, xytext=(5, 4), textcoords="offset points", fontsize=8, color=INK)
    axis.set_xlabel(f"self-similarity {_similarity_text(layer)}")
    axis.margins(0.15)
    axis.set_xticks([])
    axis.set_yticks([])
    return dict(hints)


def _similarity_text(layer: Mapping[str, Any]) -> str:
    value = layer["self_similarity"]
    return formatting.NOT_KNOWN if value is None else formatting.cosine(value)


def _word(word: Mapping[str, Any], results: Mapping[str, Any]) -> list[str]:
    layers = results["layers"]
    top = word["layers"][-1]
    rows = [
        [str(i + 1), str(top["groups"][i] + 1), *concordance(occurrence), "given" if occurrence["given"] else ""]
        for i, occurrence in enumerate(word["occurrences"])
    ]
    css = ["number", "number", "number", "place", ""]
    count = f"{len(word['occurrences'])} of {word['sentences']:,} sentences with the word; clusters of {layers[-1]}."
    parts = [
        html.figure(map_plot(word, layers, results["projection"])),
        html.paragraph(MAP_NOTE, "quiet"),
        html.table(["", "cluster", "before", "word", "after", ""], rows, caption=count, css=css),
        "<h3>Nearest neighbours in their sentences</h3>",
        html.paragraph(NEIGHBOUR_NOTE, "quiet"),
    ]
    for number, name in reversed(list(enumerate(layers))):
        head, neighbours = neighbour_rows(word, number)
        shown = html.table(head, neighbours, caption=f"{name}.", css=["number", "number", "number", "place", ""])
        parts.append(html.details(f"{name}", shown))
    return parts


def concordance(occurrence: Mapping[str, Any]) -> list[str]:
    """The text before a word in its sentence, the word, and the text after it; cut ends have dots."""
    before, after = occurrence["sentence"][: occurrence["start"]], occurrence["sentence"][occurrence["end"] :]
    # Cut at a space if there is one; Thai has none.
    left = (
        before
        if len(before) <= CONTEXT_WIDTH
        else "…" + (before[-CONTEXT_WIDTH:].partition(" ")[2] or before[-CONTEXT_WIDTH:])
    )
    right = (
        after
        if len(after) <= CONTEXT_WIDTH
        else (after[:CONTEXT_WIDTH].rpartition(" ")[0] or after[:CONTEXT_WIDTH]) + "…"
    )
    return [left.strip(), occurrence["word"], right.strip()]
