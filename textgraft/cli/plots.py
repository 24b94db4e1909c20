"""The files of plots."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from textgraft.core.errors import UserError

Plot = Annotated[Path | None, typer.Option("--plot", help="A plot to write, as .png or .svg.")]


PLOTS = (".png", ".svg")


def validate_plot(path: Path | None) -> None:
    """Raise UserError for a plot of another format, or one that cannot be written."""
    from textgraft.core.files import check_writable

    if path is None:
        return
    if path.suffix not in PLOTS:
        raise UserError(f"plots are written as {' or '.join(PLOTS)}.", where=str(path), remedy="Name such a file.")
    check_writable(path)
