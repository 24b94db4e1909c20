"""How demo/data/questions was made from the data set banking77: python demo/make_questions.py FOLDER.

FOLDER has its train.csv and test.csv. Ten intents that are easily confused, all about transfers: ten labelled questions
of each, 1,000 further ones without their labels, and thirty test questions of each.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

OUT = Path(__file__).parent / "data" / "questions"
INTENTS = (
    "balance_not_updated_after_bank_transfer",
    "beneficiary_not_allowed",
    "cancel_transfer",
    "declined_transfer",
    "failed_transfer",
    "pending_transfer",
    "transfer_fee_charged",
    "transfer_into_account",
    "transfer_not_received_by_recipient",
    "transfer_timing",
)
LABELLED, POOL, TEST, SEED = 10, 1_000, 30, 0
"""Labelled questions of an intent, questions without labels, test questions of an intent; the seed of the sampling."""
Row = tuple[str, str]
"""A label and a text."""


def main(folder: str) -> None:
    """The labelled questions and the pool are of train.csv, the test questions of test.csv; no text occurs twice."""
    rng = np.random.default_rng(SEED)
    train = _shuffled(Path(folder) / "train.csv", rng, seen=set())
    chosen = [_of(intent, train)[:LABELLED] for intent in INTENTS]
    labelled = {row for rows in chosen for row in rows}
    pool = [row for row in train if row not in labelled][:POOL]
    test = _shuffled(Path(folder) / "test.csv", rng, seen={text.lower() for _, text in train})
    OUT.mkdir(parents=True, exist_ok=True)
    _write(OUT / "train.csv", _alternating(chosen))
    _write(OUT / "test.csv", _alternating([_of(intent, test)[:TEST] for intent in INTENTS]))
    (OUT / "pool.txt").write_text("".join(f"{text}\n" for _, text in pool), encoding="utf-8")


def _shuffled(path: Path, rng: np.random.Generator, *, seen: set[str]) -> list[Row]:
    """The questions of INTENTS in random order, white space folded, without those of `seen` and repeated ones."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = [(row["category"], " ".join(row["text"].split())) for row in csv.DictReader(file)]
    wanted = [row for row in rows if row[0] in INTENTS]
    seen, kept = set(seen), []
    for i in rng.permutation(len(wanted)):
        if wanted[i][1].lower() not in seen:
            seen.add(wanted[i][1].lower())
            kept.append(wanted[i])
    return kept


def _of(intent: str, rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row[0] == intent]


def _alternating(intents: Sequence[Sequence[Row]]) -> list[Row]:
    """One question of each intent in turn."""
    return [row for rows in zip(*intents, strict=True) for row in rows]


def _write(path: Path, rows: Sequence[Row]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["label", "text"])
        writer.writerows(rows)


if __name__ == "__main__":
    main(sys.argv[1])
