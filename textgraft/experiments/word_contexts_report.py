"""The report of `inspect words`: one self-contained HTML file made from results.json and from nothing else."""

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

AROUND = 55
"""Characters of a sentence that are shown on either side of a word."""
ACROSS = 4
NAMES = {"pca": "principal components", "tsne": "t-SNE"}
MARKERS = ("o", "s", "^", "D")
MAP = (
    "How to read it: each point is one occurrence, numbered as in the table below; rest the pointer on one to read it. "
    "Points that lie together have like vectors in that layer. Colours and marks are groups that k-means found in that "
    "layer, on all dimensions; where no split is clearer than a silhouette of 0.1, all are one. If the groups follow "
    "the word's meanings, the layer tells them apart. Below each map, self-similarity is the mean cosine of the "
    "occurrences: 1 is a vector that does not know its context."
)
NEAR = (
    "How to read it: for each occurrence the nearest of all words in other sentences, by the cosine of their vectors "
    "as they are. In a layer that knows the context, neighbours are the same word in the same meaning, or another word "
    "for it; in one that does not, the same word wherever it stands. Cosines compare within a layer, not between "
    "layers: how high those of random words are is what inspect geometry measures."
)


def render_words(results: Mapping[str, Any]) -> str:
    """The report as an HTML document. `results` is what textgraft.experiments.word_contexts returns."""
    sections = {f"word-{i}": one for i, one in enumerate(results["words"])}
    links = "".join(f'<li><a href="#{name}">{html.text(one["word"])}</a></li>' for name, one in sections.items())
    parts = [f'<nav aria-label="Contents"><ul>{links}</ul></nav>']
    parts += [html.section(name, one["word"], *_word(one, results)) for name, one in sections.items()]
    facts = html.facts({**results["sample"], "map": NAMES[results["projection"]]})
    parts.append(html.section("run", "What was looked at, and with what", facts, html.facts(results["run"])))
    words = ", ".join(one["word"] for one in results["words"])
    return html.page(f"What {results['model']} makes of: {words}", "\n".join(parts))


def neighbour_rows(word: Mapping[str, Any], layer: int) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the table of a word's neighbours in a layer: the occurrence, then each of its neighbours."""
    head = ["occurrence", "cosine", "before", "word", "behind"]
    rows = []
    close = word["layers"][layer]["neighbours"]
    for number, (occurrence, found) in enumerate(zip(word["occurrences"], close, strict=True), start=1):
        rows.append([str(number), "", *concordance(occurrence)])
        rows += [["", formatting.cosine(one["cosine"]), *concordance(one)] for one in found]
    return head, rows


def map_plot(word: Mapping[str, Any], layers: Sequence[str], projection: str) -> Plot:
    """A panel a layer: the word's occurrences in two dimensions, coloured by group, numbered."""
    across = min(ACROSS, len(layers))
    down = math.ceil(len(layers) / across)
    told = [f"{i}: {' '.join(concordance(one)).strip()}" for i, one in enumerate(word["occurrences"], start=1)]
    hints: dict[str, str] = {}
    with style(), matplotlib.rc_context({"axes.grid": False}):
        figure = Figure(figsize=(max(3.4, 2.9 * across), 2.9 * down))
        axes = figure.subplots(down, across, squeeze=False).ravel()
        for number, (axis, name, layer) in enumerate(zip(axes, layers, word["layers"], strict=False)):
            axis.set_title(name)
            hints |= _draw_map(axis, layer, [(f"hint-{number}-{i}", hint) for i, hint in enumerate(told)])
        for axis in axes[len(layers) :]:
            axis.set_axis_off()
    said = "; ".join(f"{name} {_likeness(layer)}" for name, layer in zip(layers, word["layers"], strict=True))
    count = len(word["occurrences"])
    alt = f"{count} occurrences of {shortened(word['word'])} by {NAMES[projection]}; self-similarity: {said}."
    return laid_out(figure, alt, hints)


def _draw_map(axis: Axes, layer: Mapping[str, Any], hints: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The points of a layer, each under the gid of its hint; those that lie on one spot share a label."""
    spots: dict[tuple[float, float], list[int]] = {}
    for i, (point, group) in enumerate(zip(layer["points"], layer["groups"], strict=True)):
        spots.setdefault((round(point[0], 3), round(point[1], 3)), []).append(i + 1)
        axis.plot(*point, linestyle="", color=SERIES[group], marker=MARKERS[group], markersize=7, gid=hints[i][0])
    for spot, numbers in spots.items():
        label = ", ".join(map(str, numbers)) if len(numbers) < 4 else f"{numbers[0]} … {numbers[-1]}"
        axis.annotate(label, spot, xytext=(5, 4), textcoords="offset points", fontsize=8, color=INK)
    axis.set_xlabel(f"self-similarity {_likeness(layer)}")
    axis.margins(0.15)
    axis.set_xticks([])
    axis.set_yticks([])
    return dict(hints)


def _likeness(layer: Mapping[str, Any]) -> str:
    value = layer["self_similarity"]
    return formatting.NOT_KNOWN if value is None else formatting.cosine(value)


def _word(word: Mapping[str, Any], results: Mapping[str, Any]) -> list[str]:
    layers = results["layers"]
    top = word["layers"][-1]
    rows = [
        [str(i + 1), str(top["groups"][i] + 1), *concordance(one), "given" if one["given"] else ""]
        for i, one in enumerate(word["occurrences"])
    ]
    css = ["number", "number", "number", "place", ""]
    count = f"{len(word['occurrences'])} of {word['sentences']:,} sentences that have the word; group in {layers[-1]}."
    found = [
        html.figure(map_plot(word, layers, results["projection"])),
        html.paragraph(MAP, "quiet"),
        html.table(["", "group", "before", "word", "behind", ""], rows, caption=count, css=css),
        "<h3>Nearest words in their sentences</h3>",
        html.paragraph(NEAR, "quiet"),
    ]
    for number, name in reversed(list(enumerate(layers))):
        head, near = neighbour_rows(word, number)
        shown = html.table(head, near, caption=f"{name}.", css=["number", "number", "number", "place", ""])
        found.append(html.details(f"{name}", shown))
    return found


def concordance(one: Mapping[str, Any]) -> list[str]:
    """What stands before a word in its sentence, the word, and what stands behind it; ends that are cut have dots."""
    before, behind = one["sentence"][: one["start"]], one["sentence"][one["end"] :]
    # At a space where there is one; Thai has none.
    left = before if len(before) <= AROUND else "…" + (before[-AROUND:].partition(" ")[2] or before[-AROUND:])
    right = behind if len(behind) <= AROUND else (behind[:AROUND].rpartition(" ")[0] or behind[:AROUND]) + "…"
    return [left.strip(), one["word"], right.strip()]
