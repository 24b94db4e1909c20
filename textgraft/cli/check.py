"""textgraft check: an overview of data and its problems, before training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_json, with_options


def check(
    file: Annotated[Path, typer.Argument(help="Labelled texts.")],
    valid: Annotated[
        Path | None, typer.Option("--valid", help="The validation set: check its labels, and overlap with training.")
    ] = None,
    test: Annotated[
        Path | None,
        typer.Option("--test", help="The test set: check its labels, and overlap with training and --valid."),
    ] = None,
    unlabelled: Annotated[Path | None, typer.Option("--unlabelled", "-u", help="Unlabelled texts.")] = None,
    text: o.TextColumn = None,
    text2: o.SecondColumn = None,
    label: o.LabelColumn = None,
    id: o.IdColumn = None,
    kind: o.Kind = None,
    label_separator: o.LabelSeparator = None,
    strict: o.Strict = False,
    encoding: o.Encoding = None,
    delimiter: o.Delimiter = None,
    as_json: o.AsJson = False,
) -> None:
    """Print an overview of data and its errors and warnings, with line numbers; exits with 1 on errors.

    textgraft check train.csv --test test.csv --unlabelled pool.txt
    """
    from textgraft.data import overview as overviews
    from textgraft.data import problems as found
    from textgraft.data.checks import check as find_problems
    from textgraft.data.large_files import read_large

    columns = {"text": text, "text2": text2, "label": label, "id": id, "kind": kind, "label_separator": label_separator}
    columns |= {"encoding": encoding, "delimiter": delimiter}
    files = {"training": file, "validation": valid, "test": test}
    parts = o.parts_of(files, read_large, columns)
    if unlabelled is not None:
        parts["unlabelled"] = read_large(unlabelled, text=text, encoding=encoding)
    problems = find_problems(
        parts["training"],
        valid=parts.get("validation"),
        test=parts.get("test"),
        unlabelled=parts.get("unlabelled"),
    )
    if strict:
        problems = found.refusing_missing_labels(problems)
    overview_of = {name: overviews.overview(part) for name, part in parts.items()}
    failed = found.has_errors(problems)
    if as_json:
        details = {"parts": overviews.to_json(overview_of), "problems": found.to_json(problems)}
        print_json({"texts": len(parts["training"]), "ok": not failed, **details})
    else:
        overviews.render(overview_of)
        found.render(with_options(problems))
    if failed:
        raise typer.Exit(1)
