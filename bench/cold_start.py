"""A label for one text, from nothing: `python bench/cold_start.py MODEL GRAPH --text "…"`, a minute.

MODEL is a classifier's folder and GRAPH what `textgraft export` made of it. Each is asked in turn in a new process, the
graph's without torch, and all else that it does without, to be had: wall and processor seconds, and the most memory.
Beside that how large what they import is when installed, without textgraft itself. Table on the screen;
cold-start.json in bench/results/.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import re
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from record import write_json

HERE = Path(__file__).parent
ABSENT = ("torch", "scipy", "sklearn", "duckdb", "pandas", "safetensors", "matplotlib", "onnx", "transformers")
ASKED = """
import json, sys

for name in sys.argv[1].split(","):
    sys.modules[name] = None
from textgraft.tasks.classification.predictor import load_classifier

(prediction,) = load_classifier(sys.argv[2]).predict([sys.argv[3]])
used = {name.partition(".")[0] for name, module in sys.modules.items() if module is not None}
print(json.dumps({"label": prediction.label, "confidence": prediction.confidence, "used": sorted(used)}))
"""


@dataclass(frozen=True)
class Cold:
    """Medians of seconds and megabytes, what was answered, and how many megabytes what it imported is on disk."""

    wall: float
    processor: float
    memory_mb: float
    label: str
    confidence: float
    installed_mb: float


def asked(folder: Path, text: str, absent: tuple[str, ...]) -> tuple[float, float, float, dict[str, object]]:
    """One process: wall and processor seconds, its most memory in MB, what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    command = [sys.executable, "-c", ASKED, ",".join(absent) or "-", str(folder), text]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        printed = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{folder} gave no answer.")
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, used, usage.ru_maxrss / 1024, json.loads(printed)


def installed_mb(modules: list[str]) -> float:
    """The size of the distributions that these modules come from, and of all that those require."""
    owners = importlib.metadata.packages_distributions()
    todo = {owner for module in modules for owner in owners.get(module, ())}
    done: set[str] = set()
    total = 0
    while todo:
        name = todo.pop()
        if name.lower() in done or name.lower() == "textgraft":
            continue
        done.add(name.lower())
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        paths = [Path(str(file.locate())) for file in found.files or ()]
        total += sum(path.stat().st_size for path in paths if path.is_file())
        needed = [line for line in found.requires or () if "extra" not in line]
        todo |= {match.group() for line in needed if (match := re.match(r"[\w.-]+", line))}
    return total / 2**20


def cold(runs: list[tuple[float, float, float, dict]]) -> Cold:
    """One side's medians."""
    said = runs[0][3]
    times = [median(run[i] for run in runs) for i in range(3)]
    return Cold(*times, said["label"], said["confidence"], installed_mb(said["used"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a classifier's folder")
    parser.add_argument("graph", type=Path, help="what textgraft export made of it")
    parser.add_argument("--text", default="A film that I would see again tomorrow.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    arguments = parser.parse_args()
    sides = {"model": (arguments.model, ()), "graph": (arguments.graph, ABSENT)}
    runs: dict[str, list] = {name: [] for name in sides}
    for number in range(arguments.rounds + 1):  # the first warms the disk's cache
        for name, (folder, absent) in sides.items():
            run = asked(folder, arguments.text, absent)
            runs[name] += [run] if number else []
    rows = {name: cold(found) for name, found in runs.items()}
    for name, row in rows.items():
        cost = f"{row.wall:.2f} s wall, {row.processor:.2f} s processor, {row.memory_mb:,.0f} MB of memory"
        print(f"{name}: {row.label} {row.confidence:.3f}; {cost}, {row.installed_mb:,.0f} MB installed")
    write_json(arguments.out / "cold-start.json", {name: asdict(row) for name, row in rows.items()})


if __name__ == "__main__":
    main()
