"""Training on several processes against one: largest difference of losses, and throughput.

    python research/processes.py parity --steps 200 --sizes 2 4
    python research/processes.py crashes --runs 20 [--sharding full]
    python research/processes.py throughput --recipe en-gpt-small --seconds 30 [--rows 128]

The trainings of `parity` and `crashes` are those of tests/helpers/several_processes.py, without dropout but in
`crashes`. Differences are relative to the loss.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PROGRAM = ROOT / "tests" / "helpers" / "several_processes.py"
FAMILIES = ("lstm", "bert", "gpt", "transformer_xl", "bridge", "thawing-lstm", "thawing-bert", "contrastive-bert")
ROUNDS = 3
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}


def command(size: int, *arguments: str | Path, program: Path = PROGRAM) -> list[str]:
    """A command line for so many processes."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={size}"] if size > 1 else []
    return [sys.executable, *launcher, str(program), *map(str, arguments)]


def trained(size: int, out: Path, *arguments: str) -> dict[str, Any]:
    """The result of a training on so many processes."""
    line = command(size, arguments[0], out, *arguments[1:])
    done = subprocess.run(line, env=ENVIRONMENT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(line)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    result: dict[str, Any] = json.loads((out / "result.json").read_text("utf-8"))
    return result


def parity(steps: int, sizes: list[int], trainings: Sequence[str], lr: float | None, double: bool) -> None:
    """Print the largest differences as a Markdown table."""
    print("| training | processes | steps | largest difference of losses | of the final score |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name in trainings:
            options = ["--steps", str(steps), *(["--lr", str(lr)] if lr else []), *["--double"] * double]
            one = trained(1, Path(folder) / name, name, *options)
            ways = [(size, "none") for size in sizes] + [(2, "full")]
            for size, sharding in ways:
                out = Path(folder) / f"{name} {size} {sharding}"
                other = trained(size, out, name, *options, "--sharding", sharding)
                pairs = [(a[2], b[2]) for a, b in zip(one["losses"], other["losses"], strict=True)]
                worst = max(abs(a - b) / max(abs(a), 1e-3) for a, b in pairs)
                final = abs(one["final"]["loss"] - other["final"]["loss"]) / abs(one["final"]["loss"])
                way = f"{size}, in parts" if sharding == "full" else str(size)
                print(f"| {name} | {way} | {len(pairs)} | {worst:.1e} | {final:.1e} |", flush=True)


def crashes(runs: int, sharding: str) -> None:
    """Kill one process, or all, at random moments; run again; compare the weights with those of an undisturbed run."""
    options = ("--steps", "150", "--dropout", "0.1", "--save-seconds", "0", "--sharding", sharding)
    equal = 0
    with tempfile.TemporaryDirectory() as folder:
        whole = trained(2, Path(folder) / "whole", "lstm", *options)
        for seed in range(runs):
            out, generator = Path(folder) / str(seed), random.Random(seed)
            line = command(2, "lstm", out, *options)
            with subprocess.Popen(line, env=ENVIRONMENT, stderr=subprocess.DEVNULL) as running:
                _wait_for_steps(out, generator.randrange(1, 140))
                workers = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text("utf-8").split()
                victims = workers if seed % 2 else [generator.choice(workers)]
                for worker in victims:
                    os.kill(int(worker), signal.SIGKILL)
                began = time.monotonic()
                running.wait()
            again = trained(2, out, "lstm", *options)
            same = again["weights"] == whole["weights"]
            equal += same
            seconds = time.monotonic() - began
            print(
                f"run {seed}: {len(victims)} killed, equal weights: {same}, ended again after {seconds:.0f} s",
                flush=True,
            )
    print(f"{equal} of {runs} runs end with the weights of the undisturbed one")


def _wait_for_steps(out: Path, steps: int) -> None:
    losses = out / "losses.jsonl"
    while not losses.exists() or losses.read_text("utf-8").count("\n") < steps:
        time.sleep(0.01)


def throughput(recipe: str, seconds: float, rows: int | None) -> None:
    """Tokens a second of a pretraining recipe on one and on two processes of one thread each.

    Two trainings at the same time that know nothing of each other show what the machine's cores allow. Medians of
    ROUNDS rounds, in which the three take turns.
    """
    options = ["worker", "--recipe", recipe, "--seconds", str(seconds), *(["--rows", str(rows)] if rows else [])]
    ways = {"one": (1, 1), "apart": (1, 2), "joined": (2, 1)}
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, (size, times) in ways.items():
            found[name].append(sum(_rates(command(size, *options, program=Path(__file__)), times)))
    one, apart, joined = (statistics.median(found[name]) for name in ways)
    print(f"{recipe}, {rows or 'its own'} rows a batch: one process {one:,.0f} tokens/s")
    print(f"two trainings at the same time, together {apart / one:.2f} times as many")
    print(f"one training on two processes {joined / one:.2f} times as many", flush=True)


def _rates(line: Sequence[str], times: int) -> list[float]:
    """What a command prints last, run so many times at once."""
    running = [subprocess.Popen(line, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) for _ in range(times)]
    return [json.loads(one.communicate()[0].strip().splitlines()[-1]) for one in running]


def worker(recipe: str, seconds: float, rows: int | None) -> None:
    """Train for some seconds, and print the tokens a second on process 0."""
    import torch
    from scale import random_run

    from textgraft.core import processes
    from textgraft.core.launched import launched
    from textgraft.training.followers import Leader, dismiss, follow, leading

    torch.set_num_threads(1)
    joined = processes.start() if launched() else processes.ALONE
    if not joined.first:
        follow(joined)
        processes.leave(0)
    run = random_run(recipe, rows)
    with tempfile.TemporaryDirectory() as folder, leading(run, Path(folder) / "none") as leader:
        assert isinstance(leader, Leader)
        steps = leader.steps(lambda count: None)
        next(steps)
        began, before = time.perf_counter(), run.progress.tokens
        while time.perf_counter() - began < seconds:
            next(steps)
        rate = (run.progress.tokens - before) / (time.perf_counter() - began)
    dismiss()
    print(json.dumps(rate), flush=True)
    if joined.several:
        processes.leave(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("parity", "crashes", "throughput", "worker"))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--trainings", nargs="+", choices=FAMILIES, default=FAMILIES)
    parser.add_argument("--lr", type=float, help="of the language models, in place of 0.005")
    parser.add_argument("--double", action="store_true", help="parity in float64")
    parser.add_argument("--sizes", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--sharding", choices=("none", "full"), default="none", help="of the trainings of `crashes`")
    parser.add_argument("--recipe", default="en-gpt-small")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--rows", type=int, help="of a batch of `throughput`, in place of the recipe's")
    asked = parser.parse_args()
    if asked.verb == "parity":
        parity(asked.steps, asked.sizes, asked.trainings, asked.lr, asked.double)
    elif asked.verb == "crashes":
        crashes(asked.runs, asked.sharding)
    elif asked.verb == "throughput":
        throughput(asked.recipe, asked.seconds, asked.rows)
    else:
        worker(asked.recipe, asked.seconds, asked.rows)


if __name__ == "__main__":
    main()
