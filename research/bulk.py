"""Bulk prediction that survives: `python research/bulk.py` (extra `[ray]`), about ten minutes on two processors.

200,000 numbered sentences in eight files are classified by a linear model with `textgraft predict FOLDER --out FOLDER`:

1. by the local engine, without interruption: the reference;
2. by the local engine, killed (SIGKILL) at half of the blocks, then resumed;
3. by the Ray engine on a cluster of two nodes, of which one is killed at half of the blocks;
4. by the Ray engine, its driver killed (SIGKILL) at half of the blocks, then resumed on what is left of the cluster.

For each: seconds, blocks that were done twice, ids that are missing or there more than once, files that differ from
the reference by a byte, and the memory of the largest process in the first and the second half. The table is printed,
the numbers are in research/results/bulk.json. Exits with 1 if an id is missing or double, or a file differs.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import psutil

HERE = Path(__file__).parent
DATA = HERE.parents[1] / "shared" / "data" / "sentence-polarity"
FILES = 8
TRAINING = 2000


@dataclass
class Outcome:
    """What one way of doing it came to."""

    name: str
    seconds: float = 0.0
    seconds_after: float = 0.0
    blocks_before: int = 0
    done_twice: int = 0
    missing: int = 0
    double: int = 0
    different: int = 0
    peaks: list[list[float]] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """True if a row is missing or double, or differs."""
        return bool(self.missing or self.double or self.different)

    def memory(self) -> str:
        """Memory of the largest process in both halves, in megabytes."""
        halves = (self.peaks[: len(self.peaks) // 2], self.peaks[len(self.peaks) // 2 :])
        return " → ".join(f"{max((peak for _, peak in half), default=0):,.0f}" for half in halves)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=200_000)
    parser.add_argument("--block-rows", type=int, default=4096)
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of rt-polarity.pos and .neg")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="bulk-") as name:
        outcomes = measured(Path(name), options)
    results = [asdict(outcome) for outcome in outcomes]
    (HERE / "results").mkdir(exist_ok=True)
    (HERE / "results" / "bulk.json").write_text(json.dumps({"texts": options.texts, "runs": results}, indent=1) + "\n")
    if options.json:
        print(json.dumps([{k: v for k, v in result.items() if k != "peaks"} for result in results]))
    else:
        show(outcomes, options.texts)
    sys.exit(any(outcome.failed for outcome in outcomes))


def measured(folder: Path, options: argparse.Namespace) -> list[Outcome]:
    """Make the files and the model, and run all four ways."""
    sentences = labelled_sentences(options.data)
    write_sources(folder / "texts", [text for text, _ in sentences[TRAINING:]], options.texts)
    train(folder / "model", sentences[:TRAINING])
    common = ["predict", folder / "model", folder / "texts", "--block-rows", str(options.block_rows)]
    common += ["--format", "parquet", "--threads", "1"]
    blocks = -(-options.texts // FILES // options.block_rows) * FILES
    reference = folder / "reference"
    outcomes = [watched("local", [*common, "--out", reference])]
    outcomes.append(killed_and_resumed("local, killed at half", common, folder / "killed", blocks))
    with cluster() as (address, kill_a_node):
        ray = [*common, "--engine", "ray", "--address", address]
        out = folder / "node"
        outcomes.append(watched("ray, a node killed at half", [*ray, "--out", out], at=(out, blocks // 2, kill_a_node)))
        outcomes.append(killed_and_resumed("ray, driver killed at half", ray, folder / "driver", blocks))
    for outcome, out in zip(outcomes, ("reference", "killed", "node", "driver"), strict=True):
        check(outcome, folder / out, reference, options.texts)
    return outcomes


def labelled_sentences(data: Path) -> list[tuple[str, str]]:
    """Sentences of both classes in turns."""
    of = {label: (data / f"rt-polarity.{label}").read_text("latin-1").splitlines() for label in ("pos", "neg")}
    return [(text.strip(), label) for pair in zip(*of.values(), strict=True) for text, label in zip(pair, of)]


def write_sources(folder: Path, sentences: list[str], count: int) -> None:
    """Write `count` numbered texts into CSV and Parquet files; every thousandth text is empty."""
    folder.mkdir()
    size = -(-count // FILES)
    for number in range(FILES):
        ids = range(number * size, min(count, (number + 1) * size))
        rows = [(i, f"{i} {sentences[i % len(sentences)]}" if i % 1000 else "") for i in ids]
        path = folder / f"part-{number}.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("id", "text"), *rows])
        if number % 2:
            duckdb.sql(f"COPY (FROM read_csv('{path}', header = true, types = {{'id': 'VARCHAR', 'text': 'VARCHAR'}})) "
                       f"TO '{path.with_suffix('.parquet')}' (FORMAT parquet)")  # fmt: skip
            path.unlink()


def train(out: Path, rows: list[tuple[str, str]]) -> None:
    """Train a linear classifier."""
    source = out.with_suffix(".csv")
    with source.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    command([sys.executable, "-m", "textgraft", "finetune", source, "--out", out, "--method", "linear", "--quiet"])


def command(arguments: list[Any]) -> None:
    subprocess.run(list(map(str, arguments)), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def watched(
    name: str, arguments: list[Any], *, at: tuple[Path, int, Callable[[subprocess.Popen[bytes]], None]] | None = None
) -> Outcome:
    """Run a command, with the memory of its and Ray's processes five times a second.

    Args:
        name: Of the outcome.
        arguments: Of textgraft.
        at: A folder, a number of blocks in it, and what happens when they are there.
    """
    outcome, began, pending, before = Outcome(name), time.monotonic(), at, dict[str, int]()
    environment = os.environ | {"OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    program = [sys.executable, "-m", "textgraft", *map(str, arguments)]
    with subprocess.Popen(program, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        while process.poll() is None:
            outcome.peaks.append([round(time.monotonic() - began, 1), largest(process.pid)])
            if pending is not None and len(blocks_in(pending[0])) >= pending[1]:
                pending[2](process)
                before, pending = blocks_in(pending[0]), None
            time.sleep(0.2)
        assert process.stderr is not None
        said = process.stderr.read().decode()
    if process.returncode not in (0, -signal.SIGKILL):
        raise SystemExit(f"{name}: {said}")
    if at is not None and pending is not None:
        raise SystemExit(f"{name}: it was over before anything was killed")
    outcome.seconds = time.monotonic() - began
    if at is not None:
        outcome.blocks_before, outcome.done_twice = len(before), changed(before, at[0])
    return outcome


def killed_and_resumed(name: str, common: list[Any], out: Path, blocks: int) -> Outcome:
    """Kill the command at half of the blocks, and run it again."""
    arguments = [*common, "--out", out]
    outcome = watched(name, arguments, at=(out, blocks // 2, lambda process: process.kill()))
    time.sleep(5)  # what the killed driver had begun on other machines has ended by now
    before = blocks_in(out)
    again = watched(name, arguments)
    outcome.seconds_after, outcome.done_twice = again.seconds, changed(before, out)
    outcome.peaks += again.peaks
    return outcome


def changed(before: dict[str, int], out: Path) -> int:
    """How many files were written again, or are gone."""
    after = blocks_in(out)
    return sum(after.get(name) != time_of for name, time_of in before.items())


def blocks_in(out: Path) -> dict[str, int]:
    """The files of results, with the times of their writing."""
    return {path.name: path.stat().st_mtime_ns for path in out.glob("*.parquet") if path.exists()}


def largest(pid: int) -> float:
    """Memory in megabytes of the largest of a process and of all that Ray has started."""
    sizes = [0.0]
    for process in psutil.process_iter(["name", "memory_info", "pid", "cmdline"]):
        with suppress(psutil.Error):
            words = process.info["cmdline"] or [""]
            if process.info["pid"] == pid or words[0].startswith("ray::"):
                memory = process.info["memory_info"]
                sizes.append((memory.rss - memory.shared) / 2**20)
    return round(max(sizes), 1)


@contextmanager
def cluster() -> Iterator[tuple[str, Callable[..., None]]]:
    """A cluster of two nodes with a processor each, and a head that only keeps the books; a function that kills one."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    of = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    nodes = [of.add_node(num_cpus=1) for _ in range(2)]
    try:
        yield of.address, lambda process: of.remove_node(nodes.pop(), allow_graceful=False)
    finally:
        of.shutdown()


def check(outcome: Outcome, out: Path, reference: Path, texts: int) -> None:
    """Count ids that are missing or double, and files that differ from the reference."""
    ids = Counter(int(i) for (i,) in duckdb.sql(f"SELECT id FROM read_parquet('{out}/*.parquet')").fetchall())
    outcome.missing = sum(i not in ids for i in range(texts))
    outcome.double = sum(count > 1 for count in ids.values())
    files = {path.name for path in reference.glob("*.parquet")} | {path.name for path in out.glob("*.parquet")}
    outcome.different = sum(not same(out / name, reference / name) for name in files)


def same(path: Path, other: Path) -> bool:
    return path.exists() and other.exists() and path.read_bytes() == other.read_bytes()


def show(outcomes: list[Outcome], texts: int) -> None:
    print(f"{texts:,} texts\n")
    print(
        "| run | seconds | after the kill | blocks before | done twice | missing | double | differ | MB, both halves |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for o in outcomes:
        numbers = (o.blocks_before, o.done_twice, o.missing, o.double, o.different)
        cells = [o.name, f"{o.seconds:.0f}", f"{o.seconds_after:.0f}", *map(str, numbers), o.memory()]
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
