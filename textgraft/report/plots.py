"""The plots of the report and the command line: each a `Plot`, as SVG that follows the page's colours, or a file."""

from __future__ import annotations

import io
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from cycler import cycler
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from textgraft.core import formatting
from textgraft.core.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from textgraft.metrics.calibration import Reliability
    from textgraft.metrics.classification import Interval

INK, FAINT, ACCENT = "#1c2128", "#d3d8de", "#2563a8"
SERIES = (ACCENT, "#c2590a", "#2a7f4f", "#7b4fa3", "#b3304a", "#0f7f8c", "#8a6d00", "#69707a")
CSS_NAMES = {INK: "--ink", FAINT: "--faint", **{c: f"--series-{i + 1}" for i, c in enumerate(SERIES)}}
"""Each colour's CSS variable: in a page that sets it, a plot is light or dark as the page is."""

STYLE: dict[str, Any] = {
    "svg.fonttype": "none",  # the reader's fonts know scripts that ours do not, and the text can be searched
    "svg.hashsalt": "textgraft",
    "text.parse_math": False,  # a class may be called "$"
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.prop_cycle": cycler(color=SERIES),
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "legend.frameon": False,
}
# matplotlib writes powers of ten as formulas, which `text.parse_math` forbids.
_PLAIN = FuncFormatter(lambda value, _: f"{value:g}")


@dataclass(frozen=True)
class Plot:
    """A drawn figure and, for those who cannot see it, what it shows.

    `hints` are shown in a page where the pointer rests on the artist of that gid.
    """

    figure: Figure
    alt: str
    hints: Mapping[str, str] = field(default_factory=dict)

    def svg(self) -> str:
        """One `<svg>` element to put into a page; the same input gives the same characters."""
        text = self._render("svg", transparent=True).decode("utf-8")
        text = text[text.index("<svg") :]
        text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
        text = re.sub(r'<svg [^>]*?width="([\d.]+)pt"[^>]*?>', self._open_tag(text), text, count=1)
        for colour, name in CSS_NAMES.items():
            text = text.replace(colour, f"var({name}, {colour})")
        for gid, hint in self.hints.items():
            text = text.replace(f'<g id="{gid}">', f"<g><title>{escape(formatting.printable(hint))}</title>")
        return _own_ids(re.sub(r"'DejaVu Sans'(, [^;\"]*)?", "system-ui, sans-serif", text), self.alt)

    def save(self, path: Path | str) -> None:
        """Write a .png or .svg file, `alt` in its metadata. Raises UserError where it cannot be written."""
        path = Path(path)
        write_atomically(path, self._render(path.suffix.lstrip(".") or "png", transparent=False))

    def _open_tag(self, text: str) -> str:
        box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', text)
        width, height = box.groups() if box else ("640", "400")
        label = escape(self.alt, quote=True).replace("\\", "\\\\")
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" role="img" '
            f'aria-label="{label}" viewBox="0 0 {width} {height}" style="width: {width}pt; max-width: 100%">'
        )

    def _render(self, kind: str, *, transparent: bool) -> bytes:
        buffer = io.BytesIO()
        absent = ("Date", "Creator") if kind == "svg" else ("Software",)
        metadata = {"Description": self.alt, **dict.fromkeys(absent)}
        with style(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing")
            self.figure.savefig(buffer, format=kind, dpi=150, transparent=transparent, metadata=metadata)
        return buffer.getvalue()


def learning_curves(rows: Sequence[Mapping[str, Any]], metric: str | None = None) -> Plot:
    """Training and validation loss, and `metric` if the rows have it, over the validations of one run.

    `rows` are a run's history: `train_loss` and, where something was validated, `loss` and metrics by name.
    """
    panels = 2 if metric and any(row.get(metric) is not None for row in rows) else 1
    steps = np.arange(1, len(rows) + 1)
    with style():
        figure = Figure(figsize=(4.2 * panels + 0.4, 3.0))
        axes = figure.subplots(1, panels, squeeze=False)[0]
        for key, label in (("train_loss", "training"), ("loss", "validation")):
            values = _column(rows, key)
            if not np.isnan(values).all():
                axes[0].plot(steps, values, marker="o", label=label)
        axes[0].set(title="Loss", xlabel="validation")
        if axes[0].lines:
            axes[0].legend()
        if panels == 2 and metric:
            share = formatting.is_share(metric)
            values = _column(rows, metric) * (100 if share else 1)
            axes[1].plot(steps, values, marker="o", color=SERIES[2])
            name = formatting.metric_name(metric)
            axes[1].set(title=f"{name[:1].upper()}{name[1:]}" + (" (%)" if share else ""), xlabel="validation")
        for axis in axes:
            axis.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
            _mark_phases(axis, [str(row.get("phase", "")) for row in rows])
    last = rows[-1] if rows else {}
    keys = [key for key in ("train_loss", "loss", metric) if key and last.get(key) is not None]
    said = ", ".join(f"{formatting.metric_name(key)} {last[key]:.4g}" for key in keys)
    return laid_out(figure, f"Learning curves over {len(rows)} validations; at the end {said}.")


def schedule(curves: Mapping[str, Sequence[float]], steps_per_epoch: int) -> Plot:
    """The learning rate of each layer group (bottom -> top) at every step, with gaps while a group is frozen."""
    with style():
        figure = Figure(figsize=(7.6, 3.2))
        axis = figure.subplots()
        total = 0
        for i, (name, rates) in enumerate(curves.items()):
            values = np.asarray(rates, dtype=np.float64)
            total = len(values)
            epochs = np.arange(len(values)) / max(1, steps_per_epoch)
            axis.plot(
                epochs,
                np.where(values > 0, values, np.nan),
                label=shortened(name),
                color=SERIES[i % len(SERIES)],
            )
        axis.set(title="Learning rate by layer group", xlabel="epoch", yscale="log")
        axis.yaxis.set_major_formatter(_PLAIN)
        axis.set_xlim(0, max(1, total) / max(1, steps_per_epoch))
        axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), reverse=True)
    peaks = ", ".join(f"{name} up to {max(rates, default=0.0):.2g}" for name, rates in curves.items())
    return laid_out(figure, f"Learning rate of each layer group over {total} steps: {peaks}.")


def lr_find(rates: Sequence[float], losses: Sequence[float], suggestion: float | None = None) -> Plot:
    """The loss of a learning-rate range test (Smith 2017), and where to start."""
    with style():
        figure = Figure(figsize=(5.6, 3.2))
        axis = figure.subplots()
        axis.plot(rates, losses)
        axis.set(title="Learning-rate range test", xlabel="learning rate", ylabel="loss (smoothed)", xscale="log")
        axis.xaxis.set_major_formatter(_PLAIN)
        if suggestion is not None:
            axis.axvline(suggestion, color=SERIES[1], linestyle="--", label=f"suggested: {suggestion:.2g}")
            axis.legend()
    said = f" Suggested: {suggestion:.2g}." if suggestion is not None else ""
    return laid_out(figure, f"Loss against learning rate from {min(rates):.2g} to {max(rates):.2g}.{said}")


def methods(scores: Mapping[str, Interval], metric: str) -> Plot:
    """Each method's score with its 95 % interval, the best on top."""
    factor = 100 if formatting.is_share(metric) else 1
    ordered = sorted(scores.items(), key=lambda item: item[1].mean)
    if metric in ("mae", "rmse", "log_loss"):
        ordered.reverse()
    with style():
        figure = Figure(figsize=(6.4, 0.9 + 0.42 * len(ordered)))
        axis = figure.subplots()
        for y, (_, value) in enumerate(ordered):
            colour = ACCENT if y == len(ordered) - 1 else SERIES[-1]
            axis.plot([factor * value.low, factor * value.high], [y, y], color=colour, linewidth=3, alpha=0.45)
            axis.plot(factor * value.mean, y, marker="o", markersize=7, color=colour)
        axis.set_yticks(range(len(ordered)), [shortened(name) for name, _ in ordered])
        axis.set_ylim(-0.6, len(ordered) - 0.4)
        axis.set_xlabel(formatting.metric_name(metric) + (" (%)" if factor == 100 else "") + ", 95 % interval")
        axis.grid(axis="y", visible=False)
        axis.tick_params(axis="y", length=0)
    said = "; ".join(f"{name} {formatting.interval(*value, metric)}" for name, value in reversed(ordered))
    return laid_out(figure, f"{formatting.metric_name(metric)} by method: {said}.")


def label_curves(curves: Mapping[str, Sequence[tuple[int, Interval]]], metric: str) -> Plot:
    """Each method's score against the number of labels (on a logarithmic axis), with its 95 % interval as a band."""
    factor = 100 if formatting.is_share(metric) else 1
    ticks = sorted({labels for points in curves.values() for labels, _ in points})
    with style():
        figure = Figure(figsize=(7.6, 4.2))
        axis = figure.subplots()
        legend = legend_names(list(curves))
        for i, (name, points) in enumerate(curves.items()):
            labels = [labels for labels, _ in points]
            low, mean, high = ([factor * getattr(v, end) for _, v in points] for end in ("low", "mean", "high"))
            colour, line = SERIES[i % len(SERIES)], ("-", "--", ":")[i // len(SERIES) % 3]
            axis.fill_between(labels, low, high, color=colour, alpha=0.13, linewidth=0)
            axis.plot(labels, mean, marker="o", linestyle=line, color=colour, label=legend[name])
        axis.set(
            xscale="log", xlabel="labels", ylabel=formatting.metric_name(metric) + (" (%)" if factor == 100 else "")
        )
        axis.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        axis.minorticks_off()
        axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    said = "; ".join(
        f"{name} {formatting.score(points[0][1].mean, metric)} to {formatting.score(points[-1][1].mean, metric)}"
        for name, points in curves.items()
        if points
    )
    return laid_out(
        figure, f"{formatting.metric_name(metric)} by number of labels, from the fewest to the most: {said}."
    )


def confusion(matrix: NDArray, names: Sequence[str]) -> Plot:
    """A confusion matrix (C, C), rows true, columns predicted: counts, shaded by their share of the row."""
    counts = np.asarray(matrix)
    totals = counts.sum(1, keepdims=True)
    shares = np.divide(counts, totals, out=np.zeros(counts.shape), where=totals > 0)
    labels = [shortened(name) for name in names]
    size = len(labels)
    side = min(9.0, max(2.4, 0.62 * size if size <= 12 else 0.3 * size))
    with style():
        figure = Figure(figsize=(side + 1.6, side + 0.9))
        axis = figure.subplots()
        for row in range(size):
            for column in range(size):
                axis.fill_between(
                    [column, column + 1],
                    row,
                    row + 1,
                    color=ACCENT,
                    alpha=0.75 * shares[row, column],
                    linewidth=0,
                )
                if size <= 12:
                    axis.text(column + 0.5, row + 0.5, f"{counts[row, column]:,}", ha="center", va="center")
        ticks = np.arange(size) + 0.5
        steep = size > 4 or max(map(len, labels), default=0) > 10
        axis.set_xticks(ticks, labels, rotation=45 if steep else 0, ha="right" if steep else "center")
        axis.set_yticks(ticks, labels)
        axis.set(xlim=(0, size), ylim=(size, 0), xlabel="predicted", ylabel="true", aspect="equal")
        axis.grid(False)
        axis.tick_params(length=0)
    right = f"{np.trace(counts):,} of {counts.sum():,} right"
    return laid_out(figure, f"Confusion matrix of {size} classes, {right}; the counts are in the table.")


def reliability(diagrams: Mapping[str, Reliability]) -> Plot:
    """Reliability diagrams (Guo et al. 2017, figure 1) by name, over how many texts stand behind each point."""
    with style():
        figure = Figure(figsize=(4.8, 4.6))
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
        upper.plot([0, 100], [0, 100], color=FAINT, linewidth=1.4, zorder=1)
        width = 0.8 / max(1, len(diagrams))
        for i, (name, diagram) in enumerate(diagrams.items()):
            colour = SERIES[(1, 0, 2)[i % 3]]
            filled = [b for b, n in enumerate(diagram.counts) if n]
            sure = [100 * (diagram.confidence[b] or 0.0) for b in filled]
            right = [100 * (diagram.accuracy[b] or 0.0) for b in filled]
            name = shortened(name)
            error = f"{name}, ECE {100 * diagram.ece:.1f} %" if diagram.ece is not None else name
            upper.plot(sure, right, marker="o", label=error, color=colour)
            bin_width = 100 / len(diagram.counts)
            left = [(b + 0.1 + i * width) * bin_width for b in range(len(diagram.counts))]
            lower.bar(left, diagram.counts, width=width * bin_width, align="edge", color=colour)
        upper.set(title="Reliability", ylabel="right (%)", xlim=(0, 100), ylim=(0, 100))
        upper.legend(loc="upper left")
        lower.set(xlabel="confidence (%)", ylabel="texts")
        lower.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=2))
    said = "; ".join(
        f"{n}: expected calibration error {100 * d.ece:.1f} %" for n, d in diagrams.items() if d.ece is not None
    )
    return laid_out(figure, f"Reliability diagram, share right against confidence. {said}.")


def laid_out(figure: Figure, alt: str, hints: Mapping[str, str] | None = None) -> Plot:
    """The layout is made once and kept: one with an engine of its own is laid out and drawn again for each file."""
    with style(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        ConstrainedLayoutEngine().execute(figure)
    return Plot(figure, formatting.printable(alt), hints or {})


@contextmanager
def style() -> Iterator[None]:
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        for name, value in STYLE.items():
            matplotlib.rcParams[name] = value  # type: ignore[index]
        yield


def legend_names(methods: Sequence[str]) -> dict[str, str]:
    """What to call each of compare's methods where room is short: METHOD@MODEL without the model's folders.

    In full where that would give two of them one name.
    """
    short = {}
    for name in methods:
        method, at, models = name.partition("@")
        short[name] = shortened(method + at + "+".join(Path(model).name for model in models.split("+")))
    counts = Counter(short.values())
    return {name: cut if counts[cut] == 1 else formatting.printable(name) for name, cut in short.items()}


def shortened(name: str) -> str:
    """A user's name for something, short enough to leave room for the plot."""
    return formatting.printable(name if len(name) <= 28 else name[:27] + "…")


def _column(rows: Sequence[Mapping[str, Any]], key: str) -> NDArray[np.float64]:
    return np.array([np.nan if row.get(key) is None else float(row[key]) for row in rows])


def _mark_phases(axis: Axes, phases: Sequence[str]) -> None:
    """A faint line where one phase ends and the next begins."""
    for i, (before, after) in enumerate(pairwise(phases)):
        if before != after:
            axis.axvline(i + 1.5, color=FAINT, linewidth=1, linestyle="--", zorder=0)


def _own_ids(svg: str, salt: str) -> str:
    """Drops the ids that nothing refers to, and makes the rest differ from those of other plots on the page."""
    prefix = f"p{sum((i + 1) * ord(c) for i, c in enumerate(salt)) % 0xFFFFFF:06x}-"
    used = set(re.findall(r'(?:url\(|href=")#([^)"]+)', svg))
    svg = re.sub(r' id="([^"]*)"', lambda m: f' id="{prefix}{m[1]}"' if m[1] in used else "", svg)
    return re.sub(r'(url\(|href=")#', rf"\g<1>#{prefix}", svg)
