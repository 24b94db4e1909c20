"""Folders of files in and a folder of results out: the options and the run that predict, embed and tag share."""

from __future__ import annotations

import glob
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from textgraft.cli.console import Interrupted, print_json, print_note
from textgraft.core.errors import UserError
from textgraft.core.interrupts import reliable_interrupts
from textgraft.data.output_rows import Kept

if TYPE_CHECKING:
    from textgraft.bulk.process import Summary
    from textgraft.bulk.workers import TextWorker

PANEL = "Folders and clusters"
BLOCK_ROWS = 8192
"""bulk.blocks.BLOCK_ROWS, repeated because that module imports the readers of all formats."""

Engine = Annotated[
    str,
    typer.Option("--engine", help="local: this process; ray: a Ray cluster, or this machine.", rich_help_panel=PANEL),
]
Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        help="With --engine ray: HOST:PORT of the cluster's head, or auto for the cluster that this machine is in.",
        rich_help_panel=PANEL,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=1,
        help="With --engine ray: the most worker processes; else one for each GPU, or for each --threads cores.",
        rich_help_panel=PANEL,
    ),
]
BlockRows = Annotated[
    int, typer.Option("--block-rows", min=1, help="Rows of a file in the folder --out.", rich_help_panel=PANEL)
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="Format of the files in the folder --out: parquet, jsonl or csv; else as the input.",
        rich_help_panel=PANEL,
    ),
]


@dataclass(frozen=True)
class BulkRun:
    """Values of the options above, of the files to read and of the folder to write."""

    sources: Sequence[Path]
    out: Path | None
    engine: str = "local"
    address: str | None = None
    workers: int | None = None
    threads: int | None = None
    output_format: str | None = None
    block_rows: int = BLOCK_ROWS

    @property
    def is_named(self) -> bool:
        """True for a folder to write: an existing one, or a name without a suffix; and for several files to read."""
        if self.out is not None and (self.out.is_dir() or not self.out.suffix):
            return bool(self.sources)
        return len(self.sources) > 1 or bool(self.sources and has_pattern(self.sources[0]))

    def validate_unused(self) -> None:
        """Raise UserError for an option that only applies to a folder of results, where there is none."""
        options: dict[str, Any] = {"--address": self.address, "--workers": self.workers, "--format": self.output_format}
        options |= {"--engine": self.engine != "local", "--block-rows": self.block_rows != BLOCK_ROWS}
        used = next((name for name, value in options.items() if value), None)
        if used is not None:
            remedy = "Name files or folders to read, and a folder to write with --out."
            raise UserError("this is for folders of results.", where=used, remedy=remedy)

    def run(self, worker: TextWorker, columns: Mapping[str, str | None], keep: str, *, as_json: bool) -> None:
        """Process the files, and print what was done.

        Raises:
            UserError: There is no folder to write, or as bulk.process.process_files.
            Interrupted: On Ctrl-C, with how to resume.
        """
        from textgraft.bulk.process import BulkOptions, process_files
        from textgraft.engines.registry import open_engine

        out = self.out
        if out is None or (out.suffix and not out.is_dir()):
            remedy = "Name a folder to write with --out; its name has no suffix."
            raise UserError("several files are read into a folder.", where=str(out or "--out"), remedy=remedy)
        if any(str(source) == "-" for source in self.sources):
            raise UserError("stdin is no file.", where="-", remedy="Name files or folders, or a file with --out.")
        options = BulkOptions(
            columns=columns,
            kept=Kept.parse(keep),
            output_format=self.output_format,
            block_rows=self.block_rows,
            show=sys.stderr.isatty() and not as_json,
        )
        engines = open_engine(self.engine, address=self.address, workers=self.workers, threads=self.threads)
        try:
            with reliable_interrupts(), engines as engine:
                summary = process_files(worker, list(self.sources), out, options=options, engine=engine)
        except KeyboardInterrupt:
            state = f"what is finished is in {out};" if out.exists() else "no work is lost;"
            raise Interrupted(f"stopped; {state} the same command resumes it.") from None
        _print(summary, as_json=as_json)


def has_pattern(path: Path) -> bool:
    """True for a glob pattern, which the shell has left to the program."""
    return not path.exists() and glob.has_magic(str(path))


def _print(summary: Summary, *, as_json: bool) -> None:
    counts, texts = summary.counts, summary.texts - summary.earlier
    notes = {
        "empty": "are empty: results for empty texts are meaningless",
        "unknown": "are unknown to the model: predictions for texts in which it knows nothing are guesses",
    }
    for name, note in notes.items():
        if counts.get(name):
            print_note(f"textgraft: warning: {counts[name]:,} of {texts:,} texts {note}.")
    if counts.get("cut_words"):
        print_note(f"textgraft: warning: {counts['cut_words']:,} words were longer than a window and cut.")
    if as_json:
        facts = ("out", "files", "blocks", "texts")
        print_json({name: getattr(summary, name) for name in facts} | {"format": summary.output_format})
        return
    earlier = f", {summary.earlier:,} of them before" if summary.earlier else ""
    print_note(f"Written: {summary.out} ({summary.texts:,} texts of {summary.files:,} files{earlier})")
