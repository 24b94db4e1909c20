"""benchmarks/vectors.py at a tiny size, so that it still runs when someone needs it."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from made_up_reviews import reviews

BENCHMARKS = Path(__file__).parents[2] / "benchmarks" / "vectors.py"


@pytest.mark.slow
def test_both_sides_and_their_scores(tmp_path: Path) -> None:
    pytest.importorskip("gensim", reason="the benchmark compares with gensim")
    text = tmp_path / "pool.txt"
    text.write_text("\n".join(reviews(300)[0]))
    words = sorted({word for review in reviews(300)[0] for word in review.lower().split() if word.isalpha()})
    (tmp_path / "pairs.txt").write_text("".join(f"{a} {b} {i}\n" for i, (a, b) in enumerate(pairwise(words))))
    (tmp_path / "questions.txt").write_text(": some\n" + " ".join(words[:4]) + "\n")
    command = [sys.executable, str(BENCHMARKS), str(text), "--words", "1000", "--dimensions", "5", "--min-count", "1"]
    command += ["--epochs", "1", "--similarity", str(tmp_path / "pairs.txt"), "--json", str(tmp_path / "out.json")]
    command += ["--analogies", str(tmp_path / "questions.txt")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "out.json").read_text())
    assert 1_000 <= found["settings"]["words"] < 2_000
    assert list(found["rows"]) == ["textgraft skipgram", "textgraft glove", "gensim Word2Vec, skip-gram"]
    sizes = {row["vocabulary"] for row in found["rows"].values()}
    assert len(sizes) == 1
    for row in found["rows"].values():
        assert row["words_per_second"] > 0
        assert row["pairs"]["pairs"] > 5
        assert row["analogies"]["total"]["questions"] == 1
