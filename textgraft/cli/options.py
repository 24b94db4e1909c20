"""Options that several commands share, as annotated types, with their help."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from textgraft.data.examples import Examples

DATA = "Data"
TRAINING = "Training"

OutFolder = Annotated[Path, typer.Option("--out", "-o", help="The folder to write; must not exist.")]
LabelledTexts = Annotated[
    Path, typer.Argument(help="Labelled texts: .csv .tsv .jsonl .parquet, or a folder with a subfolder per class.")
]
TestTexts = Annotated[
    Path | None, typer.Option("--test", help="Labelled texts to evaluate on; else a fifth of TRAIN is held out.")
]
UnlabelledFiles = Annotated[
    list[Path] | None, typer.Option("--unlabelled", "-u", help="Text of the domain; repeat for more files.")
]
LanguageModel = Annotated[str, typer.Argument(help="A bundled language model, by name, or a folder.")]
MaxTokens = Annotated[int, typer.Option("--max-tokens", min=8, help="Longer texts are truncated in the middle.")]
AdaptMinutes = Annotated[
    float | None, typer.Option("--adapt-minutes", min=0.01, help="Adapt for this long instead of the recipe's epochs.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress and no notes on the data on stderr.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what exists at the output path.")]
DefaultModel = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        help="A name of `textgraft models`, hf:NAME or a folder; else en-ulmfit, for Thai texts th-ulmfit.",
    ),
]
Recipe = Annotated[
    str, typer.Option("--recipe", help="The training recipe: a name from `textgraft recipes`, or a .toml file.")
]
LAYER_AGGREGATIONS = "first, last, second-to-last, sum, sum-last-4, concat-last-4, mix or elmo-mix (learned weights)"
"""The names in nn.layer_aggregation.LAYER_AGGREGATIONS, whose import loads torch."""
LayerAggregation = Annotated[
    str,
    typer.Option(
        "--layer-aggregation",
        help=f"The encoder layers that feed the task layer: {LAYER_AGGREGATIONS}.",
    ),
]
Minutes = Annotated[
    float | None,
    typer.Option("--minutes", min=0.01, help="A duration: train this long instead of the recipe's epochs."),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="The random seed.", rich_help_panel=TRAINING)]
Precision = Annotated[
    str,
    typer.Option(
        "--precision", help="auto, fp32 or bf16 (auto: bf16 where the processor supports it).", rich_help_panel=TRAINING
    ),
]
InferencePrecision = Annotated[
    str,
    typer.Option(
        "--precision",
        help="auto, fp32, bf16, or int8: 8-bit products where the processor has VNNI, if predictions stay the same.",
        rich_help_panel=TRAINING,
    ),
]
Device = Annotated[
    str,
    typer.Option("--device", help="auto, cpu or cuda (auto: cuda where torch finds a GPU).", rich_help_panel=TRAINING),
]
Sharding = Annotated[
    str,
    typer.Option(
        "--sharding",
        help="With torchrun: none (a copy of the model on each process) or full (a part of it; FSDP2).",
        rich_help_panel=TRAINING,
    ),
]
ActivationCheckpointing = Annotated[
    bool,
    typer.Option(
        "--activation-checkpointing",
        help="Compute layers again in the backward pass, which takes less memory and a third more time.",
        rich_help_panel=TRAINING,
    ),
]
Patience = Annotated[
    int | None, typer.Option("--patience", min=1, help="Stop after this many validations without improvement.")
]
Threads = Annotated[
    int | None, typer.Option("--threads", min=1, help="Number of processor cores.", rich_help_panel=TRAINING)
]
TextColumn = Annotated[
    str | None,
    typer.Option("--text", "--text-column", help="The column of the texts; else inferred.", rich_help_panel=DATA),
]
SecondColumn = Annotated[
    str | None,
    typer.Option(
        "--text2", "--text2-column", help="The column of the second texts; else inferred.", rich_help_panel=DATA
    ),
]
LabelColumn = Annotated[
    str | None,
    typer.Option(
        "--label",
        "--label-column",
        help="The column of the labels, or a column of 0 and 1 for each label, as in a,b,c; else inferred.",
        rich_help_panel=DATA,
    ),
]
IdColumn = Annotated[
    str | None, typer.Option("--id", "--id-column", help="The column of the ids; else inferred.", rich_help_panel=DATA)
]
Kind = Annotated[
    str | None,
    typer.Option("--kind", help="single, multi or numeric labels, or choice; else inferred.", rich_help_panel=DATA),
]
LabelSeparator = Annotated[
    str | None,
    typer.Option(
        "--label-separator", help='The separator of several labels in one cell, as in "a|b".', rich_help_panel=DATA
    ),
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="Refuse rows without a label, which are else unlabelled text, and left out of a test set.",
        rich_help_panel=DATA,
    ),
]
Encoding = Annotated[
    str | None, typer.Option("--encoding", help="The encoding of the files; else detected.", rich_help_panel=DATA)
]
Delimiter = Annotated[
    str | None, typer.Option("--delimiter", help="The delimiter of columns; else inferred.", rich_help_panel=DATA)
]


def read_file(path: Path, **columns: Any) -> Examples:
    """Return the examples in `path`; options that are None are left to `textgraft.read`."""
    from textgraft.data.readers import read

    return read(path, **{name: value for name, value in columns.items() if value is not None})


def read_parts(paths: Mapping[str, Path | None], **columns: Any) -> dict[str, Examples]:
    """Return the examples of each part of the data that has a path, by name; the others read as the first."""
    from textgraft.data.readers import read

    return parts_of(paths, read, columns)


def parts_of(
    paths: Mapping[str, Path | None], reader: Callable[..., Examples], columns: Mapping[str, Any]
) -> dict[str, Examples]:
    """`read_parts` by `textgraft.read` or a function like it."""
    from textgraft.data.held_out import read_held_out

    given = {name: value for name, value in columns.items() if value is not None}
    parts: dict[str, Examples] = {}
    for name, path in paths.items():
        if path is not None:
            first = next(iter(parts.values()), None)
            parts[name] = reader(path, **given) if first is None else read_held_out(path, first, reader=reader, **given)
    return parts


def labelled_parts(
    parts: Mapping[str, Examples], pool: list[str] | None, *, strict: bool
) -> tuple[dict[str, Examples], list[str] | None]:
    """Return the parts without the examples that have no label, and the pool with those of the first part.

    Raises UserError for the first of them if `strict`.
    """
    from textgraft.data.labels import validate_labelled
    from textgraft.data.unlabelled import split_unlabelled

    labelled: dict[str, Examples] = {}
    for index, (name, part) in enumerate(parts.items()):
        if strict:
            validate_labelled(part)
        labelled[name], texts = split_unlabelled(part)
        if texts and index == 0:
            pool = [*(pool or ()), *texts]
    return labelled, pool


def read_pool(paths: list[Path] | None, *, text: str | None = None, encoding: str | None = None) -> list[str] | None:
    """Return all texts in files, folders and globs, labelled or not; None for no paths."""
    from textgraft.data.readers import read_texts

    return list(read_texts(paths, text=text, encoding=encoding)) if paths else None


def use_threads(count: int | None) -> None:
    """Compute on `count` cores, all of them if None. An ONNX graph uses the variable, and needs no torch."""
    if count is not None:
        os.environ["OMP_NUM_THREADS"] = str(count)
        with suppress(ImportError):
            import torch

            torch.set_num_threads(count)
