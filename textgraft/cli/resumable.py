"""Runs that Ctrl-C stops and the same command resumes, and the folders that they write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from textgraft.cli.console import Interrupted
from textgraft.cli.output_files import validate_writable
from textgraft.core.interrupts import reliable_interrupts


@contextmanager
def resumable(*outs: Path) -> Iterator[None]:
    """On Ctrl-C inside, exit with a message on how to resume; a run that has not started leaves no files."""
    from textgraft.training.driver import Stopped, remove_unstarted, work_path

    try:
        with reliable_interrupts():
            yield
    except (KeyboardInterrupt, Stopped):
        for out in outs:
            remove_unstarted(out)
        saved = " and ".join(str(work_path(out)) for out in outs if work_path(out).exists())
        state = f"the run is saved in {saved};" if saved else "no work is lost;"
        raise Interrupted(f"stopped; {state} the same command resumes it.") from None
    except Exception:
        for out in outs:
            remove_unstarted(out)
        raise


def validate_out(out: Path, overwrite: bool | None) -> None:
    """Raise UserError if `out` exists, without `overwrite`, or cannot be written."""
    from textgraft.training.driver import validate_new_path

    validate_new_path(out, overwrite)
    validate_writable(out)
