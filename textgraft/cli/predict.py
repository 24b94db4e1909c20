"""textgraft predict: the labels of texts."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import tee
from pathlib import Path
from typing import Annotated, Any

import typer

from textgraft.bulk.workers import PredictWorker, prediction_row
from textgraft.cli import bulk
from textgraft.cli import options as o
from textgraft.cli.console import print_json, print_note
from textgraft.cli.input_texts import (
    Classifier,
    InputTexts,
    KeptColumns,
    SecondInputTexts,
    keyed_texts,
    texts_from_options,
)
from textgraft.cli.output_files import ROW_FORMATS, validate_out_file, write_lines
from textgraft.data.output_rows import CsvStyle, Kept, as_lines, with_prediction


def predict(
    model: Classifier,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE]...",
            help="Texts to classify; - is stdin, one text per line. Several files, folders and 'patterns*' with a "
            "folder for --out.",
        ),
    ] = None,
    input_text: InputTexts = None,
    input_text2: SecondInputTexts = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="A .csv, .tsv or .jsonl file, or a folder; else JSON lines on stdout."),
    ] = None,
    keep: KeptColumns = "all",
    abstain_below: Annotated[
        float, typer.Option("--abstain-below", min=0, max=1, help="No label for texts whose confidence is lower.")
    ] = 0.0,
    probabilities: Annotated[bool, typer.Option("--probabilities", help="Add the probability of every class.")] = False,
    device: o.Device = "auto",
    precision: o.InferencePrecision = "auto",
    threads: o.Threads = None,
    text: o.TextColumn = None,
    text2: o.SecondColumn = None,
    id: o.IdColumn = None,
    encoding: o.Encoding = None,
    delimiter: o.Delimiter = None,
    format: bulk.Format = None,
    block_rows: bulk.BlockRows = bulk.BLOCK_ROWS,
    engine: bulk.Engine = "local",
    address: bulk.Address = None,
    workers: bulk.Workers = None,
    as_json: o.AsJson = False,
) -> None:
    """Predict the labels of texts, in their order, as CSV or JSON lines; pairs on stdin have a tab between them.

    A row has the columns of FILE, its line where there is no id, and the prediction. CSV is written with the delimiter
    of FILE, and with its byte order mark, in UTF-8. A column of FILE that has the name of one of the prediction's
    becomes input_NAME. `known` is false for a text in which the model knows nothing, such as random letters or another
    script.

    With a folder for --out, files of any number and size are read, and a file is written for each block of rows; the
    same command resumes an interrupted run:

    textgraft predict sentiment reviews/ --out predictions --engine ray --address auto
    """
    from textgraft.tasks.classification.predictor import load_classifier, warn_of_empty, warn_of_unknown

    columns = {"text": text, "text2": text2, "id": id, "encoding": encoding, "delimiter": delimiter}
    folder = bulk.BulkRun(files or (), out, engine, address, workers, threads, format, block_rows)
    if folder.is_named and not input_text:
        o.use_threads(threads)
        worker = PredictWorker(str(model), abstain_below, probabilities, precision, device)
        folder.run(worker, columns, keep, as_json=as_json)
        return
    folder.validate_unused()
    validate_out_file(out, ROW_FORMATS, "predictions")
    o.use_threads(threads)
    classifier = load_classifier(model, precision=precision, device=device)
    file = files[0] if files else None
    given = texts_from_options(input_text, input_text2)
    begun, texts = keyed_texts(file, given, classifier.reads, columns, Kept.parse(keep))
    texts, shown = tee(texts)
    begun, *named = tee(begun, 3)
    of_empty, of_unknown = map(_places, named)
    answers = classifier.predict(warn_of_empty(texts, of_empty), abstain_below=abstain_below)
    predictions = warn_of_unknown(shown, answers, of_unknown)
    # The predictions come first, so that they are asked for after the last one, and can warn.
    rows = (with_prediction(row, prediction_row(one, probabilities)) for one, row in zip(predictions, begun))
    if as_json and out is None:
        print_json({"predictions": list(rows)})
        return
    lines = as_lines(rows, out, CsvStyle.like(file, out, columns))
    if out is None:
        for line in lines:
            sys.stdout.write(line)
        return
    written = write_lines(out, lines)
    if as_json:
        print_json({"out": out, "texts": written})
    else:
        print_note(f"Written: {out} ({written:,} predictions)")


def _places(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield where each text is: its line, row or item as the output has it, else its number."""
    for number, row in enumerate(rows, start=1):
        unit = next((unit for unit in ("line", "row", "item") if unit in row), None)
        yield f"text {number}" if unit is None else f"{unit} {row[unit]}"
