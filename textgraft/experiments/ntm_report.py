"""Report of `inspect ntm`: one self-contained HTML file, made from results.json alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from textgraft.report import html
from textgraft.report.plots import Plot, laid_out, style

READING_NOTE = (
    "How to read the pictures: time runs to the right. First what goes in, what should come out, what does; then the "
    "vectors that are added to the memory and read from it; then the weights of the writing and the reading head over "
    "the slots, darker for more. A network that has learned to copy writes to one slot after another, goes back to the "
    "first, and reads them in the same order."
)
MAX_SLOTS = 64


def render_ntm(results: Mapping[str, Any]) -> str:
    """Render the report as an HTML document.

    Args:
        results: The contents of results.json, as experiments.ntm_training.inspect_ntm returns them.
    """
    head, rows = table_rows(results)
    caption = f"Task {results['task']}: {results['about']}. Mean cost with 95 % interval over new sequences."
    body = [
        html.figure(curves_plot(results)),
        html.table(head, rows, caption=caption, css=["", *["number"] * (len(head) - 1)]),
    ]
    sections = [html.section("learning", "Learning", *body)]
    traced = {name: one["trace"] for name, one in results["networks"].items() if "trace" in one}
    if traced:
        pictures = [html.figure(trace_plot(name, trace)) for name, trace in traced.items()]
        sections.append(html.section("memory", "Memory", html.paragraph(READING_NOTE, "quiet"), *pictures))
    return html.page(f"Neural Turing Machine: {results['task']}", "".join(sections))


def table_rows(results: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table of costs by network and size."""
    rows = []
    for name, one in results["networks"].items():
        for test in one["tested"]:
            cost = test["bits"]
            shown = f"{cost['mean']:.3f} [{cost['low']:.3f}, {cost['high']:.3f}]"
            rows.append([name, f"{one['parameters']:,}", str(test["size"]), shown, f"{100 * test['wrong']:.2f} %"])
    return ["network", "parameters", "size", "bits a sequence", "wrong bits"], rows


def curves_plot(results: Mapping[str, Any]) -> Plot:
    """Cost in bits a sequence by the number of sequences, like figure 3 of the paper."""
    with style():
        figure = Figure(figsize=(7, 3.2))
        axis = figure.subplots()
        for name, one in results["networks"].items():
            sequences, cost = np.array(one["curve"]).T
            axis.plot(sequences / 1000, np.maximum(cost, 1e-4), label=name)
        axis.set(xlabel="thousand sequences", ylabel="bits a sequence", yscale="log")
        axis.legend()
    last = "; ".join(f"{name} {one['curve'][-1][1]:.3f}" for name, one in results["networks"].items())
    return laid_out(figure, f"Cost in bits a sequence while training on {results['task']}, at the end: {last}.")


def trace_plot(name: str, trace: Mapping[str, Any]) -> Plot:
    """Inputs, outputs, vectors added and read, and attention over slots by time, like figures 4 and 6 of the paper."""
    arrays = {key: np.array(value) for key, value in trace.items()}
    steps, heads = arrays["weights"].shape[:2]
    outputs = [_at_the_end(arrays[key], steps) for key in ("targets", "answers")]
    used = _used_slots(arrays["weights"])
    panels: list[tuple[str, NDArray]] = [
        ("inputs", arrays["inputs"].T),
        ("targets", outputs[0].T),
        ("answers", outputs[1].T),
        ("added", arrays["adds"][:, 0].T),
        ("read", arrays["reads"][:, 0].T),
        ("writing", arrays["weights"][:, heads // 2].T[used]),
        ("reading", arrays["weights"][:, 0].T[used]),
    ]
    with style(), matplotlib.rc_context({"axes.grid": False}):
        heights = [max(4, len(panel)) for _, panel in panels]
        figure = Figure(figsize=(7, 1 + 0.05 * sum(heights)))
        axes = figure.subplots(len(panels), 1, sharex=True, height_ratios=heights)
        for axis, (title, panel) in zip(axes, panels, strict=True):
            lowest = min(0.0, float(panel.min()))
            axis.imshow(panel, aspect="auto", cmap="Greys", vmin=lowest, interpolation="nearest")
            axis.set_ylabel(title, rotation=0, ha="right", va="center")
            axis.set_yticks([])
        axes[-1].set_xlabel("step")
    return laid_out(figure, f"{name}: inputs, answers, memory and attention over {steps} steps of one sequence.")


def _at_the_end(values: NDArray, steps: int) -> NDArray:
    """Rows of the answer at the last steps of all; zeros before."""
    return np.concatenate([np.zeros((steps - len(values), values.shape[1])), values])


def _used_slots(weights: NDArray) -> NDArray[np.int64]:
    """The slots between the first and the last that a head has looked at, at most MAX_SLOTS."""
    attended = np.flatnonzero(weights.max(axis=(0, 1)) > 0.1)
    if not len(attended):
        return np.arange(min(MAX_SLOTS, weights.shape[2]))
    # The memory is a ring: begin after the widest gap.
    gaps = np.diff(np.append(attended, attended[0] + weights.shape[2]))
    first = attended[(int(gaps.argmax()) + 1) % len(attended)]
    length = min(MAX_SLOTS, weights.shape[2] - int(gaps.max()) + 1)
    return np.asarray((first + np.arange(length)) % weights.shape[2])
