"""Commands as their users run them, what they leave, and the folder they work in."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


@dataclass(frozen=True)
class Result:
    """What a command left: exit code, stdout, stderr."""

    code: int
    out: str
    err: str

    def json(self) -> dict[str, Any]:
        """The one JSON object that stdout has to be."""
        assert self.out.count("\n") == 1, self.out
        return dict(json.loads(self.out))

    def mistake(self, *parts: str) -> None:
        """It must have said one line, with each of `parts` in it, and gone with exit code 2."""
        assert (self.code, self.out) == (2, ""), self
        assert self.err.startswith("textgraft: error: "), self
        assert self.err.count("\n") == 1, self
        for part in parts:
            assert part in self.err, self


Program = Callable[..., Result]


def environment() -> dict[str, str]:
    """What the real programs run with: one thread, and no width but their own."""
    return {k: v for k, v in os.environ.items() if k != "COLUMNS"} | {"OMP_NUM_THREADS": "1"}


def spawn(*arguments: str | Path, stdin: bytes = b"") -> Result:
    """Run a command as its users do: a process of its own."""
    command = [sys.executable, "-m", "textgraft", *map(str, arguments)]
    done = subprocess.run(command, input=stdin, capture_output=True, env=environment(), timeout=120)
    return Result(done.returncode, done.stdout.decode(), done.stderr.decode())


def call(*arguments: str | Path, stdin: bytes = b"") -> Result:
    """Run a command in this process with one thread, as `spawn` does in another; torch and the rest are there already.

    For fixtures of a module and whatever is not about processes: a process of its own costs two seconds of imports.
    """
    import torch

    from textgraft.cli import main

    out, err, code, threads = io.StringIO(), io.StringIO(), 0, torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        torch.set_num_threads(1)
        try:
            main([str(a) for a in arguments])
        except SystemExit as left:
            code = int(left.code or 0)
        finally:
            torch.set_num_threads(threads)
    return Result(code, out.getvalue(), err.getvalue())


def interrupt(*arguments: str | Path, when: Path) -> Result:
    """Run a command in a process of its own and press Ctrl-C once the file `when` is there."""
    command = [sys.executable, "-m", "textgraft", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=environment(), **pipes) as process:
        deadline = time.monotonic() + 100
        while not when.exists():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=100)
    return Result(process.returncode, out.decode(), err.decode())


def snapshot(folder: Path) -> dict[str, str]:
    """Every file and folder below `folder`, files with the hash of what is in them."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        for path in sorted(folder.rglob("*"))
    }


@contextmanager
def unchanged(folder: Path) -> Iterator[None]:
    """Inside, nothing below `folder` may come, go or change."""
    before = snapshot(folder)
    yield
    assert snapshot(folder) == before


def write_csv(path: Path, rows: Sequence[Sequence[str]], head: Sequence[str] = ("text", "label")) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([head, *rows])
    return path


@dataclass(frozen=True)
class Desk:
    """A folder with data, recipes and tiny models; tests write beside it, never in it."""

    folder: Path
    lm: Path
    classifier: Path

    def __truediv__(self, name: str) -> Path:
        return self.folder / name
