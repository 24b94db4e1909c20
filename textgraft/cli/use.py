"""textgraft predict, evaluate, embed: a finished model at work."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_json, say
from textgraft.errors import UserError

if TYPE_CHECKING:
    from textgraft.classifier import Prediction

Models = Annotated[list[Path], typer.Argument(help="A fine-tuned model.")]
TextsColumn = Annotated[
    str | None, typer.Option("--text-column", help="The column of the texts; else guessed.", rich_help_panel=o.DATA)
]


def predict(
    model: Annotated[Path, typer.Argument(help="The folder of a fine-tuned model.")],
    file: Annotated[Path | None, typer.Argument(help="Texts to label; - is stdin, one text a line.")] = None,
    text: Annotated[list[str] | None, typer.Option("--text", help="A text itself; may be repeated.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A .csv or .jsonl file; else stdout.")] = None,
    abstain_below: Annotated[
        float, typer.Option("--abstain-below", min=0, max=1, help="No label where the model is less sure than this.")
    ] = 0.0,
    probabilities: Annotated[bool, typer.Option("--probabilities", help="Every class's probability too.")] = False,
    precision: o.Precision = "auto",
    threads: o.Threads = None,
    text_column: TextsColumn = None,
    encoding: o.Encoding = None,
    as_json: o.AsJson = False,
) -> None:
    """Label texts, in their order: one line a text, as CSV or JSON lines."""
    from textgraft.classifier import Classifier, load

    if out is not None and out.suffix not in (".csv", ".jsonl"):
        raise UserError("predictions are written as .csv or .jsonl.", where=str(out), remedy="Name such a file.")
    texts = _texts(file, text, text_column, encoding)
    o.use_threads(threads)
    classifier = Classifier(load(model).members, precision=precision)
    rows = (_row(p, probabilities) for p in classifier.predict(texts, abstain_below=abstain_below))
    if as_json and out is None:
        print_json({"predictions": list(rows)})
        return
    names = ["label", "confidence", *(classifier.labels.names if probabilities else ())]
    lines = _as_csv(rows, names) if out is not None and out.suffix == ".csv" else _as_json_lines(rows)
    if out is None:
        for line in lines:
            sys.stdout.write(line)
        return
    count = _write_lines(out, lines) - (out.suffix == ".csv")
    if as_json:
        print_json({"out": out, "texts": count})
    else:
        say(f"Written: {out} ({count:,} predictions)")


def _texts(file: Path | None, given: list[str] | None, column: str | None, encoding: str | None) -> Iterable[str]:
    """The texts to label, empty ones kept, as a stream where the source allows it."""
    if (file is None) == (not given):
        raise UserError("name either a file or texts.", remedy="For example: textgraft predict MODEL reviews.csv")
    if given:
        return given
    if str(file) == "-":
        return (line.rstrip("\r\n") for line in io.TextIOWrapper(sys.stdin.buffer, encoding or "utf-8", "replace"))
    assert file is not None
    return o.read_file(file, text=column, encoding=encoding).texts


def _row(prediction: Prediction, probabilities: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"label": prediction.label, "confidence": prediction.confidence}
    return row | ({"probabilities": prediction.probabilities} if probabilities else {})


def _as_json_lines(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    return (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _as_csv(rows: Iterable[dict[str, Any]], names: list[str]) -> Iterator[str]:
    """A header and one line a text; an abstention is an empty cell, several labels are parted by |."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")

    def line(cells: list[Any]) -> str:
        buffer.seek(0)
        buffer.truncate()
        writer.writerow(cells)
        return buffer.getvalue()

    yield line(names)
    for row in rows:
        label = row["label"]
        label = "|".join(label) if isinstance(label, tuple) else label
        yield line([label, row["confidence"], *(row.get("probabilities") or {}).values()])


def _write_lines(path: Path, lines: Iterable[str]) -> int:
    """Write a file as the lines come, whole or not at all; returns how many there were."""
    from textgraft.files import writing_atomically

    count = 0
    with writing_atomically(path) as file:
        for line in lines:
            file.write(line.encode())
            count += 1
    return count
