"""Progress where nobody looks but at a log."""

from __future__ import annotations

import time

import pytest
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

from textgraft import bars
from textgraft.bars import Bar
from textgraft.data.progress import Meter

COLUMNS = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}"), TimeRemainingColumn())


def steps(count: int, *, show: bool = True) -> None:
    with Bar(*COLUMNS, show=show) as bar:
        task = bar.add_task("reading", total=count)
        for _ in range(count):
            bar.advance(task)
            bar.update(task, description="reading on")
            time.sleep(0.01)


def test_a_log_has_a_line_each_minute_and_the_last_one(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bars, "LOG_SECONDS", 0.05)
    steps(20)
    lines = capfd.readouterr().err.splitlines()
    done = [float(line.split()[-2]) for line in lines]
    assert 3 <= len(lines) <= 6
    assert done == sorted(done)
    assert done[-1] == 20
    assert all("reading on" in line for line in lines[1:])


def test_short_work_leaves_one_line_and_quiet_work_none(capfd: pytest.CaptureFixture[str]) -> None:
    steps(3)
    assert len(capfd.readouterr().err.splitlines()) == 1
    steps(3, show=False)
    assert capfd.readouterr().err == ""


def test_a_terminal_is_drawn_over_and_not_written_to(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bars, "LOG_SECONDS", 0.0)
    monkeypatch.setenv("FORCE_COLOR", "1")
    steps(5)
    drawn = capfd.readouterr().err
    assert "\x1b[2K" in drawn
    assert drawn.count("\n") < 5


def test_a_pass_over_texts_is_logged_too(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bars, "LOG_SECONDS", 0.0)
    with Meter("cutting", 10, shown=True) as meter:
        for _ in range(3):
            time.sleep(0.21)
            meter.add(1000, 100)
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) >= 3
    assert "3 documents" in lines[-1]
