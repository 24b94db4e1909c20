"""textgraft lr-find and schedule: learning rates, before anything is trained."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_json, print_table
from textgraft.core.errors import UserError

if TYPE_CHECKING:
    from textgraft.tasks.learning_rates import StageName

Plot = Annotated[Path | None, typer.Option("--plot", help="Draw it, as .png or .svg.")]
PLOTS = (".png", ".svg")


def _check_plot(path: Path | None) -> None:
    from textgraft.core.files import validate_writable

    if path is None:
        return
    if path.suffix not in PLOTS:
        raise UserError(f"plots are written as {' or '.join(PLOTS)}.", where=str(path), remedy="Name such a file.")
    validate_writable(path)


def lr_find(
    train: Annotated[Path, typer.Argument(help="Labelled texts or pairs; with --adapt any texts.")],
    model: o.DefaultModel = None,
    adapt: Annotated[bool, typer.Option("--adapt", help="Test the language model instead of the classifier.")] = False,
    recipe: o.Recipe = "default",
    phase: Annotated[
        str | None, typer.Option("--phase", help="Whose layer groups to train: a phase's name; else the first.")
    ] = None,
    steps: Annotated[int, typer.Option("--steps", min=20, help="From the lowest rate to the highest.")] = 100,
    highest: Annotated[float, typer.Option("--highest", min=1e-6, help="Where to end, if the loss bears it.")] = 10.0,
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
    """Find a learning rate: raise it step by step and watch where the loss falls, and where it breaks."""
    from textgraft.tasks.learning_rates import lr_find
    from textgraft.training.loop import Settings

    _check_plot(plot)
    columns = {"text": text, "text2": text2, "encoding": encoding, "delimiter": delimiter}
    labels = {"label": label, "kind": kind, "label_separator": label_separator}
    examples = o.read_file(train, **columns, **({} if adapt else labels))
    o.use_threads(threads)
    found = lr_find(
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

        plots.lr_find([s.lr for s in found.steps], [s.smoothed for s in found.steps], found.suggestion).save(plot)
    suggested = {
        "suggestion": found.suggestion,
        "steepest": found.steepest,
        "tenth_of_lowest": found.tenth_of_lowest,
    }
    if as_json:
        print_json({**suggested, "plot": plot, "steps": [vars(step) for step in found.steps]})
        return
    shown = found.steps[:: max(1, len(found.steps) // 20)]
    print_table(
        ["learning rate", "loss", "smoothed"], [[f"{s.lr:.2e}", f"{s.loss:.4f}", f"{s.smoothed:.4f}"] for s in shown]
    )
    print("\n".join(f"{name.replace('_', ' ')}: {_rate(value)}" for name, value in suggested.items()))
    if plot is not None:
        print(f"Written: {plot}")


def _rate(value: float | None) -> str:
    return "none; the loss did not fall" if value is None else f"{value:.2e}"


def schedule(
    recipe: Annotated[str, typer.Argument(help="A name from `textgraft recipes`, or a .toml file.")],
    stage: Annotated[str, typer.Option("--stage", help="finetune or adapt.")] = "finetune",
    steps_per_epoch: Annotated[int, typer.Option("--steps-per-epoch", min=1, help="Batches in an epoch.")] = 100,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Whose layer groups to show; else a three-layer AWD-LSTM's.")
    ] = None,
    plot: Plot = None,
    as_json: o.AsJson = False,
) -> None:
    """Show what a recipe trains in each epoch, and at which learning rates."""
    from textgraft.tasks.learning_rates import groups_of, schedule

    _check_plot(plot)
    name = cast("StageName", stage)
    groups = None if model is None else groups_of(model, name)
    planned = schedule(recipe, stage=name, groups=groups, steps_per_epoch=steps_per_epoch)
    if plot is not None:
        from textgraft.report import plots

        plots.schedule(planned.curves, steps_per_epoch).save(plot)
    if as_json:
        rows = [vars(row) for row in planned.rows]
        print_json({"recipe": recipe, "stage": stage, "steps_per_epoch": steps_per_epoch, "plot": plot, "rows": rows})
        return
    cells = [
        [str(r.epoch), r.phase, r.group, *(f"{v:.2e}" if r.trainable else "frozen" for v in (r.start, r.peak, r.end))]
        for r in planned.rows
    ]
    print_table(["epoch", "phase", "layer group", "start", "peak", "end"], cells)
    if plot is not None:
        print(f"Written: {plot}")
