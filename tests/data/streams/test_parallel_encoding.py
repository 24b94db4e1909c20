"""Tokenization in processes: the order of results, and how the processes end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
from made_up_reviews import reviews

from textgraft.core.errors import UserError
from textgraft.data.streams import parallel_encoding
from textgraft.data.streams.parallel_encoding import TokenizersEnded, encoded, validate_processes
from textgraft.text.tokenizer import Tokenizer
from textgraft.training import driver
from textgraft.training.driver import Stopped

TEXTS = reviews(200)[0]
TOKENIZER = Tokenizer.train(TEXTS, vocab_size=150)


def tagged() -> Iterator[tuple[str, int]]:
    return ((text, number) for number, text in enumerate(TEXTS))


@pytest.mark.parametrize("processes", [0, 1])
def test_results_are_in_order(processes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_encoding, "BATCH_CHARACTERS", 1000)
    found = list(encoded(tagged(), TOKENIZER.to_json(), processes=processes))
    assert [tag for _, tag in found] == list(range(200))
    for (ids, _), expected in zip(found, TOKENIZER.corpus_ids(TEXTS), strict=True):
        assert ids.dtype == np.uint16
        assert (ids == expected).all()


def test_reading_is_never_far_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_encoding, "BATCH_CHARACTERS", 1000)
    read = 0

    def endless() -> Iterator[tuple[str, None]]:
        nonlocal read
        while True:
            read += 1
            yield "x" * 100, None

    items = encoded(endless(), TOKENIZER.to_json(), processes=0)
    next(items)
    assert read == 10
    items.close()  # type: ignore[attr-defined]


def test_it_ends_when_it_is_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_encoding, "BATCH_CHARACTERS", 1000)
    answers = iter([False, False, True])
    count = sum(1 for _ in encoded(tagged(), TOKENIZER.to_json(), processes=0, stop=lambda: next(answers)))
    assert 0 < count < 100


def test_a_process_that_was_killed_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_encoding, "BATCH_CHARACTERS", 1000)
    items = encoded(tagged(), TOKENIZER.to_json(), processes=1)
    next(items)
    for child in psutil.Process().children():
        if "resource_tracker" not in " ".join(child.cmdline()):
            child.kill()
    with pytest.raises(UserError, match="ended from outside"):
        list(items)


def test_a_stop_that_ends_these_processes_too_is_a_stop() -> None:
    """torchrun sends its SIGTERM to a whole group of processes."""
    for interrupted, raised in ((True, Stopped), (False, TokenizersEnded)):
        with pytest.raises(raised), driver._stopping_with(lambda answer=interrupted: answer, "pretrain"):
            raise TokenizersEnded(begun=False)


UNGUARDED = """
import sys
from textgraft.data.streams.parallel_encoding import encoded
list(encoded(iter([("a text", None)]), open(sys.argv[1]).read(), processes=1))
"""


@pytest.mark.slow
def test_a_script_without_a_guard_is_told_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(UNGUARDED)
    TOKENIZER.save(tmp_path / "tokenizer.json")
    command = [sys.executable, str(tmp_path / "program.py"), str(tmp_path / "tokenizer.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "if __name__ == '__main__':" in done.stderr.splitlines()[-1]


PROGRAM = """
import sys
from textgraft.data.streams.parallel_encoding import encoded
if __name__ == "__main__":
    endless = (("some text " * 50, None) for _ in iter(int, 1))
    for number, _ in enumerate(encoded(endless, open(sys.argv[1]).read(), processes=2)):
        if number == 2:
            print("ready", flush=True)
"""


@pytest.mark.slow
def test_processes_end_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    TOKENIZER.save(tmp_path / "tokenizer.json")
    command = [sys.executable, str(tmp_path / "program.py"), str(tmp_path / "tokenizer.json")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        children = psutil.Process(parent.pid).children(recursive=True)
        assert len(children) >= 2
        time.sleep(0.2)
        os.kill(parent.pid, signal.SIGKILL)
    _, alive = psutil.wait_procs(children, timeout=20)
    assert not alive


def test_more_processes_than_sense(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    validate_processes(8)
    for count in (9, -1):
        with pytest.raises(UserError, match=f"{count} tokenizer processes.* to 8; this machine has 2 cores"):
            validate_processes(count)
