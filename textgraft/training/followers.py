"""Process 0 leads a training, and the other processes follow it, step by step.

A verb runs on process 0 alone, as without torchrun: it reads, validates, writes, prints, and watches the clock. Where
it trains (training.driver), the others get the model, the phases and the batches' stream from it and run the same loop,
each on its share of every batch. So every verb trains on several processes, none knows of them, and processes cannot
have different data or settings.
"""

from __future__ import annotations

import copy
import platform
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from textgraft.core.errors import UserError
from textgraft.core.processes import ALONE, Lost, Processes, alone, current, is_lost, packed, told, unpacked
from textgraft.data.streams.blocks import in_use
from textgraft.models.inference import ProgressCallback
from textgraft.models.model import Model
from textgraft.training.engines import Engine, Replicated
from textgraft.training.loop import Run, Scores, Step
from textgraft.training.run_state import load_run
from textgraft.training.shared_calls import FAILURES, Shared, take_part

TRAIN, EACH = "train", "each"
"""What process 0 asks of the others: to take part in a training, or to make some of several calls."""
END, STEP, SAVE = range(3)
"""What process 0 signals next: the end of a training, one step of it, or its state for a checkpoint."""


T = TypeVar("T")
Trouble = tuple[str, str, str]
"""Message, place and remedy of a UserError on another process."""


class Interruption(UserError):
    """The user has ended the run."""


class Leader:
    """A run on process 0, whose steps and checkpoints the others take part in."""

    def __init__(self, run: Run, processes: Processes) -> None:
        self.run, self._processes = run, processes

    def steps(self, on_progress: ProgressCallback) -> Iterator[Step]:
        """As Run.steps."""
        steps = self.run.steps(on_progress)
        while True:
            self._processes.signal(STEP)
            step = next(steps, None)
            if step is None:
                return
            yield step

    def save(self, path: Path) -> None:
        """As Run.save."""
        self._processes.signal(SAVE)
        self._processes.from_first(path.absolute())
        self.run.save(path)


@contextmanager
def leading(run: Run, checkpoint: Path) -> Iterator[Leader]:
    """Context in which a run trains on all processes, from its checkpoint if there is one.

    Raises:
        UserError: Another process cannot read what it needs, or has ended.
    """
    processes = current()
    checkpoint = checkpoint.absolute()  # as the others know it
    saved = load_run(checkpoint) if checkpoint.exists() else None
    payload = _payload(run, saved, checkpoint.parent) if processes.several else None
    if payload is None:
        processes = ALONE
    else:
        processes.from_first((TRAIN, payload))
        _validate_others(processes.gather(None))
    try:
        if payload is not None:
            run.join(processes, _engine(run, processes))
            run.validate = None if run.validate is None else _Announced(run, run.validate, processes)
        if saved is not None:
            run.restore(*saved)
        yield Leader(run, processes)
    except Lost:
        raise
    except BaseException as error:
        if isinstance(error, RuntimeError) and is_lost(error):  # within a step
            raise Lost(error) from error
        told(lambda: processes.signal(END))
        raise
    else:
        processes.signal(END)


def each(function: Callable[..., T], arguments: Sequence[tuple[Any, ...]]) -> list[T]:
    """The results of independent calls, which are divided over the processes, in their order.

    Args:
        function: A module's function, whose last argument is the number of the process that calls it.
        arguments: The others, for each call; they and the results can be pickled.

    Raises:
        UserError: As the first call that raises one.
    """
    processes = current()
    if processes.several:
        processes.from_first((EACH, packed((function, list(arguments)))))
    results = _own_calls(function, arguments, processes)
    by_number = dict(pair for pairs in processes.gather(results) for pair in pairs)
    for _, trouble in (by_number[number] for number in sorted(by_number)):
        _validate_others([trouble])
    return [by_number[number][0] for number in range(len(arguments))]


def _own_calls(
    function: Callable[..., T], arguments: Sequence[tuple[Any, ...]], processes: Processes
) -> list[tuple[int, tuple[T | None, Trouble | None]]]:
    """This process's calls, by their numbers, each with a result or with what went wrong."""
    results: list[tuple[int, tuple[T | None, Trouble | None]]] = []
    for number in range(processes.rank, len(arguments), processes.size):
        try:
            with alone():
                results.append((number, (function(*arguments[number], processes.rank), None)))
        except UserError as error:
            if processes.first and isinstance(error, Interruption):
                raise
            results.append((number, (None, (error.message, error.where, error.remedy))))
    return results


def follow(processes: Processes) -> None:
    """Take part in the trainings of process 0, until it ends."""
    while (message := processes.from_first()) is not None:
        what, payload = message
        if what == EACH:
            function, arguments = unpacked(payload)
            processes.gather(_own_calls(function, arguments, processes))
            continue
        run, trouble = None, None
        try:
            run, saved = _unpacked_run(payload, processes)
        except UserError as error:
            trouble = f"process {processes.rank} on {platform.node()}: {error.message}", error.where, error.remedy
        if any(processes.gather(trouble)):
            continue
        assert run is not None
        try:
            with in_use(getattr(run.stream, "corpus", None)):
                _follow(run, saved, processes)
            continue
        except UserError:  # process 0 has the same error, and reports it
            pass
        except RuntimeError as error:
            raise (Lost(error) if is_lost(error) else error) from error
        while processes.signal() != END:
            pass


def dismiss() -> bool:
    """End the other processes, on process 0; False if one of them does not listen."""
    return told(lambda: current().from_first(None))


def _follow(run: Run, saved: Any, processes: Processes) -> None:
    run.join(processes, _engine(run, processes))
    if saved is not None:
        run.restore(*saved)
    steps = run.steps()
    while (code := processes.signal()) != END:
        if code == STEP:
            next(steps, None)
        else:
            run.save(processes.from_first())


def _engine(run: Run, processes: Processes) -> Engine:
    if run.settings.sharding == "none":
        return Replicated(run.model, processes)
    from textgraft.training.sharded import Sharded  # takes a second to import

    return Sharded(run.model, processes, run.device)


def _payload(run: Run, saved: Any, folder: Path) -> bytes | None:
    """Everything that another process needs; None, with a warning, for a run that cannot be sent to one."""
    model = run.model if run.device.type == "cpu" else copy.deepcopy(run.model).cpu()
    settings = replace(run.settings, precision=run.precision)  # which "auto" might resolve otherwise elsewhere
    validates, threads = run.validate is not None, torch.get_num_threads()
    try:
        return packed((model, list(run.phases), run.stream, settings, validates, threads, saved, folder))
    except UserError as error:
        warnings.warn(f"{error.message} It runs on process 0 alone.", stacklevel=3)
        return None


def _unpacked_run(payload: bytes, processes: Processes) -> tuple[Run, Any]:
    model, phases, stream, settings, validates, threads, saved, folder = unpacked(payload)
    if settings.sharding != "none" and not folder.is_dir():
        remedy = "A model in parts is saved by every process: give an output path on a drive that all machines share."
        raise UserError("this folder is not here.", where=str(folder), remedy=remedy)
    torch.set_num_threads(threads)
    run = Run(model, phases, stream, settings)
    run.validate = _received(run, processes) if validates else None
    return run, saved


def _validate_others(troubles: Sequence[Trouble | None]) -> None:
    for trouble in troubles:
        if trouble is not None:
            message, where, remedy = trouble
            raise UserError(message, where=where, remedy=remedy)


class _Announced:
    """A validation on process 0, whose scores all processes get."""

    def __init__(self, run: Run, validate: Callable[[Model], Scores], processes: Processes) -> None:
        self._run, self._validate, self._processes = run, validate, processes

    def __call__(self, model: Model) -> Scores:
        scores: Scores | None = None
        try:
            shared: Any = Shared(self._run)
            scores = self._validate(shared)
        finally:
            self._processes.from_first(("scores", scores))
        return scores


def _received(run: Run, processes: Processes) -> Callable[[Model], Scores]:
    """The validation of another process: it takes part in the model's calls until there are scores."""

    def validate(model: Model) -> Scores:
        while (message := processes.from_first())[0] != "scores":
            with suppress(*FAILURES):  # process 0 hears of it, and says that there are no scores
                take_part(message, run)
        scores: Scores | None = message[1]
        if scores is None:
            raise UserError("the validation of process 0 has failed.")
        return scores

    return validate
