"""`textgraft adapt --parallel`: two sides, and what is said where they are not named so."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from programs import Program
from tiny_xlm import checkpoint, pairs

pytest.importorskip("transformers", minversion="5")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--parallel", "en=a.txt"], "1 sides of 1 languages"),
        (["--parallel", "en=a.txt", "--parallel", "en=b.txt"], "2 sides of 1 languages"),
        (["--parallel", "a.txt", "--parallel", "de=b.txt"], "not of the form LANGUAGE=FILES"),
        (["a.txt", "--parallel", "en=a.txt", "--parallel", "de=b.txt"], "takes a model, and no pool"),
        ([], "no text was named"),
    ],
)
def test_the_command_says_what_to_name(arguments: list[str], message: str, run: Program, tmp_path: Path) -> None:
    result = run("adapt", *arguments, "--model", "m", "--out", str(tmp_path / "out"))
    assert result.code != 0
    assert message in " ".join(result.err.split())


@pytest.mark.slow
def test_the_command_adapts_to_two_files(run: Program, tmp_path: Path) -> None:
    corpus = pairs(60)
    for name, texts in (("en.txt", corpus.source), ("de.txt", corpus.target)):
        (tmp_path / name).write_text("\n".join(texts) + "\n")
    sides = ["--parallel", f"en={tmp_path / 'en.txt'}", "--parallel", f"de={tmp_path / 'de.txt'}"]
    result = run(
        "adapt", *sides, "--model", f"hf:{checkpoint(tmp_path / 'm')}", "--out", str(tmp_path / "out"), "--json"
    )
    assert result.code == 0, result.err
    assert np.isfinite(json.loads(result.out)["held_out"]["after"]["loss"])
