"""textgraft explain: which words an answer hangs on."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_json, say
from textgraft.cli.use import (
    Classifier,
    GivenSecond,
    GivenTexts,
    SecondColumn,
    TextsColumn,
    as_json_lines,
    given_texts,
    keyed_texts,
    write_lines,
)
from textgraft.core.errors import UserError

if TYPE_CHECKING:
    from textgraft.tasks.classification.explaining import Explanation

SHOWN = 8
"""Words of a text that are listed."""
ENDINGS = (".html", ".jsonl")


def explain(
    model: Classifier,
    file: Annotated[Path | None, typer.Argument(help="Texts; - is stdin, one text a line.")] = None,
    text: GivenTexts = None,
    text2: GivenSecond = None,
    label: Annotated[str | None, typer.Option("--label", help="Explain this one; else the likeliest.")] = None,
    most: Annotated[int, typer.Option("--most", min=1, help="How many of a file's texts.")] = 20,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A page (.html) or .jsonl file; else the terminal.")
    ] = None,
    device: o.Device = "auto",
    precision: o.ReadingPrecision = "auto",
    threads: o.Threads = None,
    text_column: TextsColumn = None,
    text2_column: SecondColumn = None,
    encoding: o.Encoding = None,
    as_json: o.AsJson = False,
) -> None:
    """Say which words a classifier's answer hangs on: how it changes where each is left out.

    Weights are log-odds in nats. A text of N words is read N + 1 times; of more than 300 words, its sentences are left
    out instead. Words that only matter together are not seen.
    """
    from textgraft.core.files import validate_writable
    from textgraft.tasks.classification import explaining
    from textgraft.tasks.classification.explanation_page import explained_page
    from textgraft.tasks.classification.predictor import load_classifier

    if out is not None and out.suffix not in ENDINGS:
        raise UserError("explanations are written as .html or .jsonl.", where=str(out), remedy="Name such a file.")
    if out is not None:
        validate_writable(out)
    o.use_threads(threads)
    classifier = load_classifier(model, precision=precision, device=device)
    columns = {"text": text_column, "text2": text2_column, "encoding": encoding}
    keys, texts = keyed_texts(file, given_texts(text, text2), classifier.reads, columns)
    found = explaining.explain(classifier, islice(texts, most), label=label)
    rows = (key | one.listed() for key, one in zip(keys, found))
    if out is not None:
        page = out.suffix == ".html"
        written = write_lines(out, explained_page(found) if page else as_json_lines(rows))
        if as_json:
            print_json({"out": out})
        else:
            say(f"Written: {out}" if page else f"Written: {out} ({written:,} texts)")
    elif as_json:
        print_json({"texts": list(rows)})
    else:
        _print(found)


def _print(found: Iterator[Explanation]) -> None:
    """Each text in colours, then the parts that matter most."""
    from rich.console import Console
    from rich.text import Text

    from textgraft.tasks.classification.explanation_page import headline

    console = Console()
    for number, one in enumerate(found):
        if number:
            console.print()
        console.print(Text(headline(one), style="bold"))
        most = max((abs(part.weight) for part in one.parts), default=0.0) or 1.0
        for side, words in enumerate(one.sides):
            shown = Text(words)
            for part in (part for part in one.parts if part.side == side and abs(part.weight) > most / 4):
                strong = "bold " if abs(part.weight) > most / 2 else ""
                shown.stylize(f"{strong}{'green' if part.weight > 0 else 'red'}", part.start, part.end)
            console.print(shown, soft_wrap=True)
        for part in one.ranked()[:SHOWN]:
            console.print(Text(f"{part.weight:+7.2f}  {' '.join(one.said(part).split())}"), soft_wrap=True)
