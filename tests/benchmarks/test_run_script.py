"""`make bench` at a tiny size, so that it still runs when someone needs it, and the arithmetic behind its figures."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from textgraft.data.batch import Batch
from textgraft.encoders.awd_lstm import AWDLSTM, AWDLSTMConfig
from textgraft.heads.language_model import LanguageModelConfig, LanguageModelHead
from textgraft.models.model import Model
from textgraft.nn.cpu import matmul
from textgraft.nn.cpu.precision import computing_in

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def script_imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The benchmark's modules are scripts beside each other, importable only from their own folder."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(BENCHMARKS)):
            del sys.modules[name]


@pytest.mark.slow
def test_smoke_run_measures_all_of_ours_without_peers(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "lm.py"), "--smoke", "--threads", "1", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["lm-smoke.json"]
    rows = json.loads((tmp_path / "lm-smoke.json").read_text("utf-8"))["rows"]
    assert len(rows) == 4
    for name, row in rows.items():
        assert name in done.stdout
        assert 0 < row["tokens_per_second"]["low"] <= row["tokens_per_second"]["median"]
        assert {"encoder forward", "output layer", "backward", "optimizer"} < set(row["parts"])
        assert sum(row["parts"].values()) == pytest.approx(1, abs=0.01)
        assert all(0 <= share < 1 for share in row["parts"].values())
    learned = rows["textgraft auto, sampled softmax"]["equal_time"]
    assert 3 < learned["valid_loss"] < 5  # uniform guesses have log 200 = 5.3


@pytest.mark.slow
def test_every_row_beside_the_peers_runs(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "run.py"), "--smoke", "--threads", "1", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "peers-smoke.json").read_text("utf-8"))["rows"]
    from rows import ROWS

    assert list(rows) == list(ROWS)
    for name, row in rows.items():
        for measure, found in row["measures"].items():
            assert found["ours"]["median"] > 0, (name, measure)
            assert "ratio" not in found  # nobody to compare with
            assert f"{name}: {measure}" in done.stdout
    assert 0 < rows["finetune"]["measures"]["speed"]["ours"]["share_of_peak"] < 1
    assert rows["few_labels"]["quality"]["ours"] > 0.6


def _side(cost: float, **said: object) -> dict[str, object]:
    return {"speed": {"units": 10, "wall": cost, "cpu": cost}} | said


def test_ratios_are_taken_round_by_round_and_the_first_does_not_count() -> None:
    from race import Measure, Row, race, verdict

    row = Row("title", "them", None, {"speed": Measure("texts/s", 1.5, 3)})
    costs = {"peer": [99, 2, 8, 4], "ours": [1, 1, 2, 1]}
    found = race(row, ["peer", "ours"], lambda side, n: _side(costs[side][n]), 3, "wall")["measures"]["speed"]
    assert found["ratio"] == {"median": 4, "low": 2, "high": 4}
    assert found["ours"] == {"median": 10, "low": 5, "high": 10}
    assert verdict(found, counts=True) == "goal"
    assert verdict(found | {"ratio": {"median": 1.6}}, counts=True) == "floor"
    assert verdict(found | {"ratio": {"median": 1.4}}, counts=True) == "missed"
    assert verdict(found, counts=False) == "worse quality"


@pytest.mark.parametrize(
    ("better", "theirs", "ours", "counts"),
    [
        ("lower", [1.0, 1.1, 1.2], [1.0, 1.1, 1.2], True),
        ("lower", [1.0, 1.1, 1.2], [1.3, 1.4, 1.5], False),
        ("lower", [1.0, 1.1, 1.2], [1.1, 1.0, 1.3], True),  # within the rounds' noise
        ("higher", [0.8, 0.8, 0.8], [0.9, 0.9, 0.9], True),
        ("higher", [0.8, 0.8, 0.8], [0.7, 0.7, 0.7], False),
    ],
)
def test_a_row_of_worse_quality_does_not_count(
    better: Any, theirs: list[float], ours: list[float], counts: bool
) -> None:
    from race import Measure, Quality, Row, race

    row = Row("title", "them", None, {"speed": Measure("texts/s", 1.5, 3)}, Quality("score", better))
    said = {"peer": [0.0, *theirs], "ours": [0.0, *ours]}
    found = race(row, ["peer", "ours"], lambda side, n: _side(1, quality=said[side][n]), 3, "wall")
    assert found["counts"] is counts


def test_answers_that_differ_do_not_count() -> None:
    from race import Measure, Quality, Row, race

    row = Row("title", "them", None, {"speed": Measure("texts/s", 1.5, 3)}, Quality("agreement", "same", 0.7))
    said = {"peer": ["a", "b", "c", "d"], "ours": ["a", "b", "c", "x"]}
    found = race(row, ["peer", "ours"], lambda side, n: _side(1, answers=said[side]), 1, "wall")
    assert found["quality"]["share"] == 0.75
    assert found["counts"]
    said["ours"] = ["a", "b", "y", "x"]
    assert not race(row, ["peer", "ours"], lambda side, n: _side(1, answers=said[side]), 1, "wall")["counts"]


def test_a_run_that_was_cut_short_measures_only_what_is_missing(tmp_path: Path) -> None:
    from record import Record

    path = tmp_path / "results" / "row.json"
    first = Record(path, {"rounds": 2})
    assert first.once("round 1", lambda: {"ours": 1.5}) == {"ours": 1.5}
    again = Record(path, {"rounds": 2})
    assert again.once("round 1", lambda: pytest.fail("measured twice")) == {"ours": 1.5}
    assert again.once("round 2", lambda: 2) == 2
    assert Record(path, {"rounds": 3}).measured == {}


def test_a_nested_call_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    import timing

    class Work:
        def outer(self) -> int:
            return self.inner() + 1

        def inner(self) -> int:
            clock[0] += 3
            return 1

    clock = [0.0]
    monkeypatch.setattr(timing.time, "process_time", lambda: clock[0])
    parts = timing.Parts()
    parts.wrap(Work, "outer", "outside")
    parts.wrap(Work, "inner", "inside")
    assert Work().outer() == 2
    assert Work().inner() == 1
    assert parts.shares(12) == {"outside": 0.25, "inside": 0.25, "other": 0.5}


@pytest.mark.slow
def test_flop_per_token_is_what_a_training_step_multiplies(monkeypatch: pytest.MonkeyPatch) -> None:
    from timing import flop_per_token

    monkeypatch.setattr(matmul, "MIN_STEPS", 100)  # torch does not count products with laid out weights

    shape = {"vocab_size": 50, "embedding_dim": 8, "hidden_dim": 12, "num_layers": 3}
    encoder = AWDLSTM(AWDLSTMConfig(50, 8, 12, 3))
    model = Model(encoder, LanguageModelHead(LanguageModelConfig(50, 8), encoder.embedding.weight))
    ids = torch.randint(0, 50, (4, 10))
    batch = Batch(ids=ids, mask=torch.ones_like(ids, dtype=torch.bool), targets=ids)
    with FlopCounterMode(display=False) as counter, computing_in("bf16"):
        model.loss(batch).total.backward()
    assert counter.get_total_flops() == flop_per_token(shape, columns=50) * ids.numel()
