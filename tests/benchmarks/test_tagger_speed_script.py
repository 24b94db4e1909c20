"""benchmarks/tagger_speed.py at a tiny size, without its peer: our sides tag, each in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from made_up_tags import write_sentences

from textgraft.nn.cpu.int8 import int8_is_native
from textgraft.nn.cpu.precision import bf16_is_native

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "tagger_speed.py"


@pytest.mark.slow
def test_our_sides_take_turns(tmp_path: Path) -> None:
    write_sentences(tmp_path / "some.conll", 70, 1, names=True)
    command = [
        sys.executable,
        str(SCRIPT),
        str(tmp_path / "some.conll"),
        "--smoke",
        "--width",
        "8",
        "--sentences",
        "5",
    ]
    done = subprocess.run(
        [*command, "--rounds", "1", "--out", str(tmp_path)], capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "tagger-speed.json").read_text())["rows"]
    faster = {"bfloat16": bf16_is_native(), "int8": int8_is_native()}
    sides = ["textgraft, float32", *(f"textgraft, {name}" for name, there in faster.items() if there)]
    assert [row["side"] for row in rows] == sides
    assert all(row["sentences_per_second"] > 0 and row["ratio"] is None for row in rows)
