"""benchmarks/int8_classifiers.py: a row for float32 and for each variant of int8."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from made_up_reviews import reviews
from programs import write_csv

from textgraft.core.context import QUIET
from textgraft.data.examples import Examples
from textgraft.onnx.int8 import LADDER
from textgraft.tasks.classification.finetune import finetune
from textgraft.tasks.classification.finetune_options import FinetuneOptions

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "int8_classifiers.py"


@pytest.mark.slow
def test_a_row_for_each_variant(tiny_lm: Path, tmp_path: Path) -> None:
    examples = Examples(*reviews(20), "single")
    options = FinetuneOptions(recipe="frozen", baselines=False)
    finetune(examples, tmp_path / "model", model=tiny_lm, valid=examples, options=options, context=QUIET)
    write_csv(tmp_path / "texts.csv", list(zip(*reviews(30))))
    command = [sys.executable, str(SCRIPT), str(tmp_path / "texts.csv"), str(tmp_path / "model")]
    done = subprocess.run([*command, "--out", str(tmp_path / "rows.json")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert [row["products"] for row in rows] == ["float32", *LADDER]
    assert rows[0]["same"] == 1.0
    assert all(0.5 <= row["same"] <= 1 and 0 <= row["accuracy"] <= 1 for row in rows)
    assert all(row["megabytes"] < 0.5 * rows[0]["megabytes"] for row in rows[1:])
    assert done.stdout.count("the same") == 1 + len(LADDER)
