"""textgraft inspect: look into models and into what transfer does, one experiment a verb."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_json, print_problems, print_table, say
from textgraft.cli.groups import group_of
from textgraft.cli.inspect_layers import geometry, layer_aggregations, weights, words
from textgraft.core.errors import UserError


def transfer(
    train: Annotated[Path, typer.Argument(help="Labelled texts: .csv .tsv .jsonl .parquet, or a folder a class.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write; must not exist.")],
    test: Annotated[
        Path | None, typer.Option("--test", help="Labelled texts to measure on; else a fifth of TRAIN is held out.")
    ] = None,
    model: o.DefaultModel = None,
    layers: Annotated[
        str | None,
        typer.Option("--layers", help="How many layer groups to copy, with commas, as in 0,1,2; else each number."),
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Networks of each kind; report mean and spread.")] = 3,
    recipe: o.Recipe = "transfer",
    measure_every: Annotated[
        int | None, typer.Option("--measure-every", min=1, help="Steps between two points of a curve; else an epoch.")
    ] = None,
    words: Annotated[
        bool, typer.Option("--words/--no-words", help="Let the head see the embedding layer beside the top one.")
    ] = True,
    max_tokens: Annotated[int, typer.Option("--max-tokens", min=8, help="Longer texts lose their middle.")] = 512,
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
    """Which layers of a pretrained model transfer to your task, and what is that worth beside training from scratch?

    After Yosinski et al. 2014: the first n layer groups copied, frozen or fine-tuned, and the rest trained anew.
    """
    from textgraft.cli.train import resumable
    from textgraft.core.files import validate_writable
    from textgraft.data.checks import check
    from textgraft.experiments.transfer import TransferOptions, inspect_transfer, prepare_setup
    from textgraft.training.loop import Settings
    from textgraft.training.results_folder import refuse_existing

    refuse_existing(out)
    validate_writable(out)
    o.use_threads(threads)
    options = TransferOptions(
        recipe=recipe,
        seeds=seeds,
        layers=parse_layers(layers),
        max_tokens=max_tokens,
        words=words,
        settings=Settings(seed=seed, precision=precision, validate_every=measure_every),
    )
    columns = {"text": text, "text2": text2, "label": label, "id": id, "kind": kind, "label_separator": label_separator}
    columns |= {"encoding": encoding, "delimiter": delimiter}
    examples = o.read_file(train, **columns)
    tested = o.read_file(test, **columns) if test is not None else None
    prepare_setup(examples, tested, model, options)  # for all that it refuses, before anything else is said
    print_problems(check(examples, test=tested), errors_only=quiet)
    if tested is None and not quiet:
        say("textgraft: there is no --test, so a fifth of the texts is held out to measure on.")
    with resumable(out):
        results = inspect_transfer(examples, out, model=model, test=tested, options=options, show=not quiet)
    _told(out, results, as_json)


INSPECTIONS: tuple[tuple[str, Callable[..., Any], str], ...] = (
    (
        "transfer",
        transfer,
        "textgraft inspect transfer train.csv --test test.csv --model en-ulmfit --seeds 3 --out transfer",
    ),
    ("words", words, "textgraft inspect words en-ulmfit wiki.jsonl --word bank --word mouse --out words"),
    ("geometry", geometry, "textgraft inspect geometry en-ulmfit wiki.jsonl --out geometry"),
    ("weights", weights, "textgraft inspect weights tagger entailment --out weights"),
    (
        "layers",
        layer_aggregations,
        "textgraft inspect layers train.conll --test test.conll --model hf:bert-folder --out layers",
    ),
)
"""Name, function and an example for --help, in the order that help lists them."""


def group() -> typer.Typer:
    """`textgraft inspect` with its verbs."""
    return group_of(
        INSPECTIONS, "Look into models and what transfer does: vectors, layers, experiments on your own task."
    )


def parse_layers(value: str | None) -> tuple[int, ...] | None:
    """`0,1,2` as numbers. Raises UserError for anything else."""
    if value is None:
        return None
    try:
        return tuple(int(part) for part in value.split(","))
    except ValueError as error:
        remedy = "Write numbers with commas between them, as in 0,1,2."
        raise UserError(f"'{value}' is no list of numbers.", where="--layers", remedy=remedy) from error


def _told(out: Path, results: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json({"out": out, "report": out / "report.html", **results})
        return
    # Here, because it loads matplotlib.
    from textgraft.experiments.transfer_report import benefit_rows, table_rows

    print_table(*table_rows(results))
    print_table(*benefit_rows(results))
    print("\n".join(results["verdict"]))
    print(f"Written: {out / 'report.html'}, {out / 'results.json'}")
