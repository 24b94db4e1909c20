"""textgraft tune: better settings of a recipe, found on your labels."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from textgraft.cli import bulk
from textgraft.cli import options as o
from textgraft.cli.console import print_problems, print_table, problems_printed
from textgraft.cli.results import print_json_results, print_written, validate_out


def tune(
    train: o.LabelledTexts,
    out: o.OutFolder,
    space: Annotated[
        Path | None,
        typer.Option(
            "--space",
            help="A .toml file of values to try; else learning rates, epochs and batch sizes around the recipe.",
        ),
    ] = None,
    trials: Annotated[
        int, typer.Option("--trials", min=2, help="How many sets of values are tried, the recipe as it is among them.")
    ] = 16,
    folds: Annotated[int, typer.Option("--folds", min=2, help="Parts of the cross-validation.")] = 3,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="Language model; else a sentence encoder at hand, or en-ulmfit."),
    ] = None,
    recipe: o.Recipe = "default",
    max_tokens: o.MaxTokens = 512,
    seed: o.Seed = 0,
    precision: o.Precision = "auto",
    threads: o.Threads = None,
    text: o.TextColumn = None,
    text2: o.SecondColumn = None,
    label: o.LabelColumn = None,
    id: o.IdColumn = None,
    kind: o.Kind = None,
    label_separator: o.LabelSeparator = None,
    strict: o.Strict = False,
    encoding: o.Encoding = None,
    delimiter: o.Delimiter = None,
    engine: bulk.Engine = "local",
    address: bulk.Address = None,
    workers: bulk.Workers = None,
    quiet: o.Quiet = False,
    as_json: o.AsJson = False,
) -> None:
    """Search for better settings of a recipe by cross-validation, and write them as a recipe.

    Random sets of values are trained on a part of the labels and scored on the rest; after each fold the better half
    goes on. A file for --space has lists, and ranges of numbers, for keys of the recipe:

        batch_size = [8, 16, 32]

        phases.all.lr = {low = 1e-5, high = 1e-3, log = true}

    textgraft tune train.csv --recipe transformer --trials 20 --out tuned

    textgraft finetune train.csv --recipe tuned/recipe.toml --test test.csv --out sentiment

    With --engine ray, the trainings are spread over a cluster, whose machines share the folder of --out.
    """
    from textgraft.cli.resumable import resumable
    from textgraft.comparison.tuning import RECIPE, TuneOptions, tune
    from textgraft.comparison.tuning_report import table_rows
    from textgraft.data.checks import check
    from textgraft.engines.registry import open_engine

    validate_out(out)
    o.use_threads(threads)
    columns = {"text": text, "text2": text2, "label": label, "id": id, "kind": kind, "label_separator": label_separator}
    parts = o.read_parts({"train": train}, **columns, encoding=encoding, delimiter=delimiter)
    labelled, _ = o.labelled_parts(parts, None, strict=strict)
    print_problems(check(labelled["train"]), errors_only=quiet)
    with (
        problems_printed(),
        resumable(out),
        open_engine(engine, address=address, workers=workers, threads=threads) as where,
    ):
        options = TuneOptions(
            model=model,
            recipe=recipe,
            space=space,
            trials=trials,
            folds=folds,
            max_tokens=max_tokens,
            precision=precision,
            seed=seed,
            engine=where,
            show=not quiet,
        )
        results = tune(labelled["train"], out, options=options)
    if as_json:
        print_json_results(out, results)
        return
    print_table(*table_rows(results))
    print(results["verdict"])
    print_written(out, out / RECIPE)
    command = ["textgraft", "finetune", str(train), "--model", results["model"], "--recipe", str(out / RECIPE)]
    print(f"Next: {shlex.join(command)} --out MODEL")
