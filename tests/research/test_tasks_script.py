"""research/tasks.py: what it writes is what the published files say, and mirrored questions stay together."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest

from textgraft import read

RESEARCH = Path(__file__).parents[2] / "research"


def write_published(data: Path) -> None:
    """A few lines of each, in the layout of the published files."""
    for name in ("rte", "sick", "stsb", "copa"):
        (data / name).mkdir(parents=True)
    for part in ("train", "dev"):
        text = 'index\tsentence1\tsentence2\tlabel\n0\tA "big" dog.\tA dog.\tentailment\n1\tNo.\tYes.\tnot_entailment\n'
        (data / "rte" / f"{part}.tsv").write_text(text)
    for name in ("SICK_train.txt", "SICK_test_annotated.txt"):
        (data / "sick" / name).write_text("6\tA boy\tA kid\t3.3\tNEUTRAL\n7\tA man\tA human\t4.7\tENTAILMENT\n")
    for part in ("train", "test"):
        (data / "stsb" / f"stsb-en-{part}.csv").write_text('"A plane, up.",A plane.,4.5\nA cat.,A car.,0.0\n')
    items = "".join(
        f'<item id="{mirror + number}" asks-for="cause" most-plausible-alternative="{choice}">'
        f"<p>It was {number} and {mirror}.</p><a1>One.</a1><a2>Two.</a2></item>"
        for number in range(1, 401)
        for mirror, choice in ((0, 1), (1000, 2))
    )
    (data / "copa" / "balanced-copa-dev-all.xml").write_text(f'<copa-corpus version="1.0">{items}</copa-corpus>')


def test_files_that_textgraft_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_published(tmp_path / "data")
    monkeypatch.setattr(sys, "argv", ["tasks.py", str(tmp_path / "data"), str(tmp_path / "out")])
    runpy.run_path(str(RESEARCH / "tasks.py"), run_name="__main__")
    rte = read(tmp_path / "out" / "rte-train.csv", text="first", text2="second", label="label")
    assert rte.labels is not None
    assert sorted(zip(rte.texts, rte.labels, strict=True)) == [
        ('A "big" dog.\nA dog.', "entailment"),
        ("No.\nYes.", "not_entailment"),
    ]
    related = read(tmp_path / "out" / "sick-relatedness-test.csv", text="first", text2="second", label="label")
    assert related.labels is not None
    assert sorted(related.labels) == [3.3, 4.7]
    parts = {
        part: [json.loads(line) for line in (tmp_path / "out" / f"copa-{part}.jsonl").read_text().splitlines()]
        for part in ("train", "test")
    }
    assert (len(parts["train"]), len(parts["test"])) == (750, 50)
    numbers = {part: {row["premise"].split()[2] for row in rows} for part, rows in parts.items()}
    assert not numbers["train"] & numbers["test"]
    assert all(len(numbers[part]) * 2 == len(rows) for part, rows in parts.items())
