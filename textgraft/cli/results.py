"""Folders of results, with a report and results.json: their validation and what is printed of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from textgraft.cli.console import print_json
from textgraft.cli.output_files import validate_writable


def validate_out(out: Path) -> None:
    """Raise UserError if `out` exists or cannot be written."""
    from textgraft.training.results_folder import validate_new_path

    validate_new_path(out)
    validate_writable(out)


def print_json_results(out: Path, results: dict[str, Any]) -> None:
    """Print the results as one JSON object, with the paths of the folder and its report."""
    print_json({"out": out, "report": out / "report.html", **results})


def print_written(out: Path, *more: Path) -> None:
    """Print the paths of the report, of results.json and of `more` files."""
    print("Written: " + ", ".join(map(str, (out / "report.html", out / "results.json", *more))))
