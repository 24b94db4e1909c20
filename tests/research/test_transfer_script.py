"""bench/transfer.py at a tiny size: the stage's tables as Markdown, and two pictures (tests/training has the rest)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from made_up_tags import write_encoder

BENCH = Path(__file__).parents[2] / "bench"
RECIPE = """
name = "quick"
description = "For tests"
source = "none"
[finetune]
batch_size = 8
[[finetune.phases]]
name = "all"
epochs = 2
lr = 0.01
"""


def test_prints_the_tables_and_draws(tmp_path: Path) -> None:
    trec = tmp_path / "trec"
    trec.mkdir()
    for name, count in (("train", 40), ("test", 12)):
        rows = [("HUM:ind", "who wrote this") if i % 2 else ("NUM:count", "how many are there") for i in range(count)]
        (trec / f"{name}.txt").write_text("\n".join(f"{label} {text} {i} ?" for i, (label, text) in enumerate(rows)))
    (tmp_path / "quick.toml").write_text(RECIPE)
    write_encoder(tmp_path, "lstm", num_layers=1)
    given = ["trec", "--data", str(tmp_path), "--labels", "24", "--seeds", "2", "--model", str(tmp_path / "lstm")]
    given += ["--recipe", str(tmp_path / "quick.toml"), "--out", str(tmp_path / "out"), "--plots", str(tmp_path)]
    done = subprocess.run([sys.executable, str(BENCH / "transfer.py"), *given], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert (results["test_n"], results["seeds"]) == (12, 2)
    assert all(sentence in done.stdout for sentence in results["verdict"])
    table = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    kinds = [line.split(" | ")[0].removeprefix("| ") for line in table]
    assert {"linear", "B", "n = 0", "AnB, n = 1", "BnB+, n = 2", "higher start", "higher asymptote"} <= set(kinds)
    pictures = [(tmp_path / f"transfer-{name}.svg").read_text() for name in ("layers", "benefits")]
    assert all("<svg" in picture for picture in pictures)
