"""textgraft predict, evaluate, embed: a finished model at work."""

from __future__ import annotations

import codecs
import csv
import io
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import count, tee
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_json, print_table, say
from textgraft.core.errors import UserError
from textgraft.data.examples import InputKind, Pair

if TYPE_CHECKING:
    from textgraft.core.progress import Meter
    from textgraft.data.examples import Examples
    from textgraft.tasks.classification.predictor import Prediction

Classifier = Annotated[Path, typer.Argument(help="The folder of a fine-tuned model.")]
GivenTexts = Annotated[list[str] | None, typer.Option("--text", help="A text itself; may be repeated.")]
GivenSecond = Annotated[list[str] | None, typer.Option("--text2", help="The second text that goes with it.")]
SecondColumn = Annotated[
    str | None,
    typer.Option("--text2-column", help="The column of the second texts; else guessed.", rich_help_panel=o.DATA),
]
TextsColumn = Annotated[
    str | None, typer.Option("--text-column", help="The column of the texts; else guessed.", rich_help_panel=o.DATA)
]


def predict(
    model: Classifier,
    file: Annotated[Path | None, typer.Argument(help="Texts to label; - is stdin, one text a line.")] = None,
    text: GivenTexts = None,
    text2: GivenSecond = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A .csv or .jsonl file; else stdout.")] = None,
    abstain_below: Annotated[
        float, typer.Option("--abstain-below", min=0, max=1, help="No label where the model is less sure than this.")
    ] = 0.0,
    probabilities: Annotated[bool, typer.Option("--probabilities", help="Every class's probability too.")] = False,
    device: o.Device = "auto",
    precision: o.ReadingPrecision = "auto",
    threads: o.Threads = None,
    text_column: TextsColumn = None,
    text2_column: SecondColumn = None,
    encoding: o.Encoding = None,
    as_json: o.AsJson = False,
) -> None:
    """Label texts, in their order: one line a text, as CSV or JSON lines; pairs on stdin are parted by a tab."""
    from textgraft.core.files import validate_writable
    from textgraft.tasks.classification.predictor import load_classifier, warned_of_empty

    if out is not None and out.suffix not in (".csv", ".jsonl"):
        raise UserError("predictions are written as .csv or .jsonl.", where=str(out), remedy="Name such a file.")
    if out is not None:
        validate_writable(out)
    o.use_threads(threads)
    classifier = load_classifier(model, precision=precision, device=device)
    columns = {"text": text_column, "text2": text2_column, "encoding": encoding}
    keys, texts = keyed_texts(file, given_texts(text, text2), classifier.reads, columns)
    predictions = classifier.predict(warned_of_empty(texts), abstain_below=abstain_below)
    rows = (key | _row(prediction, probabilities) for key, prediction in zip(keys, predictions))
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
        say(f"Written: {out} ({written:,} predictions)")


def given_texts(texts: list[str] | None, second: list[str] | None) -> list[str] | None:
    """What was given as options; pairs, where second texts were. Raises UserError for texts without partners."""
    if not second:
        return texts
    if len(second) != len(texts or ()):
        message = f"there are {len(texts or ())} first texts and {len(second)} second ones."
        raise UserError(message, where="--text2", remedy="Give a --text2 for each --text.")
    return [Pair(a, b) for a, b in zip(texts or (), second, strict=True)]


def keyed_texts(
    file: Path | None, given: list[str] | None, reads: InputKind, columns: Mapping[str, str | None]
) -> tuple[Iterator[dict[str, Any]], Iterable[str]]:
    """For each text what to know it by in the output (id or line), and the texts; stdin comes as a stream."""
    if (file is None) == (not given):
        raise UserError("name either a file or texts.", remedy="For example: textgraft predict MODEL reviews.csv")
    numbered: Iterator[dict[str, Any]] = ({"line": number} for number in count(1))
    if file is None:
        return numbered, given or []
    if str(file) == "-":
        found = _stdin_lines(columns["encoding"] or "utf-8")
        return numbered, _stdin_pairs(found) if reads == "pairs" else found
    if reads == "choices" or file.is_dir():
        return _all_at_once(o.read_file(file, **columns, kind="choice" if reads == "choices" else None))
    from textgraft.data.readers import read_rows

    keys, texts = tee(read_rows(file, **columns))  # neither is far ahead of the other
    return (key for key, _ in keys), (text for _, text in texts)


def _all_at_once(examples: Examples) -> tuple[Iterator[dict[str, Any]], Iterable[str]]:
    if examples.ids is not None:
        return ({"id": key} for key in examples.ids), examples.texts
    return ({examples.unit: examples.line(index)} for index in range(len(examples))), examples.texts


def _stdin_lines(encoding: str) -> Iterator[str]:
    """The lines of stdin as they come. Raises UserError for one that is not in `encoding`."""
    try:
        codecs.lookup(encoding)
    except LookupError as error:
        raise UserError(f"unknown encoding '{encoding}'.", remedy="Give one such as utf-8 or latin-1.") from error
    for number, line in enumerate(sys.stdin.buffer, start=1):
        try:
            yield line.decode(encoding).rstrip("\r\n")
        except UnicodeDecodeError as error:
            message = f"byte 0x{line[error.start]:02x} is not {encoding}."
            raise UserError(message, where=f"stdin line {number}", remedy="Name it with encoding=….") from error


def _stdin_pairs(lines: Iterable[str]) -> Iterator[str]:
    """Two texts a line, parted by a tab. Raises UserError for a line without one."""
    for number, line in enumerate(lines, start=1):
        first, tab, second = line.partition("\t")
        if not tab:
            raise UserError("there is no tab between two texts.", where=f"stdin line {number}")
        yield Pair(first, second)


def _row(prediction: Prediction, probabilities: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"label": prediction.label, "confidence": prediction.confidence}
    row |= {} if prediction.option is None else {"option": prediction.option}
    return row | ({"probabilities": prediction.probabilities} if probabilities else {})


def as_json_lines(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    return (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def as_csv(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    """A header and one line a text; an abstention is an empty cell, several labels are parted by |."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    for number, row in enumerate(rows):
        cells = {name: "|".join(v) if isinstance(v, tuple) else v for name, v in row.items() if name != "probabilities"}
        cells |= {f"p({name})": value for name, value in (row.get("probabilities") or {}).items()}
        if number == 0:
            writer.writerow(cells)
        writer.writerow(cells.values())
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()


def write_lines(path: Path, lines: Iterable[str]) -> int:
    """Write a file as the lines come, whole or not at all; returns how many there were."""
    from textgraft.core.files import writing_atomically

    written = 0
    with writing_atomically(path) as file:
        for line in lines:
            file.write(line.encode())
            written += 1
    return written


def evaluate(
    model: Classifier,
    file: Annotated[Path, typer.Argument(help="Labelled texts that the model has not seen.")],
    device: o.Device = "auto",
    precision: o.ReadingPrecision = "auto",
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
    """Say how good a classifier is on labelled texts: scores, calibration, what abstaining would leave."""
    from textgraft.api import evaluate

    columns = {"text": text, "text2": text2, "label": label, "kind": kind, "label_separator": label_separator}
    columns |= {"encoding": encoding, "delimiter": delimiter}
    o.use_threads(threads)
    given = {name: value for name, value in columns.items() if value is not None}
    result = evaluate(model, file, precision=precision, device=device, **given)
    if as_json:
        print_json(result)
    else:
        print_evaluation(result)


def print_evaluation(result: Mapping[str, Any]) -> None:
    """What Classifier.evaluate found, as tables."""
    from textgraft.core import formatting

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
        print_table(["--abstain-below", "answered", "of these right"], rows)


def _interval(value: Mapping[str, float], metric: str) -> str:
    from textgraft.core import formatting

    return formatting.interval(value["mean"], value["low"], value["high"], metric)


def embed(
    model: Annotated[Path, typer.Argument(help="A model that ships, by name, or the path of a folder.")],
    file: Annotated[Path, typer.Argument(help="Texts; - is stdin, one text a line.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The .npz (`vectors`) or .npy file to write: (N, D), float32.")
    ],
    pooling: Annotated[str, typer.Option("--pooling", help="mean, max, last or concat of the top layer.")] = "mean",
    layers: Annotated[
        str, typer.Option("--layers", help=f"Of other layers than the top one: {o.LAYER_AGGREGATIONS}.")
    ] = "last",
    max_tokens: Annotated[int, typer.Option("--max-tokens", min=8, help="Longer texts lose their middle.")] = 512,
    device: o.Device = "auto",
    threads: o.Threads = None,
    text_column: TextsColumn = None,
    text2_column: SecondColumn = None,
    encoding: o.Encoding = None,
    as_json: o.AsJson = False,
) -> None:
    """Turn texts into vectors: a model's top layer, or others, pooled; or the mean of a text's word vectors.

    The latter where MODEL is a folder of word vectors (textgraft vectors); texts without a known word are zeros.
    Memory does not grow with the file; a .npy can be mapped (numpy.load(..., mmap_mode="r")).
    """
    from textgraft.api import embed_stream
    from textgraft.core.files import validate_writable
    from textgraft.core.progress import Meter
    from textgraft.data.arrays import validate_suffix, write_rows

    validate_suffix(out)
    validate_writable(out)
    columns = {"text": text_column, "text2": text2_column, "encoding": encoding}
    o.use_threads(threads)
    with Meter("Embedding", None, shown=sys.stderr.isatty() and not as_json) as meter:
        texts = _counted(keyed_texts(file, None, "texts", columns)[1], meter)
        options: dict[str, Any] = {"pooling": pooling, "max_tokens": max_tokens, "layers": layers, "device": device}
        height, width = write_rows(out, embed_stream(str(model), texts, **options))
    if as_json:
        print_json({"out": out, "texts": height, "dimensions": width})
    else:
        print(f"Written: {out} ({height:,} vectors of {width:,} dimensions)")


def _counted(texts: Iterable[str], meter: Meter) -> Iterator[str]:
    for text in texts:
        meter.add(len(text))
        yield text
