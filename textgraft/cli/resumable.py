"""Runs that Ctrl-C may stop and the same command resumes, and the folders that they write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from textgraft.cli.console import Interrupted
from textgraft.core.interrupts import ctrl_c_prevails


@contextmanager
def resumable(*outs: Path) -> Iterator[None]:
    """Ctrl-C inside ends the program with a word on how to go on; work that had not begun leaves nothing behind."""
    from textgraft.training.driver import Stopped, remove_unstarted, work_path

    try:
        with ctrl_c_prevails():
            yield
    except (KeyboardInterrupt, Stopped):
        for out in outs:
            remove_unstarted(out)
        saved = " and ".join(str(work_path(out)) for out in outs if work_path(out).exists())
        word = f"the run is saved in {saved}, and" if saved else "nothing was lost;"
        raise Interrupted(f"stopped; {word} the same command goes on from there.") from None
    except Exception:
        for out in outs:
            remove_unstarted(out)
        raise


def validate_out(out: Path, overwrite: bool | None) -> None:
    """Raises UserError if nothing could be put at `out` in the end."""
    from textgraft.core.files import check_writable
    from textgraft.training.driver import refuse_existing

    refuse_existing(out, overwrite)
    check_writable(out)
