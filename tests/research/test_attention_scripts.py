"""research/attention_patterns.py and attention_family.py: what they count, train and draw."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from textgraft.data.parallel import Parallel
from textgraft.encoders.gpt import PATTERNS, GPTConfig

RESEARCH = Path(__file__).parents[2] / "research"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"research_{name}", RESEARCH / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclass looks there for its types
    spec.loader.exec_module(module)
    return module


def test_scores_of_a_token() -> None:
    patterns = script("attention_patterns")
    found = {
        name: patterns.scores_per_token(GPTConfig(9, num_layers=2, attention=name, window=64), 240) for name in PATTERNS
    }
    assert found == {
        "dense": 240,
        "banded": 240,
        "alternating": 240,
        "local": 64,
        "compressed": 80,
        "local-compressed": 72,
    }


def test_patterns_are_trained_and_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat and the dog ran .\n" * 60, "utf-8")
    options = ["--patterns", "dense,local-compressed", "--steps", "2", "--length", "12", "--window", "4", "--rows", "2"]
    options += ["--vocab-size", "60", "--held-out", "5", "--precision", "fp32", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["attention_patterns.py", str(text), "--valid", str(text), *options])
    script("attention_patterns").main()
    assert "| `local-compressed` |" in capsys.readouterr().out
    results = json.loads((tmp_path / "attention-patterns.json").read_text("utf-8"))["results"]
    assert [r["attention"] for r in results] == ["dense", "local-compressed"]
    assert all(np.isfinite(r["perplexity"]) for r in results)
    assert results[1]["parameters"] - results[0]["parameters"] == 2 * 2 * (3 * 128 * 128 + 128)


def test_the_picture_has_a_panel_for_each_variant_and_can_be_drawn_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = script("attention_family")
    pairs = Parallel.of(["a dog runs ."] * 60, ["ein hund läuft ."] * 60)
    weights, facts = family.aligned("additive:hard", pairs, 1.0, ("a dog runs .", "ein hund läuft ."), 0)
    assert set(np.unique(weights.weights)) == {0.0, 1.0}
    assert np.isfinite(facts["perplexity"])
    kept = tmp_path / "kept.json"
    kept.write_text(json.dumps({"weights": {"additive:hard": weights.to_dict(), "dot:global": weights.to_dict()}}))
    monkeypatch.setattr(sys, "argv", ["x", "--kept", str(kept), "--plot", str(tmp_path / "picture.svg")])
    family.main()
    drawn = (tmp_path / "picture.svg").read_text("utf-8")
    assert "additive, hard" in drawn
    assert "dot, global" in drawn
