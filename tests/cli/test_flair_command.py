"""Flair's files from the command line: converted here and back, and opened by nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from programs import Program, spawn

from textgraft.models.loading import load_network

FILES = Path(__file__).parents[1] / "parity" / "flair"


def test_converts_flairs_file_and_embeds_with_it(tmp_path: Path) -> None:
    done = spawn("convert", f"flair:{FILES / 'old.pt'}", "--out", tmp_path / "lm", "--json")
    assert done.code == 0, done
    assert done.json() == {"out": str(tmp_path / "lm"), "format": "textgraft"}
    (tmp_path / "texts.txt").write_text("Paris is a town.\nA\n")
    embedded = spawn("embed", tmp_path / "lm", tmp_path / "texts.txt", "--out", tmp_path / "vectors.npz")
    assert embedded.code == 0, embedded
    assert np.load(tmp_path / "vectors.npz")["vectors"].shape == (2, 5)


def test_and_back(tmp_path: Path, run: Program) -> None:
    assert run("convert", f"flair:{FILES / 'forward.pt'}", "--out", tmp_path / "lm", "--half").code == 0
    done = run("convert", tmp_path / "lm", "--to", "flair", "--out", tmp_path / "lm.pt", "--json")
    assert done.json()["format"] == "flair"
    again = run("convert", f"flair:{tmp_path / 'lm.pt'}", "--out", tmp_path / "again", "--overwrite")
    assert (again.code, again.err) == (0, "")
    ours, theirs = (load_network(tmp_path / name).model.values() for name in ("lm", "again"))
    assert all(torch.equal(value, theirs[name]) for name, value in ours.items())


def test_mistakes(tmp_path: Path, run: Program) -> None:
    name, out = f"flair:{FILES / 'forward.pt'}", tmp_path / "out"
    (tmp_path / "texts.txt").write_text("a\n")
    embedded = run("embed", name, tmp_path / "texts.txt", "--out", tmp_path / "v.npz")
    embedded.mistake("only convert opens", "textgraft convert flair:")
    run("convert", f"flair:{tmp_path / 'texts.txt'}", "--out", out).mistake("texts.txt: damaged", "LanguageModel.save")
    run("convert", f"flair:{tmp_path}", "--out", out).mistake("missing or unreadable")
    run("convert", "en-ulmfit", "--to", "flair", "--out", out).mistake("only a character language model")
    run("convert", name, "--to", "fastai", "--out", out).mistake("unknown format 'fastai'", "flair")
    run("convert", name, "--to", "flair", "--out", tmp_path).mistake("this is a folder")
    assert not out.exists()
    assert "flair:FILE" in " ".join(run("convert", "--help").out.split())
