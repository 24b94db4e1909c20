"""benchmarks/large_csv.py: its rows are of the size asked, and the memory is that of the command."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import large_csv


def test_the_rows_are_pieces_of_the_texts(tmp_path: Path) -> None:
    source, target = tmp_path / "texts.jsonl", tmp_path / "rows.csv"
    texts = ["a" * 2000, 'a "quoted"\nline']
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    count = large_csv.write(target, [source], 500_000)
    assert 500_000 <= target.stat().st_size < 600_000
    with target.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == count
    assert [row["text"] for row in rows[:4]] == [
        f"1 {'a' * 1500}",
        f"2 {'a' * 500}",
        f"3 {texts[1]}",
        f"4 {'a' * 1500}",
    ]
    assert [row["label"] for row in rows[:4]] == ["long", "long", "short", "long"]


@pytest.mark.slow
def test_the_peak_is_of_the_command(tmp_path: Path) -> None:
    peak, seconds = large_csv.measure("--version")
    assert peak > 5
    assert 0 < seconds < 60
    with pytest.raises(SystemExit, match="check"):
        large_csv.measure("check", tmp_path / "none.csv")
