"""Pretraining on streamed text: the same weights after kill -9, no corpus on disk, and what it refuses."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
import torch
from made_up_reviews import reviews
from safetensors.torch import load_file

from textgraft.core.context import QUIET
from textgraft.core.errors import UserError
from textgraft.models.loading import load_network
from textgraft.tasks.language_modeling.pretrain import PretrainOptions, pretrain
from textgraft.tasks.language_modeling.streamed_text import StreamedText
from textgraft.training.loop import Run
from textgraft.training.settings import Settings

BLOCK, TOKENS = 1500, 7000
GPT = """
[model]
name = "gpt"
embedding_dim = 16
num_layers = 1
num_heads = 2
max_length = 35
"""
SECOND_PHASE = """
[[stage.phases]]
name = "further"
epochs = 0.7
lr = 0.005
"""
"""The first one ends within a block, and this one begins with the next."""


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("textgraft.data.streams.parallel_encoding.BATCH_CHARACTERS", 4000)


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five text files, and a folder of two Parquet files with a column `body` beside a file that is none."""
    folder = tmp_path_factory.mktemp("texts")
    for number in range(5):
        (folder / f"{number}.txt").write_text("\n".join(reviews(60, number)[0]))
    (folder / "tables").mkdir()
    (folder / "tables" / "_SUCCESS").write_text("")
    for number in range(2):
        table = pyarrow.table({"body": reviews(60, 10 + number)[0]})
        pyarrow.parquet.write_table(table, folder / "tables" / f"{number}.parquet", row_group_size=16)
    return folder


@pytest.fixture(scope="module")
def tokenizer(texts: Path, tiny_lm: Path) -> Path:
    """The folder of a model, whose tokenizer is used."""
    return tiny_lm


def streamed(texts: Path, **more: Any) -> StreamedText:
    sources = {"reviews": [texts / "*.txt"], "tables": f"file://{texts}/tables"}
    return StreamedText(sources, {"reviews": 0.7, "tables": 0.3}, "body", block_tokens=BLOCK, **more)


def options(recipe: Path, **settings: Any) -> PretrainOptions:
    return PretrainOptions(recipe=str(recipe), tokens=TOKENS, settings=Settings(precision="fp32", **settings))


def in_a_process(task: Callable[[], object]) -> int:
    process = multiprocessing.get_context("fork").Process(target=task)
    process.start()
    process.join(100)
    assert process.exitcode is not None
    return process.exitcode


@pytest.mark.parametrize("family", ["lstm", pytest.param("gpt", marks=pytest.mark.slow)])
def test_killed_and_resumed_it_ends_with_the_same_weights(
    family: str, texts: Path, tokenizer: Path, tiny_recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = tmp_path / "recipe.toml"
    text = tiny_recipe.read_text()
    start, end = text.index("[model]"), text.index("[head]")
    text = text if family == "lstm" else text[:start] + GPT + text[end:]
    recipe.write_text(text + SECOND_PHASE)
    out = {name: tmp_path / name for name in ("whole", "killed")}

    def task(name: str) -> None:
        torch.set_num_threads(1)
        settings = options(recipe, save_seconds=0)
        pretrain(streamed(texts), out[name], tokenizer=tokenizer, options=settings, context=QUIET)

    save, saves = Run.save, 0

    def fatal(run: Run, path: Path) -> None:
        nonlocal saves
        save(run, path)
        saves += 1
        if saves == 9:  # in another block each time
            os.kill(os.getpid(), signal.SIGKILL)

    task("whole")
    with monkeypatch.context() as patch:
        patch.setattr(Run, "save", fatal)
        assert in_a_process(lambda: task("killed")) == -signal.SIGKILL
        assert in_a_process(lambda: task("killed")) == -signal.SIGKILL
    left = {path.relative_to(tmp_path / "killed.run").as_posix() for path in (tmp_path / "killed.run").rglob("*.bin")}
    assert left == {"valid/tokens-00000.bin", "valid/starts-00000.bin"}  # of the corpus, only held-out text is on disk
    assert in_a_process(lambda: task("killed")) == 0
    found, expected = (load_file(path / "model.safetensors") for path in out.values())
    assert all(torch.equal(found[name], value) for name, value in expected.items())
    runs = [load_network(path).run for path in out.values()]
    assert runs[0]["data"] == runs[1]["data"]
    assert runs[0]["tokens_seen"] == runs[1]["tokens_seen"] == pytest.approx(TOKENS, rel=0.05)
    facts = runs[0]["data"]["streamed"]
    assert facts["reviews"]["share"] == pytest.approx(0.7, abs=0.02)
    assert min(entry["epochs"] for entry in facts.values()) > 0


def test_a_new_tokenizer_and_held_out_text(texts: Path, tiny_recipe: Path, tmp_path: Path) -> None:
    source = StreamedText([texts / "0.txt", texts / "1.txt"], block_tokens=BLOCK)
    with pytest.warns(UserWarning, match="trained on the first 20,000 texts"):
        out = pretrain(source, tmp_path / "lm", valid=[texts / "2.txt"], options=options(tiny_recipe), context=QUIET)
    run = load_network(out).run
    assert run["stopped_by"] == "tokens"
    assert run["data"]["sources"] == ["0.txt", "1.txt"]
    assert run["data"]["block_tokens"] == BLOCK
    assert run["held_out"]["words"] == sum(len(line.split()) for line in (texts / "2.txt").read_text().splitlines())


def test_minutes_in_place_of_tokens(texts: Path, tokenizer: Path, tiny_recipe: Path, tmp_path: Path) -> None:
    plan = PretrainOptions(recipe=str(tiny_recipe), settings=Settings(minutes=0.01))
    out = pretrain(streamed(texts), tmp_path / "lm", tokenizer=tokenizer, options=plan, context=QUIET)
    assert load_network(out).run["stopped_by"] == "minutes"


def test_another_run_of_the_same_folder_is_told_apart(
    texts: Path, tokenizer: Path, tiny_recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("textgraft.tasks.language_modeling.pretrain.drive", stop)
    with pytest.raises(KeyboardInterrupt):
        pretrain(streamed(texts), tmp_path / "lm", tokenizer=tokenizer, options=options(tiny_recipe), context=QUIET)
    sources = {"reviews": [texts / "*.txt"], "tables": f"file://{texts}/tables"}
    other = StreamedText(sources, {"reviews": 0.6, "tables": 0.4}, "body", block_tokens=BLOCK)
    with pytest.raises(UserError, match=r"differs in: stream\.mixture"):
        pretrain(other, tmp_path / "lm", tokenizer=tokenizer, options=options(tiny_recipe), context=QUIET)


@pytest.mark.parametrize(
    ("recipe", "options", "part"),
    [
        ("tiny", PretrainOptions(), "say how many tokens to train on"),
        ("en-bert-small", PretrainOptions(tokens=1000), "next_sentence = false"),
    ],
)
def test_what_streamed_text_cannot_do(
    recipe: str, options: PretrainOptions, part: str, texts: Path, tiny_recipe: Path, tmp_path: Path
) -> None:
    plan = PretrainOptions(str(tiny_recipe) if recipe == "tiny" else recipe, options.tokens, options.settings)
    with pytest.raises(UserError) as raised:
        pretrain(streamed(texts), tmp_path / "lm", options=plan, context=QUIET)
    assert part.lower() in str(raised.value).lower()
    assert not list(tmp_path.iterdir())


def test_weights_need_names_and_blocks_some_tokens() -> None:
    with pytest.raises(UserError, match="weights without named sources"):
        StreamedText(["a.txt"], {"a": 1.0})
    with pytest.raises(UserError, match="block_tokens is 1"):
        StreamedText(["a.txt"], block_tokens=1)
    with pytest.raises(UserError, match="no source was named"):
        StreamedText({})
