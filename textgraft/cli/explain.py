"""textgraft explain: the words that a prediction depends on."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_json, print_note
from textgraft.cli.input_texts import Classifier, InputTexts, SecondInputTexts, keyed_texts, texts_from_options
from textgraft.cli.output_files import validate_out_file, write_lines
from textgraft.data.output_rows import as_json_lines

if TYPE_CHECKING:
    from textgraft.tasks.classification.explaining import Explanation

SHOWN = 8
"""The most words listed per text."""


def explain(
    model: Classifier,
    file: Annotated[Path | None, typer.Argument(help="Texts; - is stdin, one text per line.")] = None,
    input_text: InputTexts = None,
    input_text2: SecondInputTexts = None,
    label: Annotated[str | None, typer.Option("--label", help="The label to explain; else the predicted one.")] = None,
    most: Annotated[int, typer.Option("--most", min=1, help="The most texts of a file.")] = 20,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="An .html page or .jsonl file; else the terminal.")
    ] = None,
    device: o.Device = "auto",
    precision: o.InferencePrecision = "auto",
    threads: o.Threads = None,
    text: o.TextColumn = None,
    text2: o.SecondColumn = None,
    id: o.IdColumn = None,
    encoding: o.Encoding = None,
    delimiter: o.Delimiter = None,
    as_json: o.AsJson = False,
) -> None:
    """Explain predictions by occlusion: the change in a class's log-odds when a word is left out.

    Weights are log-odds in nats. A text of N words takes N + 1 predictions; above 300 words, sentences are left out
    instead. Joint effects of several words are not measured.
    """
    from textgraft.tasks.classification import explaining
    from textgraft.tasks.classification.explanation_page import explanations_page
    from textgraft.tasks.classification.predictor import load_classifier

    validate_out_file(out, (".html", ".jsonl"), "explanations")
    o.use_threads(threads)
    classifier = load_classifier(model, precision=precision, device=device)
    columns = {"text": text, "text2": text2, "id": id, "encoding": encoding, "delimiter": delimiter}
    keys, texts = keyed_texts(file, texts_from_options(input_text, input_text2), classifier.reads, columns)
    explanations = explaining.explain(classifier, islice(texts, most), label=label)
    rows = (key | one.as_json() for key, one in zip(keys, explanations))
    if out is not None:
        page = out.suffix == ".html"
        written = write_lines(out, explanations_page(explanations) if page else as_json_lines(rows))
        if as_json:
            print_json({"out": out})
        else:
            print_note(f"Written: {out}" if page else f"Written: {out} ({written:,} texts)")
    elif as_json:
        print_json({"texts": list(rows)})
    else:
        _print(explanations)


def _print(explanations: Iterator[Explanation]) -> None:
    """Print each text in colours, then its words with the largest weights."""
    from rich.console import Console
    from rich.text import Text

    from textgraft.tasks.classification.explanation_page import headline

    console = Console()
    for number, one in enumerate(explanations):
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
            console.print(Text(f"{part.weight:+7.2f}  {' '.join(one.text_of(part).split())}"), soft_wrap=True)
