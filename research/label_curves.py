"""One picture of the learning curves that `research/curves.py --keep` has kept: `python research/label_curves.py`.

A panel for each data set, a line for each method with its 95 % interval as a band, over the number of labels. The
numbers are those of the tables of docs/results.md (research/tables.py). Written to docs/pictures/label-curves.svg, or
to --plot.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tables
from matplotlib.figure import Figure

from textgraft.report import plots

PICTURE = tables.DOCUMENT.parent / "pictures" / "label-curves.svg"
DATA_SETS = {
    "imdb": "Film reviews (IMDb)",
    "movie-reviews": "Long film reviews",
    "sms-spam": "Text messages (SMS spam)",
    "trec": "Question types (TREC)",
    "truevoice": "Thai telephone calls",
}
METHODS = {
    "linear": "TF-IDF n-grams, linear",
    "lsa": "LSA of unlabelled texts",
    "co-training": "co-training on unlabelled texts",
    "scratch": "LSTM from random weights",
    "no-adapt": "bundled LSTM, fine-tuned",
    "ulmfit": "bundled LSTM, adapted and fine-tuned",
    "no-adapt@en-gpt-small": "bundled GPT, fine-tuned",
    "default": "finetune without a recipe",
}
Points = list[tuple[int, tables.Cell]]


def curves(runs: list[tables.Run]) -> dict[str, Points]:
    """Each method's cells by number of labels, for the methods that were run.

    By the recipe that a method goes by where none is named; where it was run by another alone, by that one.
    """
    found: dict[str, dict[int, tables.Cell]] = {name: {} for name in METHODS}
    for (method, labels), cell in tables.measured(runs).items():
        name, by, _ = method.partition(" by ")
        if name in found and not (by and labels in found[name]):
            found[name][labels] = cell
    return {name: sorted(points.items()) for name, points in found.items() if points}


def line(method: str) -> dict[str, Any]:
    """What `finetune` makes is drawn thick."""
    return {"marker": "o", "linewidth": 2.4 if method == "default" else 1.6}


def short(count: int) -> str:
    """`500`, `2.58k`: long ones would run into each other under a small panel."""
    return f"{count / 1000:.3g}k" if count >= 1000 else str(count)


def plot(data_sets: Mapping[str, dict[str, Points]]) -> plots.Plot:
    """A panel for each data set; the legend has the sixth place. A method has one colour in all of them."""
    with plots.style():
        figure = Figure(figsize=(10.5, 6.4))
        panels = figure.subplots(2, 3).flat
        colours = dict(zip(METHODS, (*plots.SERIES[:-1], plots.INK), strict=True))
        for (name, found), axis in zip(data_sets.items(), panels, strict=False):
            for method, points in found.items():
                labels, colour = [n for n, _ in points], colours[method]
                low, mean, high = ([100 * cell[end] for _, cell in points] for end in ("low", "mean", "high"))
                axis.fill_between(labels, low, high, color=colour, alpha=0.07, linewidth=0)
                axis.plot(labels, mean, **line(method), color=colour)
            ticks = sorted({n for points in found.values() for n, _ in points})
            axis.set(title=DATA_SETS[name], xscale="log")
            axis.set_xticks(ticks, [short(tick) for tick in ticks])
            axis.minorticks_off()
        figure.supxlabel("labels", fontsize="medium")
        figure.supylabel("accuracy (%), 95 % interval", fontsize="medium")
        for axis in panels:  # what the data sets have left
            axis.axis("off")
            for method, called in METHODS.items():
                axis.plot([], **line(method), color=colours[method], label=called)
            axis.legend(loc="center")
    said = "; ".join(
        f"{DATA_SETS[name]}: "
        + ", ".join(f"{METHODS[m]} " + " ".join(f"{100 * c['mean']:.1f}" for _, c in p) for m, p in found.items())
        for name, found in data_sets.items()
    )
    return plots.laid_out(figure, f"Accuracy by number of labels, from the fewest to the most. {said}.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plot", type=Path, default=PICTURE)
    asked = parser.parse_args()
    plot({name: curves(tables.runs_of(name)) for name in DATA_SETS}).save(asked.plot)


if __name__ == "__main__":
    main()
