"""Drive a run: resume it, show it, save it by time, and leave nothing half done.

A stage's unfinished work lives in `OUT.run/` beside its result: a plan (what was asked, by hash) and a checkpoint. The
same command goes on from there; another command for the same result is refused until that folder is gone.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from textgraft.errors import UserError
from textgraft.files import write_atomically
from textgraft.training.loop import Run, Step

SAVE_SECONDS = 60.0


class Stopped(UserError):
    """The user pressed Ctrl-C; the run is saved."""


def work_folder(out: Path, plan: dict[str, Any]) -> Path:
    """The folder for unfinished work on `out`, made if need be.

    Raises UserError if it holds work on something else: `plan` says what is asked (settings, data hashes, seeds).
    """
    folder = out.with_name(out.name + ".run")
    path = folder / "plan.json"
    text = json.dumps(plan, sort_keys=True, indent=1)
    if path.exists():
        try:
            before = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            before = {}
        changed = [k for k in sorted(plan.keys() | before.keys()) if json.loads(text).get(k) != before.get(k)]
        if changed:
            raise UserError(
                f"an unfinished run is here that differs in: {', '.join(changed)}.",
                where=str(folder),
                remedy="Repeat that command to finish it, name another --out, or delete the folder to start anew.",
            )
    else:
        write_atomically(path, text.encode())
    return folder


def finished(folder: Path) -> None:
    """Remove the work folder, once the result is in place."""
    shutil.rmtree(folder, ignore_errors=True)


def content_hash(parts: Iterable[Any]) -> str:
    """sha256 over the parts' text, each with its length, so that no two lists of parts collide."""
    digest = hashlib.sha256()
    for part in parts:
        data = str(part).encode("utf-8", "surrogatepass")
        digest.update(str(len(data)).encode() + b":" + data)
    return digest.hexdigest()


def drive(run: Run, checkpoint: Path, *, title: str, show: bool = True, save_seconds: float = SAVE_SECONDS) -> Run:
    """Train to the end, resuming from `checkpoint` if it is there and saving to it every `save_seconds`.

    Shows one line of progress with loss, rate, tokens/s and time left on stderr. Raises Stopped on Ctrl-C, after
    saving.
    """
    run.resume(checkpoint)
    last_save = time.monotonic()
    with _bar(show) as bar:
        task = bar.add_task(title, total=1.0, detail="")
        try:
            for step in run.steps():
                total = (step.progress + run.progress.phase) / len(run.phases)
                bar.update(task, completed=total, description=f"{title}: {step.phase}", detail=_detail(step))
                if step.scores:
                    bar.console.print(_scored(step), highlight=False)
                if time.monotonic() - last_save >= save_seconds:
                    run.save(checkpoint)
                    last_save = time.monotonic()
        except KeyboardInterrupt:
            run.save(checkpoint)
            raise Stopped("stopped.", where=title, remedy="The same command goes on from here.") from None
        bar.update(task, completed=1.0)
    run.save(checkpoint)
    return run


def _bar(show: bool) -> Progress:
    columns = [TextColumn("{task.description}"), BarColumn(bar_width=24), TaskProgressColumn()]
    times = [TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(elapsed_when_finished=False)]
    console = Console(stderr=True)
    return Progress(*columns, *times, TextColumn("{task.fields[detail]}"), console=console, disable=not show)


def _detail(step: Step) -> str:
    rate = step.tokens / step.seconds if step.seconds else 0.0
    return f"loss {step.loss:.3f}  lr {step.lr:.2g}  {step.tokens / 1e6:.2f} M tokens  {rate:,.0f}/s"


def _scored(step: Step) -> str:
    assert step.scores is not None
    shown = "  ".join(f"{name} {value:.4g}" for name, value in step.scores.items() if name != "score")
    return f"{step.phase}, epoch {step.epoch + 1}, step {step.step}: train loss {step.loss:.4f}  {shown}"
