"""How fast `textgraft embed` turns text into vectors, and in how much memory, for growing beginnings of one file.

    python benchmarks/embed.py en-vectors texts.jsonl --megabytes 10,100,1000 [--json out.json]

A file of one text a line or row, not compressed, is cut at the line that ends each size; `textgraft embed` runs on that
in a process of its own, and its peak resident memory is what the system says of it. A file that is too short is read
again from its beginning, so that any text will do.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


def beginning(source: Path, size: int, target: Path) -> None:
    """Lines of `source`, over and over, until `target` has `size` bytes."""
    written = 0
    with target.open("wb") as out:
        while written < size:
            with source.open("rb") as lines:
                for line in lines:
                    written += out.write(line)
                    if written >= size:
                        break


def measure(model: str, texts: Path, out: Path, more: list[str]) -> dict[str, Any]:
    """What one run of `textgraft embed` takes; its peak memory is that of this one child."""
    command = [sys.executable, "-m", "textgraft", "embed", model, str(texts), "--out", str(out), "--json", *more]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    answer = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed.")
    seconds, size = time.perf_counter() - began, texts.stat().st_size / 1e6
    found = json.loads(answer)
    return {
        "megabytes": round(size, 1),
        "texts": found["texts"],
        "dimensions": found["dimensions"],
        "seconds": round(seconds, 1),
        "megabytes_per_second": round(size / seconds, 2),
        "peak_mb": round(used.ru_maxrss * 1024 / 1e6),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("texts", type=Path)
    parser.add_argument("--megabytes", default="10,100,1000")
    parser.add_argument("--pooling", default="mean")
    parser.add_argument("--max-tokens", type=int, default=512, help="how much of each text a language model reads")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    asked = parser.parse_args()
    rows, more = [], ["--pooling", asked.pooling, "--max-tokens", str(asked.max_tokens)]
    print("| MB of text | texts | seconds | MB/s | peak memory, MB |\n|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for size in map(float, asked.megabytes.split(",")):
            part = Path(folder) / f"texts{asked.texts.suffix}"
            beginning(asked.texts, int(size * 1e6), part)
            row = measure(asked.model, part, Path(folder) / "vectors.npy", more)
            rows.append(row)
            shown = (f"{row['megabytes']:,.0f}", f"{row['texts']:,}", row["seconds"], row["megabytes_per_second"])
            print(f"| {' | '.join(map(str, shown))} | {row['peak_mb']:,} |", flush=True)
    if asked.json:
        asked.json.write_text(json.dumps({"model": asked.model, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
