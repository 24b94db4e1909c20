"""Options that several commands share, as annotated types; their help is written once, here."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from textgraft.data.examples import Examples

DATA = "Reading data"
TRAINING = "Training"

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else there.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, nor notes on the data, on stderr.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a model that is at --out already.")]
DefaultModel = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        help="A model that ships, by name, or a folder; else en-ulmfit, for Thai texts th-ulmfit.",
    ),
]
Recipe = Annotated[
    str, typer.Option("--recipe", help="How to train: a name from `textgraft recipes`, or a .toml file.")
]
LAYER_AGGREGATIONS = "first, last, second-to-last, sum, sum-last-4, concat-last-4, mix, or elmo-mix, which are learned"
"""The names of nn.layer_aggregation.LAYER_AGGREGATIONS, which takes torch to ask."""
LayerAggregation = Annotated[
    str, typer.Option("--layer-aggregation", help=f"Which layers the head reads: {LAYER_AGGREGATIONS}.")
]
Minutes = Annotated[
    float | None, typer.Option("--minutes", min=0.01, help="Train for this long instead of the recipe's epochs.")
]
Seed = Annotated[int, typer.Option("--seed", min=0, rich_help_panel=TRAINING)]
Precision = Annotated[
    str,
    typer.Option(
        "--precision", help="auto, fp32 or bf16 (auto: bf16 where the processor has it).", rich_help_panel=TRAINING
    ),
]
ReadingPrecision = Annotated[
    str,
    typer.Option(
        "--precision",
        help="auto, fp32, bf16, or int8: products in eight bits where the processor has VNNI, if the answers stay.",
        rich_help_panel=TRAINING,
    ),
]
Device = Annotated[
    str,
    typer.Option("--device", help="auto, cpu or cuda (auto: cuda where torch sees a GPU).", rich_help_panel=TRAINING),
]
Patience = Annotated[
    int | None, typer.Option("--patience", min=1, help="Stop after so many validations without a gain.")
]
Threads = Annotated[
    int | None, typer.Option("--threads", min=1, help="Processor cores to use.", rich_help_panel=TRAINING)
]
TextColumn = Annotated[
    str | None,
    typer.Option("--text", "--text-column", help="The column of the texts; else guessed.", rich_help_panel=DATA),
]
SecondColumn = Annotated[
    str | None,
    typer.Option("--text2", "--text2-column", help="The column of second texts; else guessed.", rich_help_panel=DATA),
]
LabelColumn = Annotated[
    str | None,
    typer.Option("--label", "--label-column", help="The column of the labels; else guessed.", rich_help_panel=DATA),
]
IdColumn = Annotated[
    str | None, typer.Option("--id", "--id-column", help="The column of your ids; else guessed.", rich_help_panel=DATA)
]
Kind = Annotated[
    str | None,
    typer.Option("--kind", help="single, multi or numeric labels, or choice; else guessed.", rich_help_panel=DATA),
]
LabelSeparator = Annotated[
    str | None,
    typer.Option("--label-separator", help='What parts several labels in one cell, as in "a|b".', rich_help_panel=DATA),
]
Encoding = Annotated[
    str | None, typer.Option("--encoding", help="The files' encoding; else sniffed.", rich_help_panel=DATA)
]
Delimiter = Annotated[
    str | None, typer.Option("--delimiter", help="What parts a table's columns; else guessed.", rich_help_panel=DATA)
]


def read_file(path: Path, **columns: Any) -> Examples:
    """`textgraft.read` with the options that were given."""
    from textgraft.data.readers import read

    return read(path, **{name: value for name, value in columns.items() if value is not None})


def read_pool(paths: list[Path] | None, *, text: str | None = None, encoding: str | None = None) -> list[str] | None:
    """All texts of files, folders and globs, labelled or not; None where none are named."""
    from textgraft.data.readers import read_texts

    return list(read_texts(paths, text=text, encoding=encoding)) if paths else None


def use_threads(count: int | None) -> None:
    """Compute on so many cores; all of them if None. A graph goes by the variable, and torch may be missing then."""
    if count is not None:
        os.environ["OMP_NUM_THREADS"] = str(count)
        with suppress(ImportError):
            import torch

            torch.set_num_threads(count)
