"""textgraft predict: the labels of texts."""

from __future__ import annotations

import sys
from itertools import tee
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_json, print_note
from textgraft.cli.input_texts import (
    Classifier,
    SecondColumn,
    SecondTextOptions,
    TextOptions,
    TextsColumn,
    keyed_texts,
    texts_from_options,
)
from textgraft.cli.output_files import ROW_FORMATS, as_csv, as_json_lines, validate_out_file, write_lines

if TYPE_CHECKING:
    from textgraft.tasks.classification.predictor import Prediction


def predict(
    model: Classifier,
    file: Annotated[Path | None, typer.Argument(help="Texts to classify; - is stdin, one text per line.")] = None,
    text: TextOptions = None,
    text2: SecondTextOptions = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A .csv or .jsonl file; else stdout.")] = None,
    abstain_below: Annotated[
        float, typer.Option("--abstain-below", min=0, max=1, help="No label for texts whose confidence is lower.")
    ] = 0.0,
    probabilities: Annotated[bool, typer.Option("--probabilities", help="Add the probability of every class.")] = False,
    device: o.Device = "auto",
    precision: o.InferencePrecision = "auto",
    threads: o.Threads = None,
    text_column: TextsColumn = None,
    text2_column: SecondColumn = None,
    encoding: o.Encoding = None,
    as_json: o.AsJson = False,
) -> None:
    """Predict the labels of texts, in their order, as CSV or JSON lines; pairs on stdin have a tab between them.

    `known` is false for a text in which the model knows nothing, such as random letters or another script.
    """
    from textgraft.tasks.classification.predictor import load_classifier, warn_of_empty, warn_of_unknown

    validate_out_file(out, ROW_FORMATS, "predictions")
    o.use_threads(threads)
    classifier = load_classifier(model, precision=precision, device=device)
    columns = {"text": text_column, "text2": text2_column, "encoding": encoding}
    keys, texts = keyed_texts(file, texts_from_options(text, text2), classifier.reads, columns)
    texts, shown = tee(texts)
    predictions = warn_of_unknown(shown, classifier.predict(warn_of_empty(texts), abstain_below=abstain_below))
    # The predictions come first, so that they are asked for after the last one, and can warn.
    rows = (key | _row(prediction, probabilities) for prediction, key in zip(predictions, keys))
    if as_json and out is None:
        print_json({"predictions": list(rows)})
        return
    lines = as_csv(rows) if out is not None and out.suffix == ".csv" else as_json_lines(rows)
    if out is None:
        for line in lines:
            sys.stdout.write(line)
        return
    written = write_lines(out, lines)
    if as_json:
        print_json({"out": out, "texts": written})
    else:
        print_note(f"Written: {out} ({written:,} predictions)")


def _row(prediction: Prediction, probabilities: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"label": prediction.label, "confidence": prediction.confidence}
    row |= {} if prediction.option is None else {"option": prediction.option}
    row["known"] = prediction.known
    return row | ({"probabilities": prediction.probabilities} if probabilities else {})
