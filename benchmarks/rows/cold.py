"""From nothing, a new process each: an import, the help, a label for one line."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from given import Given
from race import Measure, Row, Turn

ROW = Row(
    title="cold starts",
    peer="transformers",
    environment="huggingface",
    measures={
        "import": Measure("s", 2, 5),
        "help": Measure("s", 2, 5),
        "predict": Measure("s", 2, 5),
        "memory": Measure("MB"),
    },
    means="imports where they are used; an exported graph takes a quarter of predict's (benchmarks/cold_start.py)",
)
LINE = "A film that I would see again tomorrow."
PIPELINE = (
    "import sys; from transformers import pipeline; print(pipeline('text-classification', sys.argv[1])(sys.argv[2]))"
)


def prepare(given: Given) -> dict[str, Any]:
    theirs = None if given.smoke else str(given.theirs)
    return {"model": str(given.classifier), "theirs": theirs}


def peer(task: dict[str, Any]) -> Callable[[int], Turn]:
    return _starts(
        {
            "import": ["-c", "import transformers"],
            "help": ["-m", "transformers.cli.transformers", "--help"],
            "predict": ["-c", PIPELINE, task["theirs"], LINE],
        }
    )


def ours(task: dict[str, Any]) -> Callable[[int], Turn]:
    predict = ["-m", "textgraft", "predict", task["model"], "--input-text", LINE]
    return _starts({"import": ["-c", "import textgraft"], "help": ["-m", "textgraft", "--help"], "predict": predict})


def _starts(commands: dict[str, list[str]]) -> Callable[[int], Turn]:
    def turn(number: int) -> Turn:
        found: Turn = {name: _started(command) for name, command in commands.items()}
        most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        return found | {"memory": {"units": 1, "wall": most, "cpu": most}}

    return turn


def _started(arguments: list[str]) -> dict[str, float]:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=Path.cwd())
    if done.returncode:
        sys.exit(f"{' '.join(arguments)} ended with {done.returncode}: {done.stderr[-500:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"units": 1, "wall": time.perf_counter() - began, "cpu": used}
