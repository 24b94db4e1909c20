"""Adaptation to streamed text: the model of the texts read beforehand in kind, resumed after kill -9, and refusals."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from made_up_reviews import reviews
from safetensors.torch import load_file

from textgraft.core.context import QUIET
from textgraft.core.errors import UserError
from textgraft.models.loading import load_network
from textgraft.tasks.language_modeling.adapt_streamed import adapt_streamed
from textgraft.tasks.language_modeling.streamed_text import StreamedText
from textgraft.training.loop import Run
from textgraft.training.settings import Settings

TOKENS = 4000


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    for number in range(3):
        (folder / f"{number}.txt").write_text("\n".join(reviews(60, number)[0]))
    return folder


def streamed(texts: Path) -> StreamedText:
    return StreamedText([texts / "*.txt"], block_tokens=1500)


def adapted(texts: Path, model: Path, out: Path, **more: Any) -> Path:
    settings = Settings(precision="fp32", save_seconds=0)
    return adapt_streamed(
        streamed(texts), out, model=model, settings=settings, context=QUIET, **{"tokens": TOKENS, **more}
    )


def test_it_learns_the_domain(texts: Path, tiny_lm: Path, tmp_path: Path) -> None:
    run = load_network(adapted(texts, tiny_lm, tmp_path / "out")).run
    assert run["held_out"]["after"]["loss"] < run["held_out"]["before"]["loss"]
    assert run["tokens_seen"] == pytest.approx(TOKENS, rel=0.2)
    assert run["data"]["streamed"]["text"]["epochs"] >= 0
    assert (run["stage"], run["data"]["block_tokens"]) == ("adapt", 1500)
    assert not (tmp_path / "out.run").exists()


def test_killed_and_resumed_it_has_the_same_weights(
    texts: Path, tiny_lm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, saves = Run.save, 0

    def fatal(run: Run, path: Path) -> None:
        nonlocal saves
        save(run, path)
        saves += 1
        if saves == 5:
            os.kill(os.getpid(), signal.SIGKILL)

    def task() -> None:
        torch.set_num_threads(1)
        adapted(texts, tiny_lm, tmp_path / "killed")

    def in_a_process() -> int | None:
        process = multiprocessing.get_context("fork").Process(target=task)
        process.start()
        process.join(100)
        return process.exitcode

    with monkeypatch.context() as patch:
        patch.setattr(Run, "save", fatal)
        assert in_a_process() == -signal.SIGKILL
    left = {path.name for path in (tmp_path / "killed.run").rglob("*.bin")}
    assert left == {"tokens-00000.bin", "starts-00000.bin"}  # only the held-out text is on disk
    assert in_a_process() == 0
    adapted(texts, tiny_lm, tmp_path / "whole")
    found, expected = (load_file(tmp_path / name / "model.safetensors") for name in ("killed", "whole"))
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_held_out_text_can_be_named(texts: Path, tiny_lm: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("\n".join(reviews(40, 9)[0]))
    run = load_network(adapted(texts, tiny_lm, tmp_path / "out", valid=[other])).run
    assert run["held_out"]["tokens"] > 300


def test_refusals(texts: Path, tiny_lm: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no known end"):
        adapted(texts, tiny_lm, tmp_path / "out", tokens=None)
    with pytest.raises(UserError, match="the pattern matches no file"):
        adapted(texts / "nowhere", tiny_lm, tmp_path / "out")
    assert not list(tmp_path.iterdir())
