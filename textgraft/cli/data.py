"""textgraft check: what is wrong with data, before a model learns it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_json


def check(
    file: Annotated[Path, typer.Argument(help="Labelled texts.")],
    valid: Annotated[
        Path | None, typer.Option("--valid", help="What guides training: its labels, and leaks from training.")
    ] = None,
    test: Annotated[
        Path | None, typer.Option("--test", help="The test set: its labels, and leaks from training and --valid.")
    ] = None,
    unlabelled: Annotated[Path | None, typer.Option("--unlabelled", "-u", help="Unlabelled texts.")] = None,
    text: o.TextColumn = None,
    text2: o.SecondColumn = None,
    label: o.LabelColumn = None,
    id: o.IdColumn = None,
    kind: o.Kind = None,
    label_separator: o.LabelSeparator = None,
    encoding: o.Encoding = None,
    delimiter: o.Delimiter = None,
    as_json: o.AsJson = False,
) -> None:
    """Say what is wrong or suspicious in data, with line numbers; exits with 1 on errors."""
    from textgraft.data.check import check, has_errors, render, to_json

    columns = {"text": text, "text2": text2, "label": label, "id": id, "kind": kind, "label_separator": label_separator}
    columns |= {"encoding": encoding, "delimiter": delimiter}
    train = o.read_file(file, **columns)
    problems = check(
        train,
        valid=None if valid is None else o.read_file(valid, **columns),
        test=None if test is None else o.read_file(test, **columns),
        unlabelled=None if unlabelled is None else o.read_file(unlabelled, text=text, encoding=encoding),
    )
    wrong = has_errors(problems)
    if as_json:
        print_json({"texts": len(train), "ok": not wrong, "problems": to_json(problems)})
    else:
        render(problems)
    if wrong:
        raise typer.Exit(1)
