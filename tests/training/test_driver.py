"""Sessions: plans, saving by time, Ctrl-C, full disks, the moment when a result is put in place."""

from __future__ import annotations

import errno
import gc
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from small_models import classifier, copied, examples

from textgraft.core.context import QUIET
from textgraft.core.errors import UserError
from textgraft.core.interrupts import reliable_interrupts
from textgraft.data.examples import Examples
from textgraft.models import artifact, loading, model_folder
from textgraft.models.model import Model
from textgraft.tasks.classification.finetune import finetune
from textgraft.tasks.classification.finetune_options import FinetuneOptions
from textgraft.tasks.language_modeling.adapt import adapt
from textgraft.tasks.language_modeling.pretrain import PretrainOptions, pretrain
from textgraft.training import driver
from textgraft.training.driver import Stopped, TooSlow, drive, weights_hash, work_folder
from textgraft.training.loop import Run, Scores
from textgraft.training.phases import Phase
from textgraft.training.settings import Settings

PHASES = [Phase("head", 1, 0.01, trainable=1), Phase("all", 2, 0.01)]
OFTEN = Settings(precision="fp32", save_seconds=0.0)
TEXTS = [f"The film was {word} and the plot was {word} too, I think." for word in ("good", "bad", "long", "odd")] * 20

FULL = OSError(errno.ENOSPC, "No space left on device")
READ_ONLY = OSError(errno.EROFS, "Read-only file system")


def small_run(settings: Settings = OFTEN, validate: Callable[[Model], Scores] | None = None) -> Run:
    return Run(classifier(), PHASES, examples(), settings, validate)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


@pytest.mark.parametrize("key", ["seed", "texts", "model"])
def test_another_plan_is_refused_with_what_differs(key: str, tmp_path: Path) -> None:
    plan = {"seed": 1, "texts": "0a", "model": "7f"}
    folder = work_folder(tmp_path / "out", plan)
    (folder / "checkpoint.safetensors").write_bytes(b"work")
    before = files(tmp_path)
    with pytest.raises(UserError, match=rf"out\.run: an unfinished run is here that differs in: {key}\.") as caught:
        work_folder(tmp_path / "out", plan | {key: "other"})
    assert "delete the folder" in caught.value.remedy
    assert files(tmp_path) == before
    assert work_folder(tmp_path / "out", plan) == folder


def test_a_plan_without_work_is_taken_over(tmp_path: Path) -> None:
    """As when the first try failed for the user's mistake, before anything was done."""
    work_folder(tmp_path / "out", {"seed": 1})
    folder = work_folder(tmp_path / "out", {"seed": 2})
    assert json.loads((folder / "plan.json").read_text()) == {"seed": 2}


def test_a_model_is_known_by_every_one_of_its_values() -> None:
    one, other = classifier(), classifier()
    assert weights_hash(one) == weights_hash(other)
    with torch.no_grad():
        other.values()["encoder.embedding.weight"][15, 3] += 1e-7
    assert weights_hash(one) != weights_hash(other)


def test_saving_is_by_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = []
    monkeypatch.setattr(Run, "save", lambda run, path: saved.append(run.progress.step))
    drive(small_run(replace(OFTEN, save_seconds=1000)), tmp_path / "c", title="t", show=False)
    assert len(saved) == 1
    saved.clear()
    drive(small_run(), tmp_path / "c", title="t", show=False)
    assert len(saved) == 16  # 15 steps and the end


def test_how_often_to_save_does_not_identify_a_run() -> None:
    assert replace(OFTEN, save_seconds=7.0).identity() == OFTEN.identity()
    assert replace(OFTEN, seed=7).identity() != OFTEN.identity()


class InterruptedAt:
    """A validation in which Ctrl-C is pressed at its `number`th call: in the middle of the loop's work."""

    def __init__(self, number: int, times: int = 1, kind: signal.Signals = signal.SIGINT) -> None:
        self.number, self.times, self.kind, self.calls = number, times, kind, 0

    def __call__(self, model: Model) -> Scores:
        self.calls += 1
        if self.calls == self.number:
            for _ in range(self.times):
                signal.raise_signal(self.kind)
        loss = float(copied(model)["head.layers.6.bias"][0])
        return {"loss": loss, "score": -loss}


@pytest.fixture
def ctrl_c(monkeypatch: pytest.MonkeyPatch):
    """Python's own handler for Ctrl-C, even where the tests run in the background and ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield signal.default_int_handler
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("number", "kind"), [(1, signal.SIGINT), (2, signal.SIGINT), (3, signal.SIGINT), (2, signal.SIGTERM)]
)
def test_ctrl_c_waits_for_the_step_saves_and_the_rest_is_bit_equal(
    number: int, kind: signal.Signals, tmp_path: Path, ctrl_c
) -> None:
    whole = small_run(validate=InterruptedAt(0))
    drive(whole, tmp_path / "whole", title="t", show=False)
    seldom = replace(OFTEN, save_seconds=1000)
    with pytest.raises(Stopped, match=r"stopped\..*same command"):
        drive(small_run(seldom, InterruptedAt(number, kind=kind)), tmp_path / "c", title="t", show=False)
    assert signal.getsignal(signal.SIGINT) is ctrl_c
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    again = small_run(seldom, InterruptedAt(0))
    drive(again, tmp_path / "c", title="t", show=False)
    assert len(again.progress.history) == 3
    for name, value in copied(whole.model).items():
        assert torch.equal(copied(again.model)[name], value), name


def test_a_ctrl_c_that_was_swallowed_before_stops_after_the_first_step(tmp_path: Path, ctrl_c) -> None:
    run = small_run(replace(OFTEN, save_seconds=1000))
    with reliable_interrupts():
        with suppress(KeyboardInterrupt):  # as a library does it
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(Stopped):
            drive(run, tmp_path / "c", title="t", show=False)
    assert run.progress.step == 1
    assert small_run().resume(tmp_path / "c")
    assert signal.getsignal(signal.SIGINT) is ctrl_c
    again = small_run()
    drive(again, tmp_path / "c", title="t", show=False)  # which that press does not concern
    assert again.progress.finished


def test_a_second_ctrl_c_stops_at_once_and_leaves_the_last_save(tmp_path: Path, ctrl_c) -> None:
    checkpoint = tmp_path / "c"
    run = small_run(validate=InterruptedAt(2, times=2))
    with pytest.raises(KeyboardInterrupt):
        drive(run, checkpoint, title="t", show=False)
    assert signal.getsignal(signal.SIGINT) is ctrl_c
    again = small_run()
    assert again.resume(checkpoint)
    assert again.progress.phase == 1
    assert again.progress.step == 4  # the fifth step's validation was cut short; what was saved is whole


def test_a_run_in_a_thread_leaves_ctrl_c_alone(tmp_path: Path, ctrl_c) -> None:
    runs: list[Run] = []
    thread = threading.Thread(target=lambda: runs.append(drive(small_run(), tmp_path / "c", title="t", show=False)))
    thread.start()
    assert signal.getsignal(signal.SIGINT) is ctrl_c
    thread.join()
    assert runs[0].progress.finished


def test_two_at_once_are_told_of_each_other(tmp_path: Path) -> None:
    fcntl = pytest.importorskip("fcntl")
    other = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    with pytest.raises(UserError, match="another run is writing here") as caught:
        drive(small_run(), tmp_path / "checkpoint.safetensors", title="t", show=False)
    assert caught.value.where == str(tmp_path)
    os.close(other)
    assert drive(small_run(), tmp_path / "checkpoint.safetensors", title="t", show=False).progress.finished
    fcntl.flock(os.open(tmp_path, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)  # and it has let go


@pytest.mark.slow
def test_a_training_leaves_its_model_to_who_asked_for_it(tmp_path: Path) -> None:
    """Not to the next collection of circles, before which a comparison would hold dozens of models."""
    run = small_run()
    model = weakref.ref(run.model)
    gc.collect()
    gc.disable()
    try:
        drive(run, tmp_path / "checkpoint.safetensors", title="t", show=False)
        del run
        assert model() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(("call", "error"), [("fsync", FULL), ("replace", FULL), ("replace", READ_ONLY)])
def test_a_checkpoint_that_cannot_be_written_leaves_the_last_one(
    call: str, error: OSError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = tmp_path / "checkpoint.safetensors"
    run = small_run()
    list(islice(run.steps(), 3))
    run.save(checkpoint)
    before = files(tmp_path)

    def failing(*arguments: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing)
        with pytest.raises(UserError, match=r"checkpoint\.safetensors: cannot write") as caught:
            drive(small_run(), checkpoint, title="t", show=False)
    assert caught.value.remedy.startswith("The disk is full" if error is FULL else "Choose a folder")
    assert files(tmp_path) == before
    whole, again = small_run(), small_run()
    drive(whole, tmp_path / "whole", title="t", show=False)
    drive(again, checkpoint, title="t", show=False)
    for name, value in copied(whole.model).items():
        assert torch.equal(copied(again.model)[name], value), name


FILES_OF = """
import sys
from pathlib import Path
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from textgraft.core.errors import UserError
from textgraft.core.files import write_atomically
path = Path(sys.argv[1])
write_atomically(path, b"old" * 1000)
try:
    write_atomically(path, b"new" * 20_000)
except UserError as error:
    print(error)
"""


def test_a_write_that_the_system_cuts_short_leaves_the_old_file(tmp_path: Path) -> None:
    """Against the system itself: a limit on a file's size fails in the middle of writing, as a full disk does."""
    run = subprocess.run(
        [sys.executable, "-c", FILES_OF, str(tmp_path / "f")], capture_output=True, text=True, check=True
    )
    assert "cannot write (File too large)" in run.stdout
    assert files(tmp_path) == {"f": b"old" * 1000}


def adapted(out: Path, lm: Path, **options) -> Path:
    return adapt(TEXTS, out, model=lm, settings=options.pop("settings", OFTEN), context=QUIET, **options)


def test_the_work_folder_is_gone_after_success_and_nothing_else_is_left(tiny_lm: Path, tmp_path: Path) -> None:
    adapted(tmp_path / "out", tiny_lm)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_killed_between_putting_in_place_and_clearing_up(
    tiny_lm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command again finds the result it was about to announce, and ends well."""

    class Killed(BaseException):
        pass

    def killed(*arguments: object, **options: object) -> None:
        raise Killed

    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(model_folder.shutil, "rmtree", lambda path, **_: killed() if "done" in str(path) else None)
        with pytest.raises(Killed):
            adapted(out, tiny_lm)
    assert (tmp_path / "out.run" / "checkpoint.safetensors").exists()
    before = weights(out)
    adapted(out, tiny_lm)
    assert weights(out) == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_result_that_another_put_there_meanwhile_is_not_replaced(tiny_lm: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    adapted(tmp_path / "other", tiny_lm, settings=replace(OFTEN, seed=1))
    run = tmp_path / "out.run"
    with pytest.raises(UserError, match="exists already"):  # made while we were training
        adapted_while(out, tiny_lm, lambda: shutil.copytree(tmp_path / "other", out))
    assert files(out) == files(tmp_path / "other")
    assert run.exists()


def adapted_while(out: Path, lm: Path, act: Callable[[], object]) -> None:
    saved = Run.save
    acted: list[object] = []

    def save(run: Run, path: Path) -> None:
        saved(run, path)
        if not acted:
            acted.append(act())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, "save", save)
        adapted(out, lm)


SCRIPT = """
import signal
import sys
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)
import torch
torch.set_num_threads(1)
from textgraft.core.context import QUIET
from textgraft.tasks.language_modeling.adapt import adapt
from textgraft.training.settings import Settings
from textgraft.training.driver import Stopped
texts = Path(sys.argv[1]).read_text().splitlines()
settings = Settings(precision="fp32", save_seconds=0.05)
try:
    adapt(texts, sys.argv[2], model=sys.argv[3], recipe="full", settings=settings, context=QUIET)
except Stopped as stopped:
    print(stopped)
    sys.exit(3)
"""


@pytest.mark.slow
def test_ctrl_c_to_a_process_then_two_more_processes_and_this_one_agree_to_the_bit(
    tiny_lm: Path, tmp_path: Path
) -> None:
    (tmp_path / "texts").write_text("\n".join(TEXTS))
    out = tmp_path / "out"
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "texts"), str(out), str(tiny_lm)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not (tmp_path / "out.run" / "checkpoint.safetensors").exists() and time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    said, errors = process.communicate(timeout=60)
    assert process.returncode == 3, errors
    assert "Run the same command again to resume." in said
    assert "Traceback" not in errors
    assert not out.exists()
    subprocess.run(command, check=True)
    seldom = Settings(precision="fp32")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        here = adapted(tmp_path / "here", tiny_lm, settings=seldom, recipe="full")
        again = adapted(tmp_path / "again", tiny_lm, settings=seldom, recipe="full")
        other = adapted(tmp_path / "other", tiny_lm, settings=replace(seldom, seed=1), recipe="full")
    finally:
        torch.set_num_threads(threads)
    assert weights(out) == weights(here) == weights(again)
    assert weights(out) != weights(other)


def random_states() -> tuple[bytes, bytes, object]:
    return torch.get_rng_state().numpy().tobytes(), np.random.get_state()[1].tobytes(), random.getstate()  # noqa: NPY002


@pytest.mark.slow
def test_no_stage_touches_the_callers_random_state(tiny_lm: Path, tiny_recipe: Path, tmp_path: Path) -> None:
    (tmp_path / "pool.txt").write_text("\n".join(TEXTS * 6))
    before = random_states()
    pretrain([tmp_path / "pool.txt"], tmp_path / "lm", options=PretrainOptions(recipe=str(tiny_recipe)), context=QUIET)
    assert random_states() == before
    adapted(tmp_path / "adapted", tiny_lm, own_vocabulary=True)
    assert random_states() == before
    train = Examples(TEXTS[:32], ["dull" if i % 4 == 2 else "fine" for i in range(32)], "single")
    options = FinetuneOptions(folds=2, baselines=False, settings=OFTEN)
    finetune(train, tmp_path / "out", model=tiny_lm, options=options, context=QUIET)
    assert random_states() == before


@pytest.mark.slow
def test_a_finetuning_is_told_from_one_of_another_model(tiny_lm: Path, tmp_path: Path) -> None:
    """Same names, same shapes, other weights: its checkpoint must not be taken for ours."""
    train = Examples(TEXTS[:32], ["dull" if i % 4 == 2 else "fine" for i in range(32)], "single")
    options = FinetuneOptions(folds=0, baselines=False, settings=OFTEN)

    def stop(model: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                "textgraft.tasks.classification.finetune.put_in_place",
                lambda *_, **__: (_ for _ in ()).throw(Stopped("")),
            )
            finetune(train, tmp_path / "out", model=model, valid=train, options=options, context=QUIET)

    with pytest.raises(Stopped):
        stop(tiny_lm)
    moved = loading.load_network(tiny_lm)
    with torch.no_grad():
        moved.model.values()["encoder.embedding.weight"][50, 3] += 1e-3
    artifact.save(moved, tmp_path / "moved")
    with pytest.raises(UserError, match=r"differs in: model\."):
        stop(tmp_path / "moved")


def test_a_training_that_would_take_too_long_is_left_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TooSlow) as early:
        drive(small_run(), tmp_path / "a", title="t", show=False, max_seconds=1e-9)
    assert early.value.seconds == early.value.spent  # nothing is projected from the first steps
    monkeypatch.setattr(driver.Projection, "seconds", lambda self, spent, phase, progress: 90.0 + 20 * phase)
    with pytest.raises(TooSlow) as late:
        drive(small_run(), tmp_path / "b", title="t", show=False, max_seconds=100)
    assert late.value.seconds == 110.0 > late.value.spent  # in its second phase
    assert drive(small_run(), tmp_path / "c", title="t", show=False, max_seconds=1e9).progress.finished


@pytest.mark.parametrize("show", [False, True])
def test_held_out_text_is_read_before_ones_eyes(show: bool, capsys: pytest.CaptureFixture[str]) -> None:
    heard: list[bool] = []

    def validate(model: Model, on_progress: Callable[[int], None] = lambda count: None) -> Scores:
        heard.append(model.training or torch.is_grad_enabled())
        on_progress(1_500_000)
        return {"score": 1.0}

    model = classifier().train()
    assert driver.held_out_scores(validate, model, 2_000_000, title="adapt", show=show) == {"score": 1.0}
    assert heard == [False]
    told = " ".join(capsys.readouterr().err.split())
    assert ("adapt: held-out text" in told and "1.50 M tokens" in told) == show
