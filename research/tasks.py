"""Public task data as files that textgraft reads: pairs with labels or numbers, and choices.

    python research/tasks.py DATA OUT

docs/standard-tasks.md has the commands that use them.

DATA holds rte, sick, stsb and copa as they were published. OUT gets NAME-train and NAME-test of each: random parts of
the training sets, the same ones each time, as large as LABELS says, and of SICK's tests the first part drawn. Both
forms of a mirrored COPA question go to the same side.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TypeVar
from xml.etree import ElementTree

import numpy as np

from textgraft.core.files import write_atomically

LABELS = {"rte": 800, "sick-entailment": 1000, "sick-relatedness": 1000, "stsb": 1500, "copa": 750}
SICK_TESTS = 1000
Row = TypeVar("Row")
Pairs = list[tuple[str, str, str]]
"""Two texts and their label."""


def tabbed(path: Path, columns: tuple[int, int, int]) -> Pairs:
    """These columns of a file parted by tabs, which has no quotes."""
    rows = [line.split("\t") for line in path.read_text("utf-8").splitlines()]
    first, second, label = columns
    return [(row[first], row[second], row[label]) for row in rows if len(row) > max(columns)]


def rte(folder: Path) -> tuple[Pairs, Pairs]:
    """Does the second sentence follow? The published development part is the test."""
    train, test = (tabbed(folder / "rte" / f"{part}.tsv", (1, 2, 3))[1:] for part in ("train", "dev"))
    return train, test


def sick(folder: Path, label: int) -> tuple[Pairs, Pairs]:
    names = ("SICK_train.txt", "SICK_test_annotated.txt")
    train, test = (tabbed(folder / "sick" / name, (1, 2, label)) for name in names)
    return train, drawn(test, SICK_TESTS)


def stsb(folder: Path) -> tuple[Pairs, Pairs]:
    """How alike are two sentences, from 0 to 5?"""
    parts = []
    for part in ("train", "test"):
        with (folder / "stsb" / f"stsb-en-{part}.csv").open(encoding="utf-8", newline="") as file:
            parts.append([(a, b, label) for a, b, label in csv.reader(file)])
    return parts[0], parts[1]


def copa(folder: Path) -> list[list[dict[str, str]]]:
    """Which of two is the cause, or the effect? Questions with their mirrored forms, the same two choices each."""
    items = ElementTree.parse(folder / "copa" / "balanced-copa-dev-all.xml").getroot().iter("item")
    found = []
    for item in items:
        texts = {child.tag: (child.text or "").strip() for child in item}
        question = f"What was the {item.attrib['asks-for']}?"
        row = {"premise": texts["p"], "question": question, "choice1": texts["a1"], "choice2": texts["a2"]}
        found.append((int(item.attrib["id"]) % 1000, {**row, "answer": item.attrib["most-plausible-alternative"]}))
    found.sort(key=lambda pair: pair[0])
    return [[row for _, row in group] for _, group in groupby(found, key=lambda pair: pair[0])]


def drawn(rows: Sequence[Row], count: int) -> list[Row]:
    """So many of them at random, the same ones each time, in their order."""
    order = np.random.default_rng(0).permutation(len(rows))[:count]
    return [rows[i] for i in sorted(order)]


def write_pairs(name: str, train: Pairs, test: Pairs, out: Path) -> None:
    for part, rows in (("train", drawn(train, LABELS[name])), ("test", test)):
        file = io.StringIO()
        csv.writer(file, lineterminator="\n").writerows([("first", "second", "label"), *rows])
        write_atomically(out / f"{name}-{part}.csv", file.getvalue().encode())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the folder that holds rte, sick, stsb and copa")
    parser.add_argument("out", type=Path, help="folder for the files")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    write_pairs("rte", *rte(arguments.data), arguments.out)
    write_pairs("sick-entailment", *sick(arguments.data, 4), arguments.out)
    write_pairs("sick-relatedness", *sick(arguments.data, 3), arguments.out)
    write_pairs("stsb", *stsb(arguments.data), arguments.out)
    together = copa(arguments.data)
    learned = {id(group) for group in drawn(together, LABELS["copa"] // 2)}
    for part in ("train", "test"):
        rows = [row for group in together if (id(group) in learned) == (part == "train") for row in group]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        write_atomically(arguments.out / f"copa-{part}.jsonl", lines.encode())


if __name__ == "__main__":
    main()
