"""textgraft check: what data was read as and what is wrong with it, before a model learns it."""

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
    """Say what data is read as, and what is wrong or suspicious in it, with line numbers; exits with 1 on errors.

    textgraft check train.csv --test test.csv --unlabelled pool.txt
    """
    from textgraft.data import checks
    from textgraft.data import overview as overviews

    columns = {"text": text, "text2": text2, "label": label, "id": id, "kind": kind, "label_separator": label_separator}
    columns |= {"encoding": encoding, "delimiter": delimiter}
    given = {"training": file, "validation": valid, "test": test}
    parts = {name: o.read_file(path, **columns) for name, path in given.items() if path is not None}
    if unlabelled is not None:
        parts["unlabelled"] = o.read_file(unlabelled, text=text, encoding=encoding)
    problems = checks.check(
        parts["training"],
        valid=parts.get("validation"),
        test=parts.get("test"),
        unlabelled=parts.get("unlabelled"),
    )
    found = {name: overviews.overview(part) for name, part in parts.items()}
    wrong = checks.has_errors(problems)
    if as_json:
        said = {"parts": overviews.to_json(found), "problems": checks.to_json(problems)}
        print_json({"texts": len(parts["training"]), "ok": not wrong, **said})
    else:
        overviews.render(found)
        checks.render(problems)
    if wrong:
        raise typer.Exit(1)
