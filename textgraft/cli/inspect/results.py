"""Options that the inspections share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

Source = Annotated[str, typer.Argument(help="A bundled model, by name, a folder, or word vectors.", metavar="MODEL")]


Read = Annotated[int, typer.Option("--read", min=1, help="Sample from this many sentences at the start of the texts.")]


def input_texts(paths: Sequence[Path] | None, column: str | None, encoding: str | None) -> Any:
    from textgraft.data.readers import read_texts

    return read_texts(paths, text=column, encoding=encoding) if paths else ()
