"""The arithmetic of bench/transformer_xl.py, and that it still runs."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from textgraft.data.streams.shards import Corpus
from textgraft.text.tokenizer import Tokenizer

V = 17


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    path = Path(__file__).parents[2] / "bench" / "transformer_xl.py"
    spec = importlib.util.spec_from_file_location("bench_transformer_xl", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclass looks there for its types
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("layers", [1, 2])
def test_segments_with_memory_see_what_a_sliding_window_sees(bench: ModuleType, layers: int) -> None:
    """One layer of `same_length` sees just the window's tokens, however it is read; a second one reaches beyond."""
    length, settings = 6, {"hidden_dim": 8, "num_layers": layers, "same_length": True, "memory_length": 6}
    model = bench.model_of("transformer_xl", V, **settings).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    ids = torch.randint(V, (2, 4 * length + 1))
    found, _ = bench.in_segments(model, ids, length)
    slid = bench.by_sliding(model, ids, length)
    assert found.shape == (2, 24)
    assert slid.shape == (2, 19)
    assert torch.allclose(found[:, length - 1 :], slid, rtol=1e-4, atol=1e-5) == (layers == 1)
    first, memory = bench.in_segments(model, ids, length, steps=1)
    rest, _ = bench.in_segments(model, ids[:, length:], length, memory)
    torch.testing.assert_close(torch.cat([first, rest], dim=1), found, rtol=1e-4, atol=1e-5)


def test_what_is_made_of_the_times(bench: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ratios and their growth; milliseconds a token, of one segment and of one window, from the same processor time."""
    speeds = [bench.Speed(n, with_memory=2.0, sliding=2.0 * 3 * n**1.5) for n in (100, 200, 400)]
    assert [s.ratio for s in speeds] == pytest.approx([3 * n**1.5 for n in (100, 200, 400)])
    assert bench.slope(speeds) == pytest.approx(1.5)
    ticks = iter([0.0, 9.0, 10.0, 12.0, 20.0, 21.0])
    monkeypatch.setattr(bench.time, "process_time", lambda: next(ticks))
    assert bench.seconds_of(lambda: None, 3) == 2.0
    monkeypatch.setattr(bench, "seconds_of", lambda work, rounds: work() is not None and 0.06)
    measured = bench.speed(5, rows=2, rounds=1, vocab_size=V)
    assert measured.with_memory == pytest.approx(1000 * 0.06 / 10)
    assert measured.sliding == pytest.approx(1000 * 0.06 / 2)
    text = bench.table({0: 50.0, 32: 40.0}, speeds[:1])
    assert "0.800" in text
    assert f"{3 * 100**1.5:.0f}" in text


def test_perplexity_with_and_without_a_memory_of_the_same_weights(bench: ModuleType) -> None:
    """Without one it is that of windows by themselves; the model is as it was afterwards."""
    tokenizer = Tokenizer.train(["a b c d e f g h i j k"], kind="word", min_frequency=1)
    ids = np.random.default_rng(0).integers(tokenizer.vocab_size, size=801)
    held = Corpus.from_ids([ids], tokenizer, words=800, characters=1600)
    model = bench.model_of("transformer_xl", tokenizer.vocab_size, hidden_dim=8, memory_length=7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    found = bench.perplexities(model, held, (0, 5), window=20)
    assert model.encoder.config.eval_memory_length is None
    assert model.encoder.config.memory_length == 7
    text = torch.from_numpy(held.read(0, held.num_tokens))
    lane = (len(text) - 1) // 8
    contiguous_streams = torch.stack([text[r * lane : (r + 1) * lane + 1] for r in range(8)]).long()
    parts = [bench.in_segments(model, contiguous_streams[:, i : i + 21], 20)[0] for i in range(0, lane, 20)]
    assert found[0] == pytest.approx(math.exp(-float(torch.cat(parts, dim=1).mean())), rel=1e-5)
    assert abs(found[5] - found[0]) > 1e-3


@pytest.mark.slow
def test_it_runs(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--lengths", "8,16", "--rounds", "1", "--seconds", "2", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["transformer_xl.py", *arguments])
    bench.main()
    results = json.loads((tmp_path / "transformer-xl.json").read_text("utf-8"))
    assert [row["length"] for row in results["speed"]] == [8, 16]
    assert set(results["perplexity"]) == {"0", "32", "64", "128"}
    assert (tmp_path / "transformer-xl.svg").read_bytes().startswith(b"<?xml")
    assert "looks at" in capsys.readouterr().out
