"""Peak memory of `textgraft check`, `predict` and `embed` on CSV files of growing size.

    python benchmarks/large_csv.py CLASSIFIER VECTORS texts.jsonl … --gigabytes 0.03,2

A row has its number, up to 1,500 characters of a text, and one of two labels; the texts are read again from the
beginning where they do not suffice. Each command runs in a process of its own, and its peak resident memory is what the
system says of it.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from textgraft.data.tables import rows

CHARACTERS = 1500


def pieces(sources: Sequence[Path]) -> Iterator[str]:
    """Pieces of the texts, over and over."""
    for source in itertools.cycle(sources):
        for _, row in rows(source):
            for start in range(0, len(row["text"]), CHARACTERS):
                yield row["text"][start : start + CHARACTERS]


def write(target: Path, sources: Sequence[Path], size: float) -> int:
    """Write rows of text until the file has `size` bytes; their number."""
    with target.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "text", "label"])
        for number, text in enumerate(pieces(sources), 1):
            writer.writerow([number, f"{number} {text}", "long" if number % 3 else "short"])
            if number % 100 == 0 and file.tell() >= size:
                return number
    raise AssertionError("the texts have no end")


def measure(*arguments: str | Path) -> tuple[float, float]:
    """Peak memory (MB) and processor time (s) of a command; ends this program if it fails."""
    command = [sys.executable, "-m", "textgraft", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed.")
    return used.ru_maxrss * 1024 / 1e6, used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("classifier", help="of `textgraft finetune`")
    parser.add_argument("vectors", help="a model of which `embed` takes vectors")
    parser.add_argument("texts", type=Path, nargs="+", help="JSON lines with a text each")
    parser.add_argument("--gigabytes", default="0.03,2")
    asked = parser.parse_args()
    print("| MB of CSV | rows | command | peak memory, MB | processor minutes |\n|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        table, out = Path(folder) / "rows.csv", Path(folder) / "out"
        for gigabytes in map(float, asked.gigabytes.split(",")):
            count = write(table, asked.texts, gigabytes * 1e9)
            size = f"{table.stat().st_size / 1e6:,.0f}"
            commands: dict[str, list[str | Path]] = {
                "check": ["check", table],
                "predict": ["predict", asked.classifier, table, "--keep", "none", "--out", out.with_suffix(".csv")],
                "embed": ["embed", asked.vectors, table, "--out", out.with_suffix(".npy")],
            }
            for name, command in commands.items():
                peak, seconds = measure(*command)
                print(f"| {size} | {count:,} | `{name}` | {peak:,.0f} | {seconds / 60:.1f} |", flush=True)
            for file in Path(folder).glob("out.*"):
                file.unlink()


if __name__ == "__main__":
    main()
