"""How demo/data/topics was made from the data set banking77: python demo/make_topics.py FOLDER.

FOLDER has its train.csv and test.csv. A topic is a word in the name of an intent; intents with none or several of the
four words in their names are left out.
"""

from __future__ import annotations

import csv
import io
import lzma
import sys
from pathlib import Path

OUT = Path(__file__).parent / "data" / "topics"
TOPICS = {"card": "card", "cash": "cash", "top-up": "top", "transfer": "transfer"}
"""What the name of an intent has in it, for each topic: "top" is in top_up and in topping_up."""
Row = tuple[str, str]
"""A label and a text."""


def main(folder: str) -> None:
    """The test questions are of test.csv; no text occurs twice."""
    train = _rows(Path(folder) / "train.csv", seen=set())
    test = _rows(Path(folder) / "test.csv", seen={text.lower() for _, text in train})
    OUT.mkdir(parents=True, exist_ok=True)
    _write(OUT / "train.csv.xz", train)
    _write(OUT / "test.csv.xz", test)


def topic_of(intent: str) -> str | None:
    """The topic of an intent; None for one with none or several."""
    found = [topic for topic, part in TOPICS.items() if part in intent]
    return found[0] if len(found) == 1 else None


def _rows(path: Path, *, seen: set[str]) -> list[Row]:
    """The questions on TOPICS, white space folded, without those of `seen` and repeated ones."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = [(topic_of(row["category"]), " ".join(row["text"].split())) for row in csv.DictReader(file)]
    seen, kept = set(seen), []
    for topic, text in rows:
        if topic is not None and text.lower() not in seen:
            seen.add(text.lower())
            kept.append((topic, text))
    return kept


def _write(path: Path, rows: list[Row]) -> None:
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["label", "text"])
    writer.writerows(rows)
    path.write_bytes(lzma.compress(table.getvalue().encode("utf-8"), preset=9))


if __name__ == "__main__":
    main(sys.argv[1])
