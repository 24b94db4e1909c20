"""Two runs into one folder: the second is told of the first, whatever it does, and the first is not disturbed."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from made_up_reviews import reviews

import textgraft
from textgraft.core.context import QUIET
from textgraft.core.errors import UserError
from textgraft.data.examples import Examples
from textgraft.tasks.classification.finetune_options import FinetuneOptions
from textgraft.training.driver import remove_unstarted, work_folder, work_path
from textgraft.training.run_lock import exclusive, locked

pytest.importorskip("fcntl")
TRAIN = Examples(*reviews(24, 1), "single", source="train.csv")
HOLDER = """
import sys
from pathlib import Path
from textgraft.training.run_lock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """The lock of another process."""
    command = [sys.executable, "-c", HOLDER, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        yield
        other.communicate("")


def linear(out: Path) -> object:
    return textgraft.finetune(TRAIN, out, options=FinetuneOptions(method="linear", folds=2), context=QUIET)


def curves(out: Path) -> object:
    return textgraft.compare(
        TRAIN, out, methods=["linear"], labels=["all"], options=textgraft.MethodOptions(seeds=1, show=False)
    )


@pytest.mark.parametrize("verb", [linear, curves])
def test_the_second_run_is_told_and_can_follow_the_first(verb: object, tmp_path: Path) -> None:
    assert callable(verb)
    out = tmp_path / "out"
    with held(work_path(out)), pytest.raises(UserError, match="another run is writing here") as caught:
        verb(out)
    assert caught.value.where == str(work_path(out))
    assert "Name another path" in caught.value.remedy
    verb(out)
    assert out.is_dir()
    assert not work_path(out).exists()


def test_a_run_that_is_refused_does_not_remove_the_folder_of_the_other(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with held(work_path(out)):
        (work_path(out) / "plan.json").write_text("{}")
        remove_unstarted(out)
        assert (work_path(out) / "plan.json").is_file()
    remove_unstarted(out)
    assert not work_path(out).exists()


def test_a_run_keeps_its_folder_to_its_end_and_no_longer(tmp_path: Path) -> None:
    out, began, refused, finish = tmp_path / "out", threading.Event(), threading.Event(), threading.Event()

    @exclusive
    def run() -> None:
        with locked(work_folder(out, {"a": 1})):  # its own lock is no obstacle
            began.set()
            finish.wait(20)
        raise RuntimeError

    def first() -> None:
        with pytest.raises(RuntimeError):
            run()

    thread = threading.Thread(target=first)
    thread.start()
    assert began.wait(20)
    with pytest.raises(UserError, match="another run is writing here"):
        run()
    refused.set()
    finish.set()
    thread.join()
    with pytest.raises(RuntimeError):  # the same plan goes on
        run()
