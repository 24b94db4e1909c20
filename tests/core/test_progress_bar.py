"""Progress where nobody looks but at a log."""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn

from textgraft.core import progress_bar
from textgraft.core.progress import Meter
from textgraft.core.progress_bar import Bar

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
    monkeypatch.setattr(progress_bar, "LOG_SECONDS", 0.05)
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


def test_a_notebook_shows_the_line_in_place(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    def display(data: dict[str, str], *, raw: bool, display_id: bool) -> SimpleNamespace:
        assert (raw, display_id) == (True, True)
        return SimpleNamespace(update=lambda data, raw: shown.append(data["text/plain"]))

    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    monkeypatch.setattr(progress_bar, "NOTEBOOK_SECONDS", 0.05)
    steps(20)
    assert 3 <= len(shown) <= 7
    assert all("reading" in line for line in shown)
    assert shown[-1].split()[-2] == "20"
    assert capfd.readouterr() == ("", "")
    steps(3, show=False)
    del shell.kernel  # IPython in a terminal
    shown.clear()
    steps(3)
    assert (shown, len(capfd.readouterr().err.splitlines())) == ([], 1)


def test_a_terminal_is_drawn_over_and_not_written_to(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_bar, "LOG_SECONDS", 0.0)
    monkeypatch.setenv("FORCE_COLOR", "1")
    steps(5)
    drawn = capfd.readouterr().err
    assert "\x1b[2K" in drawn
    assert drawn.count("\n") < 5


def test_a_pass_over_texts_is_logged_too(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_bar, "LOG_SECONDS", 0.0)
    with Meter("cutting", 10, shown=True) as meter:
        for _ in range(3):
            time.sleep(0.21)
            meter.add(1000, 100)
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) >= 3
    assert "3 documents" in lines[-1]


DESCRIPTION, DETAIL = "no-adapt, 50 labels, seed 0: all", "loss 0.097  lr 0.00022"


def line(columns: int, description: str = DESCRIPTION, detail: str = DETAIL) -> str:
    """What a training's bar looks like on a terminal of so many columns."""
    said, done = TextColumn("{task.fields[detail]}"), TaskProgressColumn()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FORCE_COLOR", "1")
        patch.setenv("COLUMNS", str(columns))
        bar = Bar(TextColumn("{task.description}"), BarColumn(24), done, TextColumn("left"), said)
    bar.add_task(description, total=100, completed=97, detail=detail)
    screen = Console(width=columns)
    with screen.capture() as captured:
        screen.print(bar.make_tasks_table(bar.tasks))
    (drawn,) = captured.get().splitlines()
    return drawn.rstrip()


def test_a_wide_terminal_has_everything() -> None:
    assert line(100) == f"{DESCRIPTION} {'━' * 23}   97% left {DETAIL}"


def test_the_bar_gives_way_first_then_the_end_of_what_is_said_and_never_how_far_it_is() -> None:
    assert line(80).startswith(f"{DESCRIPTION} ━━")
    assert line(80).endswith(f"97% left {DETAIL}")
    assert line(66) == f"{DESCRIPTION}   97% left {DETAIL}"
    assert line(60) == f"{DESCRIPTION}   97% left loss 0.097  lr …"
    assert line(30) == "no-adapt, 50 lab…   97% left …"


@given(st.integers(14, 120), st.text("ab ", max_size=60), st.text("ab ", max_size=60))
def test_it_is_one_line_that_says_how_far_it_is(columns: int, description: str, detail: str) -> None:
    drawn = line(columns, description, detail)
    assert "97% left" in drawn
    assert len(drawn) <= columns


@pytest.mark.parametrize(("named", "unit"), [({}, "documents"), ({"unit": "sentences"}, "sentences")])
def test_a_meter_says_what_it_counts(named: dict[str, str], unit: str, capfd: pytest.CaptureFixture[str]) -> None:
    with Meter("tagging", 2, shown=True, **named) as meter:
        meter.add(1_000_000)
        meter.add(1_000_000)
    assert f"2 {unit}, " in capfd.readouterr().err
