"""The --plot option, and the validation of its file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from textgraft.cli.output_files import validate_out_file

Plot = Annotated[Path | None, typer.Option("--plot", help="A plot to write, as .png or .svg.")]


def validate_plot(path: Path | None) -> None:
    """Raise UserError for a plot of another format, or one that cannot be written."""
    validate_out_file(path, (".png", ".svg"), "plots")
