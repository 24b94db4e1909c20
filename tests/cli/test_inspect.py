"""`textgraft inspect transfer` as its users run it: what it prints, writes, survives and refuses."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from programs import Desk, Program, call, environment, unchanged

from textgraft.cli.inspect import VERBS


def asked(desk: Desk, out: Path, *more: str | Path) -> list[str | Path]:
    """The command on the desk's data, with one seed and few layers unless `more` says otherwise."""
    command = ["inspect", "transfer", desk / "train.csv", "--model", desk.lm, "--out", out, "--precision", "fp32"]
    return [*command, "--recipe", desk / "quick.toml", "--layers", "2", "--seeds", "1", "--max-tokens", "16", *more]


@pytest.mark.parametrize("name", [name for name, _, _ in VERBS])
def test_help_has_an_example_and_imports_nothing_heavy(run: Program, name: str) -> None:
    shown = run("inspect", name, "--help")
    assert shown.code == 0
    assert f"Example: textgraft inspect {name} " in " ".join(shown.out.split())
    assert f"{name} " in run("inspect", "--help").out
    assert "inspect " in run("--help").out
    assert run("inspect") == run("inspect", "--help")
    code = "import sys; from textgraft.cli import main\ntry: main(sys.argv[1:])\nexcept SystemExit: pass\n"
    code += "print([name for name in ('torch', 'sklearn', 'matplotlib') if name in sys.modules])"
    command = [sys.executable, "-c", code, "inspect", name, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.fixture(scope="module")
def whole(desk: Desk, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a run in a process of its own printed with --json."""
    out = tmp_path_factory.mktemp("inspect") / "transfer"
    result = call(*asked(desk, out, "--test", desk / "test.csv", "--json"))
    assert result.code == 0, result
    assert "1 of 10, B, seed 0" in result.err  # the progress
    return result.json()


def numbers(results: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in results.items() if key not in ("out", "report", "minutes")}


@pytest.mark.slow
def test_json_is_what_the_folder_holds(whole: dict[str, Any]) -> None:
    out = Path(whole["out"])
    assert sorted(path.name for path in out.iterdir()) == ["report.html", "results.json"]
    assert json.loads((out / "results.json").read_text()) == {
        k: v for k, v in whole.items() if k not in ("out", "report")
    }
    assert whole["report"] == str(out / "report.html")
    assert whole["layers"] == [0, 2, 4]
    assert whole["held_out"] is False
    assert [point["epoch"] for point in whole["curves"]["scratch"]] == [1, 2, 3]


def test_the_report_is_one_file_that_shows_both_plots_and_fetches_nothing(whole: dict[str, Any]) -> None:
    page = Path(whole["report"]).read_text(encoding="utf-8")
    assert re.findall(r'<section id="(\w+)">', page) == ["layers", "benefits", "run"]
    assert not re.search(r"(?:src|href)=\"(?!#)", page)
    drawn = [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL)]
    words = [" ".join(text for text in svg.itertext() if text.strip()) for svg in drawn]
    assert len(words) == 2
    for arm in ("AnB", "AnB+", "BnB", "BnB+", "linear", "layer 1", "layer 3"):
        assert arm in words[0], arm
    for told in ("from scratch", "pretrained", "start", "slope", "asymptote"):
        assert told in words[1], told
    for cell in whole["cells"]:
        assert f"{cell['arm']}, n = {cell['n']}<" in page
    assert "with one seed there is no spread" in page


@pytest.mark.slow
def test_the_tables_on_stdout_say_the_same(whole: dict[str, Any], desk: Desk, tmp_path: Path) -> None:
    shown = call(*asked(desk, tmp_path / "out", "--test", desk / "test.csv", "--quiet"))
    assert (shown.code, shown.err) == (0, "")
    for cell in whole["cells"]:  # the same numbers as another process had
        row = next(
            line for line in shown.out.splitlines() if line.strip().split("  ")[0] == f"{cell['arm']}, n = {cell['n']}"
        )
        assert f"{100 * cell['mean']:.1f} % [{100 * cell['low']:.1f}, {100 * cell['high']:.1f}]" in row
    for name in ("higher start", "higher slope", "higher asymptote"):
        assert name in shown.out
    assert "One seed" in shown.out
    assert (
        shown.out.splitlines()[-1]
        == f"Written: {tmp_path / 'out' / 'report.html'}, {tmp_path / 'out' / 'results.json'}"
    )
    again = json.loads((tmp_path / "out" / "results.json").read_text())
    assert {**numbers(again), "run": None, "asked": None} == {**numbers(whole), "run": None, "asked": None}


@pytest.mark.slow
def test_killed_it_goes_on_and_ends_with_the_same_numbers(whole: dict[str, Any], desk: Desk, tmp_path: Path) -> None:
    out = tmp_path / "transfer"
    arguments = asked(desk, out, "--test", desk / "test.csv", "--json")
    command = [sys.executable, "-m", "textgraft", *map(str, arguments)]
    cell = tmp_path / "transfer.run" / "4 of 10, AnB, n = 2, seed 0.safetensors"
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 100
        while not cell.exists():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
    assert not out.exists()
    before = cell.stat().st_mtime_ns
    kept = tmp_path / "kept.safetensors"
    kept.hardlink_to(cell)
    again = call(*arguments)
    assert again.code == 0, again
    assert kept.stat().st_mtime_ns == before  # taken, not trained again
    assert "4 of 10, AnB, n = 2, seed 0" not in again.err
    assert numbers(again.json()) == numbers(whole)
    assert (out / "report.html").read_bytes() == Path(whole["report"]).read_bytes()
    assert not (tmp_path / "transfer.run").exists()


@pytest.mark.slow
def test_without_a_test_set_it_says_what_is_held_out(desk: Desk, tmp_path: Path, run: Program) -> None:
    odd = tmp_path / "<b>&.csv"
    shutil.copy(desk / "train.csv", odd)
    arguments = asked(desk, tmp_path / "out", "--json")
    arguments[2] = odd
    shown = run(*arguments)
    assert "there is no --test, so a fifth of the texts is held out" in shown.err
    found = shown.json()
    assert (found["held_out"], found["test_n"], found["run"]["data"]["train"]["texts"]) == (True, 5, 19)
    page = Path(found["report"]).read_text()
    assert "held-out " in page
    assert "&lt;b&gt;&amp;.csv" in page
    assert "<b>" not in page


@pytest.mark.slow
def test_measure_every_gives_the_curves_more_points(desk: Desk, tmp_path: Path, run: Program) -> None:
    more = ["--test", desk / "test.csv", "--measure-every", "1", "--json", "--quiet", "--layers", "0"]
    epochs = [point["epoch"] for point in run(*asked(desk, tmp_path / "out", *more)).json()["curves"]["pretrained"]]
    assert len(epochs) == 9  # three steps an epoch
    assert epochs == sorted(set(epochs))
    assert epochs[-1] == 3


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--layers", "0,7"], ("7 layer groups cannot be copied", "has 4", "from 0")),
        (["--layers=-1"], ("-1 layer groups cannot be copied",)),
        (["--layers", "one"], ("--layers", "'one' is no list of numbers", "0,1,2")),
        (["--layers", ""], ("is no list of numbers",)),
        (["--recipe", "transfr"], ("unknown recipe", "Did you mean 'transfer'?")),
        (["--recipe", "UNPHASED"], ("no fine-tuning phases",)),
        (["--seeds", "0"], ("--seeds",)),
        (["--model", "CLASSIFIER"], ("this is a classifier", "fine-tuned from")),
        (["--test", "missing.csv"], ("missing.csv",)),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(
    more: list[str], told: tuple[str, ...], desk: Desk, tmp_path: Path, run: Program
) -> None:
    unphased = tmp_path / "unphased.toml"
    unphased.write_text('name = "unphased"\ndescription = "For tests"\nsource = "none"\n[finetune]\n')
    names = {"CLASSIFIER": str(desk.classifier), "UNPHASED": str(unphased)}
    arguments = [names.get(word, word) for word in more]
    with unchanged(tmp_path), unchanged(desk.folder):
        run(*asked(desk, tmp_path / "out", "--quiet", *arguments)).mistake(*told)


def test_an_existing_folder_is_left_alone(desk: Desk, tmp_path: Path, run: Program) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with unchanged(tmp_path):
        run(*asked(desk, tmp_path / "out")).mistake("this path exists already", "Name another path")


@pytest.mark.slow
def test_a_label_that_training_never_saw_is_named(desk: Desk, tmp_path: Path, run: Program) -> None:
    test = tmp_path / "test.csv"
    test.write_text("text,label\nThe film was great.,pos\nThe film was odd.,mixed\n")
    done = run(*asked(desk, tmp_path / "out", "--test", test, "--quiet"))
    assert done.code == 0
    assert "test.csv: 1 text has a label that training lacked ('mixed') and counts as a mistake" in done.err
