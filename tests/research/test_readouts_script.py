"""bench/readouts.py at a tiny size: the stage's table, printed, with what is left out (tests/training has the
rest).
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from made_up_tags import write_encoder, write_sentences

BENCH = Path(__file__).parents[2] / "bench"
RECIPE = """
name = "frozen quick"
description = "For tests"
source = "none"
[finetune]
batch_size = 16
[[finetune.phases]]
name = "head"
epochs = 2
trainable = 1
lr = 0.05
"""


def test_prints_the_table_of_the_stage(tmp_path: Path) -> None:
    for name, count, seed in (("train", 40, 1), ("test", 12, 2)):
        write_sentences(tmp_path / f"{name}.conll", count, seed)
    (tmp_path / "quick.toml").write_text(RECIPE)
    write_encoder(tmp_path, "lstm", num_layers=3)
    given = [str(tmp_path / "train.conll"), "--test", str(tmp_path / "test.conll"), "--model", str(tmp_path / "lstm")]
    given += ["--recipe", str(tmp_path / "quick.toml"), "--precision", "fp32", "--out", str(tmp_path / "out")]
    given += ["--seeds", "1", "--layer-aggregations", "last,sum,mix", "--sentences", "20"]
    command = [sys.executable, str(BENCH / "readouts.py"), *given]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("left out: the layer aggregation") == 2
    assert "20 sentences to learn from, 12 to measure on" in done.stdout
    (row,) = json.loads((tmp_path / "out" / "results.json").read_text())["rows"]
    assert row["layer_aggregation"] == "last"
    assert f"{100 * row['score']['mean']:.1f} %" in done.stdout
