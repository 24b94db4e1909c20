"""bench/readouts.py at a tiny size: every possible readout is measured, once, and the table says how well."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from made_up_tags import write_encoder, write_sentences

from textgraft.nn.readout import READOUTS

BENCH = Path(__file__).parents[1] / "bench"
RECIPE = """
name = "frozen quick"
description = "For tests"
source = "none"
[finetune]
rows = 16
[[finetune.phases]]
name = "head"
epochs = 15
trainable = 1
lr = 0.05
"""


def command(folder: Path, model: str, *more: str) -> subprocess.CompletedProcess[str]:
    given = [str(folder / "train.conll"), "--test", str(folder / "test.conll"), "--model", str(folder / model)]
    given += ["--recipe", str(folder / "quick.toml"), "--precision", "fp32", "--out", str(folder / "out"), *more]
    return subprocess.run(
        [sys.executable, str(BENCH / "readouts.py"), *given], capture_output=True, text=True, timeout=200
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("readouts")
    for name, count, seed in (("train", 40, 1), ("test", 12, 2)):
        write_sentences(folder / f"{name}.conll", count, seed)
    (folder / "quick.toml").write_text(RECIPE)
    return folder


def test_each_readout_has_a_row_and_is_measured_once(folder: Path) -> None:
    write_encoder(folder, "bert", num_layers=4)
    first = command(folder, "bert", "--seeds", "1", "--readouts", "last,concat-last-4")
    assert first.returncode == 0, first.stderr
    done = command(folder, "bert", "--seeds", "2")
    assert done.returncode == 0, done.stderr
    kept = json.loads((folder / "out" / "readouts-unfinished.json").read_text())["measured"]
    assert set(kept) == {f"{name} {seed}" for name in READOUTS for seed in (0, 1)}
    assert "tag:" not in command(folder, "bert", "--seeds", "2").stderr  # nothing is trained again
    assert not list((folder / "out").glob("tagger-*"))
    result = json.loads((folder / "out" / "readouts.json").read_text())
    rows = {row["readout"]: row for row in result["rows"]}
    assert list(rows) == list(READOUTS)
    assert result["metric"] == "accuracy"
    for name, row in rows.items():
        assert row["width"] == (64 if name == "concat-last-4" else 16)
        assert row["seeds"] == 2
        cells = [kept[f"{name} {seed}"] for seed in (0, 1)]
        right, words = (sum(sum(cell[side]) for cell in cells) for side in ("part", "whole"))
        assert row["score"]["mean"] == pytest.approx(right / words)
        assert row["score"]["low"] <= row["score"]["mean"] <= row["score"]["high"]
        one, other = (sum(cell["part"]) / sum(cell["whole"]) for cell in cells)
        assert row["spread"] == pytest.approx(abs(one - other) / 2**0.5)
        assert (row["against_last"] is None) == (name == "last")
        assert f"\n{name} " in done.stdout
    assert rows["first"]["score"]["mean"] > 0.8  # a word's embedding tells its part of speech


def test_what_a_model_does_not_allow_is_left_out(folder: Path) -> None:
    write_encoder(folder, "lstm", num_layers=3)
    done = command(folder, "lstm", "--seeds", "1", "--readouts", "last,sum,mix", "--sentences", "20")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("left out: the readout") == 2
    assert "20 sentences to learn from" in done.stdout
    assert [row["readout"] for row in json.loads((folder / "out" / "readouts.json").read_text())["rows"]] == ["last"]
