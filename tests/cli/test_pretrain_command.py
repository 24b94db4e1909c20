"""pretrain and adapt from the command line: devices, patience, and sources that are no plain files."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import torch
from programs import Desk, Program

from textgraft.models.loading import load_network


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there(desk: Desk, tmp_path: Path, run: Program) -> None:
    recipe = ["--recipe", desk / "backward.toml"]
    commands = [
        ["pretrain", desk / "pool.txt", *recipe],
        ["adapt", desk / "pool.txt", "--model", desk.lm],
    ]
    for command in commands:
        run(*command, "--out", tmp_path / "lm", "--device", "cuda").mistake("no device 'cuda'", "--device cpu")
        run(*command, "--out", tmp_path / "lm", "--device", "gpu").mistake("unknown device 'gpu'", "auto, cpu, cuda")
    assert not list(tmp_path.iterdir())


def test_the_processor_by_name_is_what_auto_takes_without_a_gpu(desk: Desk, tmp_path: Path, run: Program) -> None:
    out = tmp_path / "lm"
    recipe = ["--recipe", desk / "backward.toml", "--tokens", "500", "--quiet"]
    done = run("pretrain", desk / "pool.txt", "--out", out, *recipe, "--device", "cpu")
    assert (done.code, done.err) == (0, "")
    found = load_network(out).run
    assert found["machine"]["device"] == "cpu"
    assert found["stopped_by"] == "tokens"
    assert "device" not in found["settings"]


def test_patience_and_a_compressed_folder(desk: Desk, tmp_path: Path, run: Program) -> None:
    recipe = tmp_path / "hasty.toml"
    text = (desk / "backward.toml").read_text()
    recipe.write_text(text.replace("validate_every = 100", "validate_every = 2").replace("lr = 0.01", "lr = 2.0"))
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt.gz").write_bytes(gzip.compress((desk / "pool.txt").read_bytes()))
    done = run("pretrain", tmp_path / "texts", "--out", tmp_path / "lm", "--recipe", recipe, "--patience", "1")
    assert done.code == 0, done
    assert "stopped after 1 validation without an improvement" in " ".join(done.err.split())
    assert load_network(tmp_path / "lm").run["stopped_by"] == "patience"
    run("pretrain", tmp_path / "texts", "--out", tmp_path / "x", "--recipe", recipe, "--patience", "0").mistake(
        "--patience", "equal to 1"
    )


def test_a_data_set_without_the_library_or_off_this_machine(desk: Desk, tmp_path: Path, run: Program) -> None:
    command = ["--out", tmp_path / "lm", "--recipe", desk / "backward.toml"]
    run("pretrain", "hf:nobody/nothing", *command).mistake("hf:nobody/nothing", "to_parquet")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_model_says_by_which_recipe_it_is_trained_further(desk: Desk, tmp_path: Path, run: Program) -> None:
    recipe, text = tmp_path / "own.toml", (desk / "backward.toml").read_text()
    recipe.write_text(text.replace("validate_every", 'recommended_recipe = "frozzen"\nvalidate_every'))
    command = ["pretrain", desk / "pool.txt", "--tokens", "500", "--quiet", "--recipe", recipe]
    run(*command, "--out", tmp_path / "lm").mistake("unknown recipe 'frozzen'", "frozen", str(recipe))
    recipe.write_text(text.replace("validate_every", 'recommended_recipe = "frozen"\nvalidate_every'))
    assert run(*command, "--out", tmp_path / "lm").code == 0
    model = ["--model", tmp_path / "lm", "--quiet"]
    run("adapt", desk / "pool.txt", *model, "--out", tmp_path / "x").mistake("no phases for adapting", "frozen")
    assert load_network(tmp_path / "lm").recommended_recipe("default") == "frozen"
    assert load_network(tmp_path / "lm").recommended_recipe("full") == "full"
    named = ["--recipe", "ulmfit", "--minutes", "0.01"]
    assert run("adapt", desk / "pool.txt", *model, "--out", tmp_path / "a", *named).code == 0
    assert load_network(tmp_path / "a").recommended_recipe("default") == "frozen"


def test_no_pretraining_is_replaced(desk: Desk, tmp_path: Path, run: Program) -> None:
    """And --overwrite, which it does not have, is not what it says to take."""
    command = ["pretrain", desk / "pool.txt", "--recipe", desk / "backward.toml", "--tokens", "500", "--quiet"]
    assert run(*command, "--out", tmp_path / "lm").code == 0
    again = run(*command, "--out", tmp_path / "lm")
    again.mistake("exists already", "Name another.", str(tmp_path / "lm"))
    assert "--overwrite" not in again.err
