"""textgraft export: a model as a graph that other programs run."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_json
from textgraft.cli.use import SecondColumn, TextsColumn

MOST_TEXTS = 1000


def export(
    model: Annotated[Path, typer.Argument(help="The folder of a fine-tuned classifier, tagger or reader.")],
    onnx: Annotated[Path, typer.Option("--onnx", help="The folder to write; must not exist.")],
    int8: Annotated[bool, typer.Option("--int8", help="Store weights as 8-bit whole numbers.")] = False,
    texts: Annotated[
        Path | None,
        typer.Option("--texts", help=f"Texts on which int8 must keep 99 % of the answers; {MOST_TEXTS:,} are read."),
    ] = None,
    text_column: TextsColumn = None,
    text2_column: SecondColumn = None,
    encoding: o.Encoding = None,
    overwrite: o.Overwrite = False,
    as_json: o.AsJson = False,
) -> None:
    """Write a classifier, tagger or reader as an ONNX graph from token ids to answers, checked against the original.

    The folder is used as any model's (textgraft predict, evaluate, tag, qa), without torch: onnxruntime runs it.
    """
    from textgraft.core.files import validate_writable
    from textgraft.data.readers import read_rows
    from textgraft.tasks.export import export as exported

    validate_writable(onnx)
    columns = {"text": text_column, "text2": text2_column, "encoding": encoding}
    read = [] if texts is None else [text for _, text in islice(read_rows(texts, **columns), MOST_TEXTS)]
    done = exported(model, onnx, int8=int8, texts=read, overwrite=overwrite)
    if as_json:
        print_json(vars(done))
        return
    print(f"Written: {done.out} ({done.megabytes:.1f} MB)")
    if done.same is None:
        print(f"Its answers are the original's to {done.difference:.1g}, on drawn texts of several lengths.")
    else:
        kept = f"On {done.texts:,} texts {done.same:.1%} of the answers stay"
        print(f"{kept}; no number of an answer moves by more than {done.difference:.2f}.")
        print(f"That takes {done.products}.")
