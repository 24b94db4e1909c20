"""textgraft zero-shot: labels of texts from the names of the labels alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_json, print_note
from textgraft.cli.input_texts import InputTexts, KeptColumns, keyed_texts
from textgraft.data.output_rows import Kept, as_json_lines, four_digits, rounded, with_prediction

if TYPE_CHECKING:
    from textgraft.tasks.classification.zero_shot import ZeroShotResult


def zero_shot(
    *,
    file: Annotated[
        Path | None, typer.Argument(help="Texts to classify; - is stdin, one text per line.", show_default=False)
    ] = None,
    input_text: InputTexts = None,
    labels: Annotated[
        str,
        typer.Option(
            "--labels", "-l", help="Names with commas between them, or a .toml file with names and descriptions."
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help="A sentence encoder: a name of `textgraft models`, hf:NAME or a folder; "
            "else minilm, or another one that is here.",
        ),
    ] = None,
    unlabelled: Annotated[
        list[Path] | None,
        typer.Option("--unlabelled", "-u", help="More texts to learn from, without labels; repeat for more files."),
    ] = None,
    test: Annotated[
        Path | None, typer.Option("--test", help="Labelled texts to measure the accuracy on, and for nothing else.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The folder to write the classifier to; must not exist.")
    ] = None,
    probabilities: Annotated[bool, typer.Option("--probabilities", help="Add the probability of every class.")] = False,
    seed: o.Seed = 0,
    device: o.Device = "auto",
    threads: o.Threads = None,
    keep: KeptColumns = "all",
    text: o.TextColumn = None,
    label: Annotated[
        str | None,
        typer.Option(
            "--label",
            "--label-column",
            help="The column of the labels in --test; else inferred.",
            rich_help_panel=o.DATA,
        ),
    ] = None,
    id: o.IdColumn = None,
    encoding: o.Encoding = None,
    delimiter: o.Delimiter = None,
    overwrite: o.Overwrite = False,
    quiet: o.Quiet = False,
    as_json: o.AsJson = False,
) -> None:
    """Classify texts by the names of labels, before any text is labelled; print a JSON line for each text.

    The names or descriptions are compared with the texts by a sentence encoder; then a linear layer is fitted to the
    texts whose labels are clearest, which needs at least ten texts per label, and gets better with thousands. --out
    saves it as a classifier for predict, evaluate and serve.
    """
    from textgraft.core.context import RunContext
    from textgraft.tasks.classification.label_texts import LabelTexts
    from textgraft.tasks.classification.zero_shot import zero_shot

    o.use_threads(threads)
    label_texts = LabelTexts.of(labels)
    columns = {"text": text, "text2": None, "id": id, "encoding": encoding, "delimiter": delimiter}
    begun, texts = keyed_texts(file, input_text, "texts", columns, Kept.parse(keep))
    examples = None
    if test is not None:
        examples = o.read_file(test, text=text, label=label, kind="single", encoding=encoding, delimiter=delimiter)
    result = zero_shot(
        texts,
        label_texts,
        model=model,
        unlabelled=o.read_pool(unlabelled, encoding=encoding),
        test=examples,
        out=out,
        context=RunContext(seed=seed, device=device, show=not (quiet or as_json), overwrite=overwrite),
    )
    _print(result, list(_rows(begun, result, probabilities)), as_json=as_json, quiet=quiet)


def _rows(begun: Iterator[dict[str, Any]], result: ZeroShotResult, probabilities: bool) -> Iterator[dict[str, Any]]:
    for beginning, prediction in zip(begun, result.predictions):
        row: dict[str, Any] = {"label": prediction.label, "confidence": four_digits(prediction.confidence)}
        row |= {"known": prediction.known}
        row |= {"probabilities": rounded(prediction.probabilities)} if probabilities else {}
        yield with_prediction(beginning, row)


def _print(result: ZeroShotResult, rows: list[dict[str, Any]], *, as_json: bool, quiet: bool) -> None:
    from textgraft.core import formatting

    evaluation = result.evaluation
    if as_json:
        found: dict[str, Any] = {"predictions": rows, "about": result.about}
        found |= {} if result.folder is None else {"out": result.folder}
        print_json(found | ({} if evaluation is None else {"evaluation": evaluation}))
        return
    for line in as_json_lines(rows):
        sys.stdout.write(line)
    if not quiet:
        print_note(f"{result.about}.")
    if evaluation is not None:
        score = formatting.interval(**evaluation["accuracy"], metric="accuracy")
        print_note(f"accuracy {score} on {evaluation['texts']:,} labelled texts")
    if result.folder is not None:
        print_note(f"Written: {result.folder}")
