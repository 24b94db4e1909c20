"""`make bench` at a tiny size, so that it still runs when someone needs it, and the arithmetic behind its figures."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from textgraft.data.batch import Batch
from textgraft.encoders.awd_lstm import AWDLSTM, AWDLSTMConfig
from textgraft.heads.language_model import LanguageModelConfig, LanguageModelHead
from textgraft.models.model import Model
from textgraft.nn.cpu import matmul
from textgraft.nn.cpu.precision import computing_in

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture(autouse=True)
def bench_modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The benchmark's modules are scripts beside each other, importable only from their own folder."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(BENCH))
    yield
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(BENCH)):
            del sys.modules[name]


@pytest.mark.slow
def test_smoke_run_measures_all_of_ours_without_peers(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCH / "lm.py"), "--smoke", "--threads", "1", "--out", str(tmp_path)]
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
    command = [sys.executable, str(BENCH / "run.py"), "--smoke", "--threads", "1", "--out", str(tmp_path)]
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


def test_figures_of_a_model_that_ships(tiny_lm: Path, tmp_path: Path) -> None:
    from made_up_reviews import reviews

    text = tmp_path / "held.txt"
    text.write_text("\n".join(reviews(60, 5)[0]))
    out = tmp_path / "figures.json"
    command = [sys.executable, str(BENCH / "models.py"), str(tiny_lm), "--text", str(text), "--json", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(out.read_text())
    losses = {way: scores["loss"] for way, scores in row["ways"].items()}
    exact, *others = losses.values()
    assert len(set(losses.values())) == len(losses)  # every way of rounding was really taken
    assert all(other == pytest.approx(exact, rel=0.02) for other in others)
    assert row["tokens_a_second_auto"] > row["texts_a_second_auto"] > 0
    assert done.stdout.count(f"| {tiny_lm.name}") == 1 + len(losses)


def test_int8_is_off_by_half_a_step_at_most() -> None:
    from models import int8

    torch.manual_seed(0)
    weight = torch.randn(5, 40)
    weight[3] = 0
    step = weight.abs().amax(1, keepdim=True) / 127
    assert ((int8(weight) - weight).abs() <= step / 2 + 1e-7).all()
    assert (int8(weight)[3] == 0).all()


def test_the_power_law_that_made_the_points_is_found() -> None:
    from budget import power_law

    points = [(t, 2.0 + 30 * t**-0.2) for t in (1e4, 1e5, 1e6, 1e7)]
    assert power_law(points) == pytest.approx((30, 0.2), rel=1e-6)


@pytest.mark.slow
def test_pretraining_at_equal_time(tmp_path: Path) -> None:
    from made_up_reviews import reviews

    for name, count in (("train", 3_000), ("valid", 200)):
        (tmp_path / f"{name}.txt").write_text("\n".join(reviews(count, len(name))[0]))
    command = [sys.executable, str(BENCH / "budget.py"), str(tmp_path / "train.txt"), "--out", str(tmp_path / "out")]
    command += ["--valid", str(tmp_path / "valid.txt"), "--minutes", "0.05", "--probe", "1"]
    command += ["--sides", "recipe,qrnn,gpt"]
    first = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert first.returncode == 0, first.stderr
    rows = json.loads((tmp_path / "out" / "sides-0.05.json").read_text())
    assert rows.keys() == {"recipe", "qrnn", "gpt"}
    for row in rows.values():
        assert 0 < row["loss"] < 10
        assert row["tokens"] == pytest.approx(row["speed"] * 3, rel=0.5)
    again = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert again.stdout.splitlines()[-2:] == first.stdout.splitlines()[-2:]  # measured once
    own = [*command[:-1], "recipe", "--vocabulary", "60"]
    subprocess.run(own, check=True, timeout=200)
    kept = json.loads((tmp_path / "out" / "60-subwords" / "sides-0.05.json").read_text())
    assert kept["recipe"]["parameters"] < rows["recipe"]["parameters"] - 9_000 * 320  # its table is small


@pytest.mark.slow
def test_what_a_token_costs(tmp_path: Path) -> None:
    networks = "bert,gpt alternating"
    command = [sys.executable, str(BENCH / "cost.py"), "--networks", networks, "--lengths", "8,40", "--rows", "1,2"]
    done = subprocess.run(
        [*command, "--steps", "1", "--out", str(tmp_path)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    cells = json.loads((tmp_path / "cost.json").read_text("utf-8"))["cells"]
    assert [(cell["rows"], cell["length"]) for cell in cells] == [(1, 8), (1, 40), (2, 40)] * 2
    assert all(cell["train_us"] > cell["read_us"] > 0 for cell in cells)
    assert all(cell["train_mb"] > 30 for cell in cells)  # the gradients of ten million weights
    assert "| gpt alternating | 2 x 40 |" in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cost.json", "cost.svg"]


def test_what_hours_buy(tmp_path: Path) -> None:
    from hours import FLOOR, History, table

    minutes = np.array([10.0, 20.0, 30.0, 40.0, 80.0])
    history = History("lm", minutes, FLOOR + 2.5 * minutes**-0.2, (100.0, 1.7))
    assert history.law() == pytest.approx((2.5, 0.2))
    came = f"{FLOOR + 2.5 * 80**-0.2:.3f}"
    row = table([history]).splitlines()[-1]
    assert f"| 40 | 80 | {came} | {came} | 1.700 after 100 | {FLOOR + 2.5 * 600**-0.2:.3f} |" in row
    drawn = tmp_path / "hours.svg"
    command = [sys.executable, str(BENCH / "hours.py"), "--plot", str(drawn)]
    kept = str(BENCH / "kept" / "hours" / "en-gpt-small.json")
    done = subprocess.run([*command, kept], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "| en-gpt-small | 0.8 + 1.68 t^-0.144 | 28 | 56 | 1.766 | 1.750 | 1.585 after 75 | 1.471 |" in done.stdout
    assert drawn.exists()
    few = subprocess.run([*command, "th-ulmfit"], capture_output=True, text=True, check=False)
    assert few.returncode == 2
    assert "th-ulmfit: too few measurements" in few.stderr
    missing = subprocess.run([*command, "missing.json"], capture_output=True, text=True, check=False)
    assert missing.returncode == 2
    assert "missing.json: there is no such file" in missing.stderr
    damaged = tmp_path / "damaged.json"
    damaged.write_text('{"history": [')
    cut = subprocess.run([*command, str(damaged)], capture_output=True, text=True, check=False)
    assert cut.returncode == 2
    assert "damaged.json: this is no record of a run" in cut.stderr


@pytest.mark.slow
def test_how_costs_grow(tmp_path: Path) -> None:
    script = str(BENCH / "scaling.py")
    done = subprocess.run(
        [sys.executable, script, "--tiny", "--out", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    points = json.loads((tmp_path / "scaling.json").read_text("utf-8"))["points"]
    assert {point["curve"] for point in points} == {"labels", "classes", "corpus", "vocabulary", "threads"}
    assert all(point["seconds"] > 0 for point in points)
    assert len([line for line in done.stdout.splitlines() if line.startswith("| vocabulary |")]) == 8
    assert {path.name for path in tmp_path.iterdir()} == {"scaling.json", "scaling.svg"}
    wrong = subprocess.run([sys.executable, script, "speed"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert "unknown curve 'speed'; there are labels, classes" in wrong.stderr
