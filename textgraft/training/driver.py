"""Drive a run: resume it, show it, save it by time, and leave nothing half done.

A stage's unfinished work lives in `OUT.run/` beside its result: a plan (what was asked, by hash) and a checkpoint. The
same command goes on from there; another command for the same result is refused until that folder is gone. A process
may be killed between any two lines of this file: what it leaves is taken up, or cleared away, by the next.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from textgraft.core.device import device_name, peak
from textgraft.core.errors import UserError
from textgraft.core.files import write_atomically
from textgraft.core.interrupts import was_interrupted
from textgraft.core.progress_bar import Bar
from textgraft.data.fingerprint import difference
from textgraft.models import artifact, model_folder
from textgraft.models.artifact import Predictor
from textgraft.models.model import Model
from textgraft.training.loop import Run, Scores, Step
from textgraft.training.perplexity import Validator

PROJECTED_FROM = 10.0
"""Seconds of training that say how long the rest will take; the first steps are slower than the others."""


class Stopped(UserError):
    """The user pressed Ctrl-C, or the system wants the process to end; the run is saved."""


class TooSlow(Exception):
    """A training that would take `seconds` in all, which is more than it may, and has taken `spent` of them."""

    def __init__(self, seconds: float, spent: float) -> None:
        super().__init__(f"it would take {seconds:.0f} s")
        self.seconds, self.spent = seconds, spent


def allowed_seconds(minutes: float | None) -> float | None:
    """What trainings may take that may take so many minutes. Raises UserError for what is no time."""
    if minutes is None:
        return None
    if not 0 < minutes < math.inf:
        raise UserError(f"minutes is {minutes}.", remedy="Give a number above 0.")
    return 60 * minutes


def work_folder(out: Path, plan: dict[str, Any]) -> Path:
    """The folder for unfinished work on `out`, made if need be.

    Raises UserError if it holds work on something else: `plan` says what is asked (settings, data hashes, seeds). A
    folder with nothing but a plan in it is taken over.
    """
    folder = work_path(out)
    path = folder / "plan.json"
    text = json.dumps(plan, sort_keys=True, indent=1)
    if path.exists() and any(other != path for other in folder.iterdir()):
        try:
            before = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            before = {}
        keys = sorted(plan.keys() | before.keys())
        pairs = {key: (json.loads(text).get(key), before.get(key)) for key in keys}
        changed = [_changed(key, now, then) for key, (now, then) in pairs.items() if now != then]
        if changed:
            raise UserError(
                f"an unfinished run is here that differs in: {', '.join(changed)}.",
                where=str(folder),
                remedy="Repeat that command to finish it, name another --out, or delete the folder to start anew.",
            )
    else:
        write_atomically(path, text.encode())
    return folder


def _changed(key: str, now: Any, before: Any) -> str:
    """What a plan calls something that differs, with the names of the files where it is a list of fingerprints."""
    lists = isinstance(now, list) and isinstance(before, list)
    of_files = lists and all(isinstance(item, dict) and "name" in item for item in [*now, *before])
    return f"{key} ({difference(now, before)})" if of_files else key


def work_path(out: Path) -> Path:
    return out.with_name(out.name + ".run")


def refuse_existing(out: Path, overwrite: bool | None) -> None:
    """Raises UserError if `out` is there already and may not be replaced; None: nor could it be.

    With unfinished work beside it, that waits for `put_in_place`: `out` may come from the same command, killed
    after its last but one act.
    """
    unfinished = (work_path(out) / "plan.json").exists()
    model_folder.refuse_existing(out, unfinished or overwrite)


def put_in_place(
    result: Predictor,
    out: Path,
    *,
    half: bool = False,
    overwrite: bool = False,
    documents: Mapping[str, bytes] | None = None,
) -> None:
    """Save a stage's result (see artifact.save) and remove its work folder, in this order.

    Raises UserError where `out` has come to be meanwhile, unless it holds the very same weights.
    """
    again = not overwrite and artifact.has_weights(out, result.files(half=half)["model.safetensors"])
    artifact.save(result, out, half=half, overwrite=overwrite or again, documents=documents)
    remove_work(out)


def remove_work(out: Path) -> None:
    """Remove the work folder of `out`, once the result is in place."""
    # Renamed first, so that a kill while files are being removed cannot leave a checkpoint without its plan.
    folder = work_path(out)
    done = folder.with_name(folder.name + ".done")
    shutil.rmtree(done, ignore_errors=True)
    with suppress(OSError):
        os.replace(folder, done)
    shutil.rmtree(done, ignore_errors=True)


def remove_unstarted(out: Path) -> None:
    """Remove the work folder of `out` if it holds nothing, or nothing but a plan."""
    folder = work_path(out)
    if folder.is_dir() and {path.name for path in folder.iterdir()} <= {"plan.json"}:
        remove_work(out)


def content_hash(parts: Iterable[Any]) -> str:
    """sha256 over the parts' text, each with its length, so that no two lists of parts collide."""
    digest = hashlib.sha256()
    for part in parts:
        data = str(part).encode("utf-8", "surrogatepass")
        digest.update(str(len(data)).encode() + b":" + data)
    return digest.hexdigest()


def weights_hash(model: Model) -> str:
    """sha256 over every value of the model, with its name."""
    return hashlib.sha256(artifact.weights(model)).hexdigest()


def drive(run: Run, checkpoint: Path, *, title: str, show: bool = True, within: float | None = None) -> Run:
    """Train to the end, resuming from `checkpoint` if it is there and saving to it by `run.settings.save_seconds`.

    Shows one line of progress with loss, rate, tokens/s and time left on stderr, on a GPU that core.device.PEAKS knows
    also what share of its peak those tokens take; a line for each validation; and why it ended, if patience ended it.
    Raises Stopped on Ctrl-C and SIGTERM, after saving, UserError where another process trains in the same folder, and
    TooSlow as soon as it is to be seen that this training takes more than `within` seconds.
    """
    with alone(checkpoint.parent), _interrupts_noted() as interrupted, _bar(show) as bar:
        run.resume(checkpoint)
        share_of_peak = _share_of_peak(run)
        last_save = time.monotonic()
        task = bar.add_task(title, total=1.0, detail="")

        def read(texts: int) -> None:
            bar.update(task, description=f"{title}: reading", detail=f"{texts:,} texts")
            if interrupted():
                run.save(checkpoint)
                raise _stopped(title)

        for step in run.steps(read):
            total = (step.progress + run.progress.phase) / len(run.phases)
            bar.update(task, completed=total, description=f"{title}: {step.phase}", detail=_detail(step, share_of_peak))
            if show and step.scores:
                bar.console.print(_scored(step), highlight=False)
            if interrupted():
                break
            if within is not None and (whole := projected(step.seconds, _share(step, run))) > within:
                raise TooSlow(whole, step.seconds)
            if time.monotonic() - last_save >= run.settings.save_seconds:
                run.save(checkpoint)
                last_save = time.monotonic()
        run.save(checkpoint)
        if interrupted():
            raise _stopped(title)
        bar.update(task, completed=1.0)
        if show and run.out_of_patience():
            bar.console.print(_patience_word(run, title), highlight=False)
    return run


def measured(validate: Validator, model: Model, tokens: int, *, title: str, show: bool = True) -> Scores:
    """The scores of a language model, in eval mode, on so many held-out tokens; a line of progress on stderr."""
    with _bar(show) as bar, torch.no_grad():
        task = bar.add_task(f"{title}: held-out text", total=tokens, detail="")

        def tell(count: int) -> None:
            bar.update(task, completed=count, detail=f"{count / 1e6:.2f} M tokens")

        scores = validate(model.eval(), tell)
        bar.update(task, completed=tokens)
    return scores


def projected(seconds: float, share: float) -> float:
    """How many seconds something takes in all of which a `share` is done; in its first seconds, what it has taken."""
    return seconds if seconds < PROJECTED_FROM else seconds / share


def _share(step: Step, run: Run) -> float:
    """How much of all epochs is done."""
    epochs = [phase.epochs for phase in run.phases]
    at = run.progress.phase
    return (sum(epochs[:at]) + step.progress * epochs[at]) / sum(epochs)


def _stopped(title: str) -> Stopped:
    return Stopped("stopped.", where=title, remedy="The same command goes on from here.")


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Inside, no other process trains here: two that write the same files would undo each other's work.

    The system forgets the lock with the process, however that ends. Where folders cannot be locked (Windows, some
    network drives), nothing is. Raises UserError where another process is inside.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            remedy = "Wait until it is done, or stop it; then the same command goes on from there."
            raise UserError("another process is training here.", where=str(folder), remedy=remedy) from error
        except OSError:  # this drive knows no locks
            pass
        yield
    finally:
        os.close(handle)


@contextmanager
def _interrupts_noted() -> Iterator[Callable[[], bool]]:
    """Inside, Ctrl-C and SIGTERM only make the function handed out say True: a step cut in two cannot be saved.

    A second one acts at once, as ever, and so does the next where a first came before and was swallowed: that one is
    noted from the start. In a thread other than the main one, and of a signal that is ignored, nothing changes.
    """
    noted = threading.Event()
    if was_interrupted():
        yield lambda: True
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    in_main = threading.current_thread() is threading.main_thread()
    changed = {n: handler for n, handler in before.items() if in_main and handler not in (signal.SIG_IGN, None)}

    def note(number: int, frame: FrameType | None) -> None:
        noted.set()
        signal.signal(number, changed[signal.Signals(number)])

    for number in changed:
        signal.signal(number, note)
    try:
        yield noted.is_set
    finally:
        for number, handler in changed.items():
            signal.signal(number, handler)


def _bar(show: bool) -> Bar:
    columns = [TextColumn("{task.description}"), BarColumn(bar_width=24), TaskProgressColumn()]
    times = [TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(elapsed_when_finished=False)]
    return Bar(*columns, *times, TextColumn("{task.fields[detail]}"), show=show)


def _share_of_peak(run: Run) -> float | None:
    """The share of the GPU's peak that one token a second takes; None on a processor, an unknown GPU, or in float32."""
    most = peak(device_name(run.device)) if run.precision == "bf16" else None
    return 6 * run.model.multiplied() / most if most else None


def _detail(step: Step, share_of_peak: float | None) -> str:
    rate = step.tokens / step.seconds if step.seconds else 0.0
    used = "" if share_of_peak is None else f"  {rate * share_of_peak:.1%} of peak"
    # The end is what a narrow terminal leaves out.
    return f"loss {step.loss:.3f}  {step.tokens / 1e6:.2f} M tokens  {rate:,.0f}/s{used}  lr {step.lr:.2g}"


def _patience_word(run: Run, title: str) -> str:
    """Why a run ended before its time, and what is left of it."""
    scored = [row for row in run.progress.history if "score" in row]
    best = max(scored, key=lambda row: float(row["score"]))  # the first of equals, as in the run
    stale = run.progress.stale
    return (
        f"{title}: stopped after {stale} validation{'s' * (stale > 1)} without a gain; "
        f"kept as it was at {best['tokens'] / 1e6:.2f} M tokens (phase '{best['phase']}', step {best['step']})."
    )


def _scored(step: Step) -> str:
    assert step.scores is not None
    numbers = {name: value for name, value in step.scores.items() if name != "score" and isinstance(value, float)}
    shown = "  ".join(f"{name} {value:.4g}" for name, value in numbers.items())
    return f"{step.phase}, epoch {step.epoch + 1}, step {step.step}: train loss {step.loss:.4f}  {shown}"
