"""How demo/data was made from the movie review polarity dataset: python demo/make_data.py movie_reviews.tar.xz."""

from __future__ import annotations

import csv
import io
import lzma
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

OUT = Path(__file__).parent / "data"
LABELLED, TEST = 100, 500


def main(archive: str) -> None:
    """100 labelled reviews and 500 test reviews, half of each class; the other 1,400 without their labels."""
    with tarfile.open(archive) as tar:
        members = sorted((m for m in tar.getmembers() if m.name.endswith(".txt")), key=lambda m: m.name)
        reviews = []
        for member in members:
            file = tar.extractfile(member)
            assert file is not None
            reviews.append((Path(member.name).parent.name, " ".join(file.read().decode("ascii", "replace").split())))
    order = np.random.default_rng(0).permutation(len(reviews))
    by_class = {label: [reviews[i] for i in order if reviews[i][0] == label] for label in ("neg", "pos")}
    half, third = LABELLED // 2, (LABELLED + TEST) // 2
    write_csv("train.csv.xz", alternating(c[:half] for c in by_class.values()))
    write_csv("test.csv.xz", alternating(c[half:third] for c in by_class.values()))
    rest = alternating(c[third:] for c in by_class.values())
    (OUT / "pool.txt.xz").write_bytes(lzma.compress("".join(f"{text}\n" for _, text in rest).encode(), preset=9))


def alternating(classes: Iterable[list[tuple[str, str]]]) -> list[tuple[str, str]]:
    """One review of each class in turn."""
    return [review for pair in zip(*classes, strict=True) for review in pair]


def write_csv(name: str, rows: list[tuple[str, str]]) -> None:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["label", "text"])
    writer.writerows(rows)
    (OUT / name).write_bytes(lzma.compress(buffer.getvalue().encode(), preset=9))


if __name__ == "__main__":
    main(sys.argv[1])
