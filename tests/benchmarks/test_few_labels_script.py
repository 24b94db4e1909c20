"""The benchmark of few labels: its samples are fair, and a run goes on where it was stopped."""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import few_labels

ROWS = [(f"a good text {i}", "good") for i in range(40)] + [(f"a bad text {i}", "bad") for i in range(20)]
ROWS += [(f"an odd text {i}", "odd") for i in range(3)]


def test_a_sample_has_every_class_and_the_pool_none_of_it() -> None:
    chosen, pool = few_labels.sample(ROWS, 10, 0, balanced=False)
    assert len(chosen) == 10
    assert min(Counter(label for _, label in chosen).values()) >= 2
    assert not {text for text, _ in chosen} & set(pool)
    assert len(pool) == len(ROWS) - 10
    assert few_labels.sample(ROWS, 10, 0, balanced=False) == (chosen, pool)
    assert few_labels.sample(ROWS, 10, 1, balanced=False)[0] != chosen
    even, _ = few_labels.sample(ROWS, 9, 0, balanced=True)
    assert Counter(label for _, label in even) == {"good": 3, "bad": 3, "odd": 3}


def test_each_cell_is_trained_once_and_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(few_labels.SETS, "polarity", lambda data: (list(ROWS), list(ROWS)))
    monkeypatch.setitem(few_labels.METHODS, "default", lambda train, pool, tests, model: (["good"] * len(tests), {}))
    asked = argparse.Namespace(
        method=["ngrams", "default"], sets=["polarity"], labels=12, samples=2, tests=50, model="default"
    )
    asked.data, asked.out = tmp_path, tmp_path / "out.jsonl"
    few_labels.run(asked)
    lines = asked.out.read_text().splitlines()
    few_labels.run(asked)
    assert asked.out.read_text().splitlines() == lines
    assert [(row["method"], row["sample"], row["tests"]) for row in map(json.loads, lines)] == [
        ("ngrams", 0, 50),
        ("default", 0, 50),
        ("ngrams", 1, 50),
        ("default", 1, 50),
    ]
    (of_default,) = [row for row in few_labels._read(asked.out) if (row["method"], row["sample"]) == ("default", 0)]
    assert of_default["right"] == [int(label == "good") for label in _tested(50)]
    head, _, ngrams, default = few_labels.table(asked.out).splitlines()
    assert head.startswith("| data | method | accuracy")
    assert ngrams.startswith("| sentence polarity, 12 labels | n-grams, logistic regression | ")
    assert "(p " in ngrams
    assert default.startswith("| | `finetune` | ")
    assert default.endswith("| 2 | |")


def test_minutes_on_the_clock_stand_beside_those_of_several_threads() -> None:
    rows = [{"cpu_minutes": cpu, "minutes": cpu / 2, "threads": 2} for cpu in (6.0, 8.0)]
    assert few_labels._minutes(rows) == "7.00 (3.50)"
    assert few_labels._minutes([*rows, {"cpu_minutes": 1.0, "minutes": 1.0, "threads": 1}]) == "5.00"


def test_the_page_has_the_table_of_the_kept_rows() -> None:
    root = Path(few_labels.__file__).parents[1]
    assert few_labels.table(root / "research/kept/few-labels.jsonl") in (root / "docs/results.md").read_text("utf-8")


def _tested(count: int) -> list[str]:
    """Labels of the test texts in the order in which they are kept."""
    rows = list(ROWS)
    random.Random(8).shuffle(rows)
    return [label for _, label in rows[:count]]


def test_rows_of_another_encoder_are_apart(tmp_path: Path) -> None:
    row = {"set": "trec", "labels": 100, "sample": 0, "method": "frozen", "tests": 2}
    row |= {"cpu_minutes": 1.0, "minutes": 1.0, "threads": 1}
    rows = [row | {"model": name, "right": right} for name, right in (("model", "80"), ("mpnet", "c0"))]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    _, _, minilm, mpnet = few_labels.table(tmp_path / "rows.jsonl").splitlines()
    assert minilm.startswith("| TREC | frozen, logistic regression | 50.0")
    assert mpnet.startswith("| | frozen, logistic regression, mpnet | 100.0")
