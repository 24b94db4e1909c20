"""bench/taggers.py at a tiny size: every row is measured once, and the same command goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from made_up_questions import write_recipe
from made_up_tags import NOUNS, write_encoder, write_sentences

BENCH = Path(__file__).parents[2] / "bench" / "taggers.py"


def test_rows_and_going_on(tmp_path: Path) -> None:
    for name, count, seed in (("train", 30, 1), ("test", 8, 2)):
        write_sentences(tmp_path / f"{name}.conll", count, seed, names=True)
    bert, words, recipe = write_encoder(tmp_path, "bert"), tmp_path / "words.txt", write_recipe(tmp_path, 2)
    words.write_text("".join(f"{noun} {i} {i % 3} 1\n" for i, noun in enumerate(NOUNS)))
    stacks = [str(words), f"{words},{bert}", str(bert)]  # the last is fine-tuned too, which is another row
    command = [sys.executable, str(BENCH), str(tmp_path / "train.conll"), "--test", str(tmp_path / "test.conll")]
    command += [part for stack in stacks for part in ("--stack", stack)] + ["--finetuned", str(bert)]
    command += ["--recipe", str(recipe), "--finetuned-recipe", str(recipe), "--precision", "fp32", "--seeds", "1"]
    command += ["--out", str(tmp_path / "out")]
    found = []
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stderr
        found.append(json.loads((tmp_path / "out" / "taggers.json").read_text()))
    assert found[0] == found[1]  # minutes and all: nothing was measured twice
    assert [row["tagger"] for row in found[0]["rows"]] == [*stacks, f"{bert}, fine-tuned"]
    measured = json.loads((tmp_path / "out" / "taggers-unfinished.json").read_text())["measured"]
    assert len(measured) == 4  # the encoder frozen and fine-tuned: two trainings
    assert all(row["sentences_per_second"] > 0 and row["minutes"] > 0 for row in found[0]["rows"])
