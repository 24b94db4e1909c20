"""Commands under torchrun: the same files, one output, and every process gone at the end."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from programs import Desk, Result, call, environment, snapshot, unchanged

import textgraft

pytestmark = pytest.mark.slow
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone"]


def torchrun(*arguments: str | Path, size: int = 2, options: tuple[str, ...] = ()) -> Result:
    command = [*TORCHRUN, f"--nproc-per-node={size}", *options, "-m", "textgraft", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, env=environment(), timeout=300)
    return Result(done.returncode, done.stdout.decode(), done.stderr.decode())


def test_finetune_prints_one_result_and_writes_one_folder(desk: Desk, tmp_path: Path) -> None:
    options = ["--model", desk.lm, "--recipe", desk / "quick.toml", "--no-baselines", "--quiet", "--json"]
    done = torchrun("finetune", desk / "train.csv", "--test", desk / "test.csv", "--out", tmp_path / "made", *options)
    assert done.code == 0, done.err
    assert done.json()
    assert [path.name for path in tmp_path.iterdir()] == ["made"]
    assert len(list(textgraft.load(tmp_path / "made").predict(["a fine film", "a dull film"]))) == 2


def test_folds_and_seeds_are_divided_and_end_with_the_weights_of_one_process(desk: Desk, tmp_path: Path) -> None:
    options = ["--model", desk.lm, "--recipe", desk / "quick.toml", "--no-baselines", "--quiet", "--seeds", "2"]
    done = torchrun("finetune", desk / "train.csv", "--out", tmp_path / "two", *options)
    assert done.code == 0, done.err
    assert call("finetune", desk / "train.csv", "--out", tmp_path / "one", *options).code == 0
    one, two = (snapshot(tmp_path / name) for name in ("one", "two"))
    assert one["model.safetensors"] == two["model.safetensors"]
    assert one.keys() == two.keys()


def test_pretraining_opens_the_shards_on_each_process(desk: Desk, tiny_recipe: Path, tmp_path: Path) -> None:
    options = ["--recipe", tiny_recipe, "--quiet", "--json"]
    done = torchrun("pretrain", desk / "pool.txt", "--out", tmp_path / "lm", *options)
    assert done.code == 0, done.err
    assert "[rank" not in done.err, done.err  # torch's own warnings, of each process
    run = json.loads((tmp_path / "lm" / "run.json").read_text())
    one = subprocess.run(
        [sys.executable, "-m", "textgraft", "pretrain", desk / "pool.txt", "--out", tmp_path / "one", *options],
        env=environment(),
        check=True,
        capture_output=True,
    )
    alone = json.loads((tmp_path / "one" / "run.json").read_text())
    assert one.returncode == 0
    assert run["tokens_seen"] == alone["tokens_seen"]
    assert run["held_out"]["after"]["loss"] == pytest.approx(alone["held_out"]["after"]["loss"], rel=0.05)


def test_a_mistake_is_said_once_and_nothing_is_written(desk: Desk, tmp_path: Path) -> None:
    with unchanged(tmp_path):
        done = torchrun("finetune", tmp_path / "missing.csv", "--out", tmp_path / "made")
    assert done.code
    assert done.err.count("textgraft: error:") == 1
    assert "missing.csv" in done.err
    assert not done.out


def test_a_command_that_does_not_train_runs_once(desk: Desk) -> None:
    done = torchrun("predict", desk.classifier, "--input-text", "a fine film")
    assert done.code == 0, done.err
    assert done.out.count("\n") == 1


def test_more_processes_than_streams_of_text(desk: Desk, tiny_recipe: Path, tmp_path: Path) -> None:
    text = tmp_path / "few.txt"
    text.write_text("\n".join(["a film of few words"] * 12))
    done = torchrun("pretrain", text, "--recipe", tiny_recipe, "--out", tmp_path / "lm", "--quiet", size=3)
    assert done.code
    assert "are too few for 3 processes" in done.err
    assert not (tmp_path / "lm").exists()


def test_a_lost_process_is_started_again_and_the_run_goes_on(desk: Desk, tiny_recipe: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "long.toml"
    recipe.write_text(re.sub(r"epochs = \d+", "epochs = 40", tiny_recipe.read_text()))
    command = [*TORCHRUN, "--nproc-per-node=2", "--max-restarts=1", "-m", "textgraft", "pretrain", desk / "pool.txt"]
    command += ["--recipe", recipe, "--out", tmp_path / "lm", "--quiet", "--json"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(list(map(str, command)), env=environment(), **pipes) as running:
        deadline = time.monotonic() + 200
        while not list((tmp_path / "lm.run").glob("train/index.json")):
            assert running.poll() is None, running.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(2)
        workers = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
        os.kill(int(workers[-1]), signal.SIGKILL)
        _, err = running.communicate(timeout=200)
    assert running.returncode == 0, err.decode()
    assert (tmp_path / "lm" / "run.json").exists()


def test_without_torchrun_the_processes_save_and_end(desk: Desk, tiny_recipe: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "long.toml"
    recipe.write_text(re.sub(r"epochs = \d+", "epochs = 2000", tiny_recipe.read_text()))
    command = [*TORCHRUN, "--nproc-per-node=2", "-m", "textgraft", "pretrain", desk / "pool.txt", "--recipe", recipe]
    with subprocess.Popen(
        list(map(str, [*command, "--out", tmp_path / "lm", "--quiet"])), env=environment(), stderr=subprocess.DEVNULL
    ) as running:
        deadline = time.monotonic() + 100
        while not list((tmp_path / "lm.run").glob("train/index.json")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(3)
        workers = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
        running.kill()
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{worker}").exists() for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert (tmp_path / "lm.run" / "checkpoint.safetensors").exists()
    assert not (tmp_path / "lm").exists()


def test_a_closed_pipe_ends_process_0_alone(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [*TORCHRUN, "--nproc-per-node=2", "-m", "textgraft", "models", "--json"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, env=environment(), timeout=120)
    os.close(write)
    err = done.stderr.decode()
    assert "textgraft: error" not in err
    assert re.findall(r"rank +: (\d)", err) == ["0"], err
    assert re.findall(r"exitcode +: (-?\d+)", err) == ["1"], err


def test_a_port_in_use_is_said_with_its_number(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        variables = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        command = [sys.executable, "-m", "textgraft", "models"]
        done = subprocess.run(command, capture_output=True, env={**environment(), **variables}, timeout=60)
    assert done.returncode == 2
    assert f"127.0.0.1:{port}" in done.stderr.decode()
    assert "cannot connect" in done.stderr.decode()
