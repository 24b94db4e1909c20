"""textgraft inspect layers: a head on frozen features through each layer aggregation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_table
from textgraft.cli.results import print_json_results, print_written, validate_out
from textgraft.cli.resumable import resumable

if TYPE_CHECKING:
    from textgraft.data.conll import Tagged
    from textgraft.data.examples import Examples


def layers(
    train: Annotated[Path, typer.Argument(help="Sentences with tags (CoNLL), or labelled texts (.csv .tsv .jsonl …).")],
    test: Annotated[Path, typer.Option("--test", help="The same, for the final evaluation.")],
    out: o.OutFolder,
    model: o.DefaultModel = None,
    layer_aggregations: Annotated[
        str | None,
        typer.Option("--layer-aggregations", help="Names with commas; else all that the model has layers for."),
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Trainings of each; the spread is reported.")] = 3,
    sample: Annotated[
        int | None, typer.Option("--sample", min=1, help="Train on this many sentences or texts.")
    ] = None,
    test_sample: Annotated[int | None, typer.Option("--test-sample", min=1, help="Evaluate on this many.")] = None,
    lstm_layers: Annotated[
        int | None,
        typer.Option(
            "--lstm-layers",
            min=0,
            help="Compute the vectors of tagged words once, and train this many LSTM layers between them and the "
            "linear layer (0: none; the paper has 2).",
        ),
    ] = None,
    lstm_width: Annotated[int, typer.Option("--lstm-width", min=1, help="Width of the LSTM in each direction.")] = 256,
    recipe: Annotated[
        str | None,
        typer.Option(
            "--recipe",
            help="The training recipe: a name from `textgraft recipes`, or a .toml file; else frozen, and tagger "
            "with --lstm-layers.",
        ),
    ] = None,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", min=8, help="Longer texts are truncated, or split into windows.")
    ] = 256,
    seed: o.Seed = 0,
    precision: o.Precision = "auto",
    device: o.Device = "auto",
    threads: o.Threads = None,
    text: o.TextColumn = None,
    text2: o.SecondColumn = None,
    label: o.LabelColumn = None,
    kind: o.Kind = None,
    quiet: o.Quiet = False,
    as_json: o.AsJson = False,
) -> None:
    """Compare layer aggregations: a head on frozen features for each, with several seeds.

    After table 7 of Devlin et al. 2019, with learned mixes besides its six.
    """
    from textgraft.experiments.layer_aggregation import inspect_layers, sampled
    from textgraft.experiments.layer_tasks import LayerOptions
    from textgraft.nn.layer_aggregation import LAYER_AGGREGATIONS
    from textgraft.tasks.tagging.stacked import Network
    from textgraft.training.settings import Settings

    validate_out(out)
    o.use_threads(threads)
    network = None
    if lstm_layers is not None:  # without characters: the table compares the layers' vectors and nothing else
        shape = {"hidden_dim": lstm_width, "num_layers": lstm_layers}
        network = Network(**shape, projection_dim=None if lstm_layers else 0, character_filters=0)
    options = LayerOptions(
        recipe=recipe,
        layer_aggregations=tuple(LAYER_AGGREGATIONS)
        if layer_aggregations is None
        else tuple(layer_aggregations.split(",")),
        seeds=seeds,
        max_tokens=max_tokens,
        settings=Settings(seed=seed, precision=precision, device=device),
        network=network,
    )
    columns = {"text": text, "text2": text2, "label": label, "kind": kind}
    train_data = sampled(_examples(train, columns), sample)
    test_data = sampled(_examples(test, columns), test_sample)
    with resumable(out):
        results = inspect_layers(train_data, out, test=test_data, model=model, options=options, show=not quiet)
    if as_json:
        print_json_results(out, results)
        return
    from textgraft.experiments.layer_aggregation_report import table_rows  # here, because it loads matplotlib

    print_table(*table_rows(results))
    print("\n".join([*(f"Left out: {reason}" for reason in results["left_out"].values()), *results["verdict"]]))
    print_written(out)


def _examples(path: Path, columns: dict[str, Any]) -> Tagged | Examples:
    """Return labelled texts from a table or a folder of classes, else tagged sentences."""
    from textgraft.data.members import format_of
    from textgraft.data.tables import TABLE_SUFFIXES, located
    from textgraft.data.tagged import read_tagged

    if path.is_dir() or format_of(located(path)) in TABLE_SUFFIXES:
        return o.read_file(path, **columns)
    return read_tagged(path)
