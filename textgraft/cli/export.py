"""textgraft export: a model as ONNX graphs."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_json
from textgraft.cli.output_files import validate_writable

MOST_TEXTS = 1000


def export(
    model: Annotated[Path, typer.Argument(help="The folder of a classifier, tagger or QA model.")],
    onnx: Annotated[Path, typer.Option("--onnx", help="The folder to write; must not exist, unless with --overwrite.")],
    int8: Annotated[bool, typer.Option("--int8", help="Quantise weights to 8-bit integers.")] = False,
    texts: Annotated[
        Path | None,
        typer.Option(
            "--texts",
            help="Texts on which int8 must keep 99 % of the predictions, and an ensemble all probabilities; "
            f"the first {MOST_TEXTS:,} count.",
        ),
    ] = None,
    text: o.TextColumn = None,
    text2: o.SecondColumn = None,
    encoding: o.Encoding = None,
    delimiter: o.Delimiter = None,
    overwrite: o.Overwrite = False,
    as_json: o.AsJson = False,
) -> None:
    """Export a classifier, tagger or QA model as ONNX graphs, verified against the original.

    What finetune saves by default, a linear classifier or an ensemble, becomes one folder too: counts stay counts, each
    network and each encoder is a graph, and one that several members use is there once.

    The commands predict, evaluate, explain, serve, tag and qa accept the folder as a model, without torch: onnxruntime
    runs the graphs; linear classifiers need scikit-learn.
    """
    from textgraft.data.text_rows import read_rows
    from textgraft.tasks.export import export as exported

    validate_writable(onnx)
    columns = {"text": text, "text2": text2, "encoding": encoding, "delimiter": delimiter}
    sample = [] if texts is None else [row.text for row in islice(read_rows(texts, **columns), MOST_TEXTS)]
    result = exported(model, onnx, int8=int8, texts=sample, overwrite=overwrite)
    if as_json:
        print_json(vars(result))
        return
    print(f"Written: {result.out} ({result.megabytes:.1f} MB)")
    if result.same is None:
        on = "" if sample else ", on random texts of several lengths"
        print(f"Outputs equal the original's to within {result.difference:.1g}{on}.")
    else:
        agreement = f"On {result.texts:,} texts {result.same:.1%} of the predictions stay the same"
        print(f"{agreement}; no output changes by more than {result.difference:.2f}.")
        print(f"Method: {result.products}.")
