"""textgraft lr-find: a learning rate, before training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_json, print_table
from textgraft.cli.plots import Plot, validate_plot


def lr_find(
    train: Annotated[Path, typer.Argument(help="Labelled texts or pairs; with --adapt any texts.")],
    model: o.DefaultModel = None,
    adapt: Annotated[bool, typer.Option("--adapt", help="Test the language model instead of the classifier.")] = False,
    recipe: o.Recipe = "default",
    phase: Annotated[
        str | None, typer.Option("--phase", help="The phase whose layer groups are trained, by name; else the first.")
    ] = None,
    steps: Annotated[int, typer.Option("--steps", min=20, help="Steps from the lowest rate to the highest.")] = 100,
    highest: Annotated[
        float, typer.Option("--highest", min=1e-6, help="The highest rate, unless the loss diverges earlier.")
    ] = 10.0,
    plot: Plot = None,
    seed: o.Seed = 0,
    precision: o.Precision = "auto",
    threads: o.Threads = None,
    text: o.TextColumn = None,
    text2: o.SecondColumn = None,
    label: o.LabelColumn = None,
    kind: o.Kind = None,
    label_separator: o.LabelSeparator = None,
    encoding: o.Encoding = None,
    delimiter: o.Delimiter = None,
    as_json: o.AsJson = False,
) -> None:
    """Run a learning-rate range test: raise the rate step by step and record the loss."""
    from textgraft.tasks.learning_rates import lr_find
    from textgraft.training.settings import Settings

    validate_plot(plot)
    columns = {"text": text, "text2": text2, "encoding": encoding, "delimiter": delimiter}
    labels = {"label": label, "kind": kind, "label_separator": label_separator}
    examples = o.read_file(train, **columns, **({} if adapt else labels))
    o.use_threads(threads)
    result = lr_find(
        list(examples.texts) if adapt else examples,
        model=model,
        recipe=recipe,
        phase=phase,
        steps=steps,
        highest=highest,
        settings=Settings(seed=seed, precision=precision),
    )
    if plot is not None:
        from textgraft.report import plots

        plots.lr_find([s.lr for s in result.steps], [s.smoothed for s in result.steps], result.suggestion).save(plot)
    suggested = {
        "suggestion": result.suggestion,
        "steepest": result.steepest,
        "tenth_of_lowest": result.tenth_of_lowest,
    }
    if as_json:
        print_json({**suggested, "plot": plot, "steps": [vars(step) for step in result.steps]})
        return
    shown = result.steps[:: max(1, len(result.steps) // 20)]
    print_table(
        ["learning rate", "loss", "smoothed"], [[f"{s.lr:.2e}", f"{s.loss:.4f}", f"{s.smoothed:.4f}"] for s in shown]
    )
    print("\n".join(f"{name.replace('_', ' ')}: {_rate(value)}" for name, value in suggested.items()))
    if plot is not None:
        print(f"Written: {plot}")


def _rate(value: float | None) -> str:
    return "none; the loss did not fall" if value is None else f"{value:.2e}"
