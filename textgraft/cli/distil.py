"""textgraft distil: training of a small model on the outputs of a large one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_json
from textgraft.core.context import RunContext

if TYPE_CHECKING:
    from textgraft.data.examples import Examples
    from textgraft.distillation.options import Distilled


def distil(
    teacher: Annotated[str, typer.Argument(help="A classifier of any kind, or a language model: a folder or a name.")],
    pool: Annotated[list[Path], typer.Argument(help="Files, folders or globs of text; labels are ignored.")],
    out: o.OutFolder,
    student: Annotated[
        str | None,
        typer.Option(
            "--student",
            "-s",
            help="The student's language model; else en-ulmfit, for Thai th-ulmfit, or half of the teacher's layers.",
        ),
    ] = None,
    labelled: Annotated[
        Path | None, typer.Option("--labelled", "-l", help="Labelled texts, to train on their labels too.")
    ] = None,
    test: Annotated[Path | None, typer.Option("--test", help="Labelled texts to evaluate both on.")] = None,
    recipe: o.Recipe = "default",
    temperature: Annotated[
        float | None,
        typer.Option("--temperature", help="Softmax temperature of teacher and student; else 2, or the recipe's."),
    ] = None,
    alpha: Annotated[
        float | None, typer.Option("--alpha", help="Weight of the label's loss for labelled texts; else 0.5.")
    ] = None,
    finetune: Annotated[
        bool, typer.Option("--finetune", help="Then fine-tune the student on the labelled texts alone.")
    ] = False,
    from_scratch: Annotated[
        bool, typer.Option("--from-scratch", help="Start the student from random weights, in the same architecture.")
    ] = False,
    max_tokens: o.MaxTokens = 512,
    minutes: o.Minutes = None,
    patience: o.Patience = None,
    seed: o.Seed = 0,
    precision: o.Precision = "auto",
    device: o.Device = "auto",
    sharding: o.Sharding = "none",
    activation_checkpointing: o.ActivationCheckpointing = False,
    threads: o.Threads = None,
    text: o.TextColumn = None,
    text2: o.SecondColumn = None,
    label: o.LabelColumn = None,
    id: o.IdColumn = None,
    kind: o.Kind = None,
    label_separator: o.LabelSeparator = None,
    encoding: o.Encoding = None,
    delimiter: o.Delimiter = None,
    overwrite: o.Overwrite = False,
    quiet: o.Quiet = False,
    as_json: o.AsJson = False,
) -> None:
    """Train a small model to reproduce the outputs of a large one; texts need no labels.

    A classifier as teacher gives a classifier, fine-tuned from --student; a language model gives a language model.
    """
    from textgraft.cli.resumable import resumable, validate_out
    from textgraft.distillation.distil import distil
    from textgraft.distillation.options import DistilOptions
    from textgraft.training.settings import Settings

    validate_out(out, overwrite)
    o.use_threads(threads)
    settings = Settings(
        seed=seed,
        precision=precision,
        minutes=minutes,
        patience=patience,
        device=device,
        sharding=sharding,
        activation_checkpointing=activation_checkpointing,
    )
    options = DistilOptions(
        recipe=recipe,
        temperature=temperature,
        alpha=alpha,
        finetune=finetune,
        from_scratch=from_scratch,
        max_tokens=max_tokens,
        settings=settings,
    )
    columns = {"text": text, "text2": text2, "label": label, "id": id, "kind": kind, "label_separator": label_separator}
    columns |= {"encoding": encoding, "delimiter": delimiter}
    parts = o.read_parts({"labelled": labelled, "test": test}, **columns)
    with resumable(out):
        result = distil(
            teacher,
            _texts(pool, columns),
            out,
            student=student,
            labelled=parts.get("labelled"),
            test=parts.get("test"),
            options=options,
            context=RunContext(show=not quiet, overwrite=overwrite),
        )
    _print_result(result, as_json)


def _texts(pool: list[Path], columns: Mapping[str, Any]) -> list[str]:
    """Return the texts of all files; pairs where the column of second texts is named."""
    if columns["text2"] is None:
        return o.read_pool(pool, text=columns["text"], encoding=columns["encoding"]) or []
    pair_columns = {name: columns[name] for name in ("text", "text2", "encoding", "delimiter")}
    files: list[Examples] = [o.read_file(path, **pair_columns) for path in pool]
    return [text for examples in files for text in examples.texts]


def _print_result(result: Distilled, as_json: bool) -> None:
    if not as_json:
        print(result.table())
        print(f"Written: {result.folder}")
        return
    keys = ("verdict", "agreement", "held_out", "sizes", "results")
    print_json({"out": result.folder, **{key: result.record[key] for key in keys if key in result.record}})
