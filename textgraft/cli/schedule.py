"""textgraft schedule: the learning rates of a recipe, epoch by epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_json, print_table
from textgraft.cli.plots import Plot, validate_plot

if TYPE_CHECKING:
    from textgraft.tasks.learning_rates import StageName


def schedule(
    recipe: Annotated[str, typer.Argument(help="A name from `textgraft recipes`, or a .toml file.")],
    stage: Annotated[str, typer.Option("--stage", help="finetune or adapt.")] = "finetune",
    steps_per_epoch: Annotated[int, typer.Option("--steps-per-epoch", min=1, help="Batches per epoch.")] = 100,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="The model whose layer groups are shown; else a three-layer AWD-LSTM."),
    ] = None,
    plot: Plot = None,
    as_json: o.AsJson = False,
) -> None:
    """Show the layer groups that a recipe trains in each epoch, and their learning rates."""
    from textgraft.tasks.learning_rates import groups_of, schedule

    validate_plot(plot)
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
