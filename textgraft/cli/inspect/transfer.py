"""textgraft inspect transfer: copied layer groups, frozen or fine-tuned, beside training from scratch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_note, print_problems, print_table
from textgraft.cli.results import print_json_results, print_written, validate_out
from textgraft.cli.resumable import resumable
from textgraft.core.errors import UserError


def transfer(
    train: o.LabelledTexts,
    out: o.OutFolder,
    test: o.TestTexts = None,
    model: o.DefaultModel = None,
    layers: Annotated[
        str | None,
        typer.Option("--layers", help="Numbers of layer groups to copy, with commas, as in 0,1,2; else all."),
    ] = None,
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, help="Trainings of each kind; mean and spread are reported.")
    ] = 3,
    recipe: o.Recipe = "transfer",
    measure_every: Annotated[
        int | None, typer.Option("--measure-every", min=1, help="Steps between points of a curve; else an epoch.")
    ] = None,
    embedding_layer: Annotated[
        bool,
        typer.Option(
            "--embedding-layer/--no-embedding-layer",
            help="Feed the embedding layer to the task layer too.",
        ),
    ] = True,
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
    encoding: o.Encoding = None,
    delimiter: o.Delimiter = None,
    quiet: o.Quiet = False,
    as_json: o.AsJson = False,
) -> None:
    """Measure which layers of a pretrained model transfer to your task, beside training from scratch.

    After Yosinski et al. 2014: the first n layer groups are copied, frozen or fine-tuned; the rest is trained from
    random weights.
    """
    from textgraft.data.checks import check
    from textgraft.experiments.transfer import TransferOptions, inspect_transfer, prepare_setup
    from textgraft.training.settings import Settings

    validate_out(out)
    o.use_threads(threads)
    options = TransferOptions(
        recipe=recipe,
        seeds=seeds,
        layers=parse_layers(layers),
        max_tokens=max_tokens,
        words=embedding_layer,
        settings=Settings(seed=seed, precision=precision, validate_every=measure_every),
    )
    columns = {"text": text, "text2": text2, "label": label, "id": id, "kind": kind, "label_separator": label_separator}
    columns |= {"encoding": encoding, "delimiter": delimiter}
    parts = o.read_parts({"train": train, "test": test}, **columns)
    examples, test_examples = parts["train"], parts.get("test")
    prepare_setup(examples, test_examples, model, options)  # for its errors, before other output
    print_problems(check(examples, test=test_examples), errors_only=quiet)
    if test_examples is None and not quiet:
        print_note("textgraft: there is no --test, so a fifth of the texts is held out for evaluation.")
    with resumable(out):
        results = inspect_transfer(examples, out, model=model, test=test_examples, options=options, show=not quiet)
    _print_results(out, results, as_json)


def parse_layers(value: str | None) -> tuple[int, ...] | None:
    """Return the numbers in a value such as `0,1,2`. Raises UserError for any other form."""
    if value is None:
        return None
    try:
        return tuple(int(part) for part in value.split(","))
    except ValueError as error:
        remedy = "Write numbers with commas between them, as in 0,1,2."
        raise UserError(f"'{value}' is no list of numbers.", where="--layers", remedy=remedy) from error


def _print_results(out: Path, results: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json_results(out, results)
        return
    # Here, because it loads matplotlib.
    from textgraft.experiments.transfer_report import benefit_rows, table_rows

    print_table(*table_rows(results))
    print_table(*benefit_rows(results))
    print("\n".join(results["verdict"]))
    print_written(out)
