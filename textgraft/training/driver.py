"""Driver of a run: resume it, show its progress, save it regularly, and write its result atomically.

A stage's unfinished work is in `OUT.run/` beside its result: plan.json (the run's identity) and a checkpoint. The same
command resumes it; another command for the same result is an error until that folder is removed. A process may be
killed between any two lines of this file: the next run resumes or removes what is left.
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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from textgraft.core.device import device_name, peak
from textgraft.core.errors import UserError
from textgraft.core.files import write_atomically
from textgraft.core.identity import changed_keys
from textgraft.core.interrupts import was_interrupted
from textgraft.core.progress_bar import Bar
from textgraft.data.fingerprint import difference
from textgraft.data.streams.parallel_encoding import TokenizersEnded
from textgraft.models import artifact, model_folder
from textgraft.models.artifact import Predictor
from textgraft.models.model import Model
from textgraft.training.followers import Interruption, leading
from textgraft.training.loop import Run, Scores, Step
from textgraft.training.perplexity import Validator
from textgraft.training.projection import Projection
from textgraft.training.run_lock import claim, locked


class Stopped(Interruption):
    """Ctrl-C or SIGTERM ended the run, which is saved."""


class TooSlow(Exception):
    """A training that would exceed its time limit.

    Attributes:
        seconds: The extrapolated total time.
        spent: Seconds of training so far.
    """

    def __init__(self, seconds: float, spent: float) -> None:
        super().__init__(f"it would take {seconds:.0f} s")
        self.seconds, self.spent = seconds, spent


def allowed_seconds(minutes: float | None) -> float | None:
    """A time limit in seconds; None for none.

    Raises:
        UserError: `minutes` is not a positive number.
    """
    if minutes is None:
        return None
    if not 0 < minutes < math.inf:
        raise UserError(f"minutes is {minutes}.", remedy="Give a number above 0.")
    return 60 * minutes


def work_folder(out: Path, plan: dict[str, Any]) -> Path:
    """Create or open the folder for unfinished work on `out`.

    Args:
        out: Folder for the result.
        plan: The identity of the run: settings, data hashes, seeds.

    Raises:
        UserError: Another run is writing there, or the folder has unfinished work of a run with another plan. A folder
            with nothing but a plan is reused.
    """
    folder = work_path(out)
    claim(folder)
    path = folder / "plan.json"
    text = json.dumps(plan, sort_keys=True, indent=1)
    if path.exists() and any(other != path for other in folder.iterdir()):
        try:
            before = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            before = {}
        now = json.loads(text)
        changed = [name for key in sorted(now.keys() | before.keys()) for name in _changed(key, now, before)]
        if changed:
            raise UserError(
                f"an unfinished run is here that differs in: {', '.join(changed)}.",
                where=str(folder),
                remedy="Repeat that run to finish it, name another path, or delete the folder to start anew.",
            )
    else:
        write_atomically(path, text.encode())
    return folder


def _changed(key: str, plan: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
    """The names of the entries below one key in which two plans differ; of fingerprints, the names of the files."""
    lists = [value for side in (plan, before) if isinstance(value := side.get(key), list)]
    if len(lists) == 2 and all(isinstance(item, dict) and "ends" in item for item in [*lists[0], *lists[1]]):
        return [f"{key} ({difference(*lists)})"] if lists[0] != lists[1] else []
    return changed_keys(plan.get(key), before.get(key), key)


def work_path(out: Path) -> Path:
    """The path of the folder for unfinished work on `out`. Raises UserError where `out` has no name."""
    if not out.name:
        raise UserError("this names no new folder.", where=str(out), remedy="Name one.")
    return out.with_name(out.name + ".run")


def validate_new_path(out: Path, overwrite: bool | None) -> None:
    """Raise UserError if `out` exists and may not be replaced.

    With unfinished work beside it, that is left to `put_in_place`: `out` may come from the same command, killed before
    it removed its work folder.

    Args:
        out: Folder for the result.
        overwrite: True if it may be replaced; None: False, for commands without --overwrite.
    """
    unfinished = (work_path(out) / "plan.json").exists()
    model_folder.validate_new_path(out, unfinished or overwrite)


def put_in_place(
    result: Predictor,
    out: Path,
    *,
    half: bool = False,
    overwrite: bool = False,
    documents: Mapping[str, bytes] | None = None,
) -> None:
    """Save a stage's result (see artifact.save), then remove its work folder.

    Args:
        result: The model.
        out: Its folder.
        half: Store the weights as float16.
        overwrite: Replace a model folder at `out`.
        documents: Further files by name (see artifact.save).

    Raises:
        UserError: `out` has been created in the meantime, with other weights.
    """
    same_weights = not overwrite and artifact.has_weights(out, result.files(half=half)["model.safetensors"])
    artifact.save(result, out, half=half, overwrite=overwrite or same_weights, documents=documents)
    remove_work(out)


def remove_work(out: Path) -> None:
    """Remove the work folder of `out`, after the result has been saved."""
    # Renamed first, so that a process killed while it removes files cannot leave a checkpoint without its plan.
    folder = work_path(out)
    done = folder.with_name(folder.name + ".done")
    shutil.rmtree(done, ignore_errors=True)
    with suppress(OSError):
        os.replace(folder, done)
    shutil.rmtree(done, ignore_errors=True)


def remove_unstarted(out: Path) -> None:
    """Remove the work folder of `out` if it contains nothing but a plan, and no other run has just begun there."""
    folder = work_path(out)
    if not folder.is_dir():
        return
    with suppress(UserError), locked(folder):
        if {path.name for path in folder.iterdir()} <= {"plan.json"}:
            remove_work(out)


def weights_hash(model: Model) -> str:
    """SHA-256 of the model's weights, with their names."""
    return hashlib.sha256(artifact.weights(model)).hexdigest()


def drive(run: Run, checkpoint: Path, *, title: str, show: bool = True, max_seconds: float | None = None) -> Run:
    """Train to the end, with checkpoints every `run.settings.save_seconds`.

    Shows a line of progress on stderr with loss, learning rate, tokens/s and time left, and on a GPU of
    core.device.PEAKS the share of its peak performance; a line for each validation; and a message if patience ended the
    training.

    Args:
        run: The training.
        checkpoint: Its file; resumed from if it exists.
        title: Name of the stage, for the progress line.
        show: False for no output.
        max_seconds: Limit of the training time.

    Returns:
        The run, finished.

    Raises:
        Stopped: On Ctrl-C and SIGTERM, after saving.
        UserError: Another run is writing into the same folder.
        TooSlow: As soon as the extrapolated time exceeds `max_seconds`.
    """
    with (
        locked(checkpoint.parent),
        _deferred_interrupts() as interrupted,
        _stopping_with(interrupted, title),
        _bar(show) as bar,
        leading(run, checkpoint) as leader,
    ):
        share_of_peak = _share_of_peak(run)
        last_save = time.monotonic()
        projection = Projection(run.phases, len(run.model.layer_groups()))
        task = bar.add_task(title, total=1.0, detail="")

        def on_encoded(texts: int) -> None:
            bar.update(task, description=f"{title}: encoding", detail=f"{texts:,} texts")
            if interrupted() and not run.processes.several:  # others wait for this process's texts
                run.save(checkpoint)
                raise _stopped(title)

        for step in leader.steps(on_encoded):
            total = (step.progress + run.progress.phase) / len(run.phases)
            bar.update(task, completed=total, description=f"{title}: {step.phase}", detail=_detail(step, share_of_peak))
            if show and step.scores:
                bar.console.print(_scored(step), highlight=False)
            if interrupted():
                break
            whole = projection.seconds(step.seconds, run.progress.phase, step.progress)
            if max_seconds is not None and whole > max_seconds:
                raise TooSlow(whole, step.seconds)
            if time.monotonic() - last_save >= run.settings.save_seconds:
                leader.save(checkpoint)
                last_save = time.monotonic()
        leader.save(checkpoint)
        if interrupted():
            raise _stopped(title)
        bar.update(task, completed=1.0)
        if show and run.out_of_patience():
            bar.console.print(_patience_message(run, title), highlight=False)
    return run


def held_out_scores(validate: Validator, model: Model, tokens: int, *, title: str, show: bool = True) -> Scores:
    """Scores of a language model in eval mode on held-out text, with a line of progress on stderr.

    Args:
        validate: Of the training objective (training.objectives).
        model: The language model.
        tokens: Number of held-out tokens, for the progress bar.
        title: Name of the stage.
        show: False for no output.
    """
    with _bar(show) as bar, torch.no_grad():
        task = bar.add_task(f"{title}: held-out text", total=tokens, detail="")

        def on_progress(count: int) -> None:
            bar.update(task, completed=count, detail=f"{count / 1e6:.2f} M tokens")

        scores = validate(model.eval(), on_progress)
        bar.update(task, completed=tokens)
    return scores


def _stopped(title: str) -> Stopped:
    return Stopped("stopped.", where=title, remedy="Run the same command again to resume.")


@contextmanager
def _stopping_with(interrupted: Callable[[], bool], title: str) -> Iterator[None]:
    """Context in which processes that tokenize may end by the signal that stops this one: torchrun sends it to all."""
    try:
        yield
    except TokenizersEnded as error:
        if interrupted():
            raise _stopped(title) from error
        raise


@contextmanager
def _deferred_interrupts() -> Iterator[Callable[[], bool]]:
    """Context in which Ctrl-C and SIGTERM only make the yielded function return True, so that no step is interrupted.

    A second signal acts at once, and so does the next one after an earlier one that was suppressed (core.interrupts).
    In other threads than the main one, and for ignored signals, nothing changes.
    """
    interrupted = threading.Event()
    if was_interrupted():
        yield lambda: True
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    in_main = threading.current_thread() is threading.main_thread()
    changed = {n: handler for n, handler in before.items() if in_main and handler not in (signal.SIG_IGN, None)}

    def note(number: int, frame: FrameType | None) -> None:
        interrupted.set()
        signal.signal(number, changed[signal.Signals(number)])

    for number in changed:
        signal.signal(number, note)
    try:
        yield interrupted.is_set
    finally:
        for number, handler in changed.items():
            signal.signal(number, handler)


def _bar(show: bool) -> Bar:
    columns = [TextColumn("{task.description}"), BarColumn(bar_width=24), TaskProgressColumn()]
    times = [TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(elapsed_when_finished=False)]
    return Bar(*columns, *times, TextColumn("{task.fields[detail]}"), show=show)


def _share_of_peak(run: Run) -> float | None:
    """Share of the GPU's peak performance for one token a second; None on a CPU, an unknown GPU, or in float32."""
    flops = peak(device_name(run.device)) if run.precision == "bf16" else None
    return 6 * run.model.multiplied() / flops if flops else None


def _detail(step: Step, share_of_peak: float | None) -> str:
    rate = step.tokens / step.seconds if step.seconds else 0.0
    used = "" if share_of_peak is None else f"  {rate * share_of_peak:.1%} of peak"
    # A narrow terminal cuts off the end.
    return f"loss {step.loss:.3f}  {step.tokens / 1e6:.2f} M tokens  {rate:,.0f}/s{used}  lr {step.lr:.2g}"


def _patience_message(run: Run, title: str) -> str:
    """A message on a run that patience ended: the number of validations, and the state that is kept."""
    scored = [row for row in run.progress.history if "score" in row]
    best = max(scored, key=lambda row: float(row["score"]))  # the first of equals, which the run keeps
    stale = run.progress.stale
    return (
        f"{title}: stopped after {stale} validation{'s' * (stale > 1)} without an improvement; "
        f"kept the state at {best['tokens'] / 1e6:.2f} M tokens (phase '{best['phase']}', step {best['step']})."
    )


def _scored(step: Step) -> str:
    assert step.scores is not None
    numbers = {name: value for name, value in step.scores.items() if name != "score" and isinstance(value, float)}
    shown = "  ".join(f"{name} {value:.4g}" for name, value in numbers.items())
    return f"{step.phase}, epoch {step.epoch + 1}, step {step.step}: train loss {step.loss:.4f}  {shown}"
