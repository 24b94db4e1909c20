"""benchmarks/cold_start.py: a classifier and its graph give the same label, and the graph needs less."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from made_up_reviews import reviews

from textgraft.core.context import QUIET
from textgraft.data.examples import Examples
from textgraft.tasks.classification.finetune import finetune
from textgraft.tasks.classification.finetune_options import FinetuneOptions
from textgraft.tasks.export import export

BENCHMARKS = Path(__file__).parents[2] / "benchmarks" / "cold_start.py"


@pytest.mark.slow
def test_the_graph_answers_alike_and_is_lighter(tiny_lm: Path, tmp_path: Path) -> None:
    examples = Examples(*reviews(20), "single")
    options = FinetuneOptions(recipe="frozen", baselines=False)
    finetune(examples, tmp_path / "model", model=tiny_lm, valid=examples, options=options, context=QUIET)
    export(tmp_path / "model", tmp_path / "graph")
    command = [sys.executable, str(BENCHMARKS), str(tmp_path / "model"), str(tmp_path / "graph"), "--rounds", "1"]
    done = subprocess.run([*command, "--out", str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "cold-start.json").read_text())
    assert rows["model"]["label"] == rows["graph"]["label"]
    assert abs(rows["model"]["confidence"] - rows["graph"]["confidence"]) < 0.01
    for cost in ("processor", "memory_mb", "installed_mb"):
        assert 0 < rows["graph"][cost] < rows["model"][cost]
