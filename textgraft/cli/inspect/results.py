"""Options that the inspections share, and their results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from textgraft.cli.console import print_json

Source = Annotated[str, typer.Argument(help="A bundled model, by name, a folder, or word vectors.", metavar="MODEL")]


Read = Annotated[int, typer.Option("--read", min=1, help="Sample from this many sentences at the start of the texts.")]


def input_texts(paths: Sequence[Path] | None, column: str | None, encoding: str | None) -> Any:
    from textgraft.data.readers import read_texts

    return read_texts(paths, text=column, encoding=encoding) if paths else ()


def validate_out(out: Path) -> None:
    from textgraft.core.files import validate_writable
    from textgraft.training.results_folder import validate_new_path

    validate_new_path(out)
    validate_writable(out)


def print_json_results(out: Path, results: dict[str, Any]) -> None:
    print_json({"out": out, "report": out / "report.html", **results})


def print_written(out: Path) -> None:
    print(f"Written: {out / 'report.html'}, {out / 'results.json'}")
