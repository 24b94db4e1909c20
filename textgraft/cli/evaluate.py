"""textgraft evaluate: the scores of a classifier on labelled texts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_json, print_table
from textgraft.cli.input_texts import (
    Classifier,
)


def evaluate(
    model: Classifier,
    file: Annotated[Path, typer.Argument(help="Labelled texts that were not used in training.")],
    device: o.Device = "auto",
    precision: o.InferencePrecision = "auto",
    threads: o.Threads = None,
    text: o.TextColumn = None,
    text2: o.SecondColumn = None,
    label: o.LabelColumn = None,
    kind: o.Kind = None,
    label_separator: o.LabelSeparator = None,
    encoding: o.Encoding = None,
    delimiter: o.Delimiter = None,
    as_json: o.AsJson = False,
) -> None:
    """Evaluate a classifier on labelled texts: scores, calibration, coverage by confidence."""
    from textgraft.api import evaluate

    columns = {"text": text, "text2": text2, "label": label, "kind": kind, "label_separator": label_separator}
    columns |= {"encoding": encoding, "delimiter": delimiter}
    o.use_threads(threads)
    named = {name: value for name, value in columns.items() if value is not None}
    result = evaluate(model, file, precision=precision, device=device, **named)
    if as_json:
        print_json(result)
    else:
        print_evaluation(result)


def print_evaluation(result: Mapping[str, Any]) -> None:
    """Print the result of `Classifier.evaluate` as tables."""
    from textgraft.core import formatting

    if "log_loss_of" in result:
        labels = formatting.quoted(result["unseen_labels"])
        print(f"Labels that training lacked count as mistakes ({labels}); log loss is of {result['log_loss_of']}.")
    headline = next(name for name in result["metrics"] if name in result)
    rows = [[formatting.metric_name(name), formatting.score(value, name)] for name, value in result["metrics"].items()]
    if result.get("calibration_error") is not None:
        rows.append(["calibration error", f"{100 * result['calibration_error']:.1f} %"])
    print_table([f"{result['texts']:,} texts", "score"], rows)
    print(f"{formatting.metric_name(headline)} with its 95 % interval: {_interval(result[headline], headline)}")
    shares = ("precision", "recall", "f1")
    rows = [
        [c["name"], *(formatting.score(c[name], "f1") for name in shares), f"{c['support']:,}"]
        for c in result.get("classes", ())
    ]
    if rows:
        print_table(["class", *shares, "texts"], rows)
    rows = [
        [f"{c['threshold']:.2f}", f"{100 * c['answered']:.1f} %", formatting.score(c["accuracy"], "accuracy")]
        for c in result.get("coverage", ())
    ]
    if rows:
        print_table(["--abstain-below", "answered", "accuracy of these"], rows)


def _interval(value: Mapping[str, float], metric: str) -> str:
    from textgraft.core import formatting

    return formatting.interval(value["mean"], value["low"], value["high"], metric)
