"""The main job on data and a model that ship: 100 labelled reviews, 1,400 without labels, 500 to be judged by.

Prints and writes demo/results.json and demo/report.html: the mean of what does best on held-out folds of the labels,
beside each of its candidates: `textgraft finetune train.csv --unlabelled pool.txt --test test.csv --adapt-minutes 2
--max-tokens 400 --minutes 10`, on a folder that is emptied first.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

from textgraft import FinetuneOptions, Settings, finetune, read
from textgraft.core.files import write_atomically

HERE = Path(__file__).parent
WORK = HERE / "work"
OPTIONS = FinetuneOptions(max_tokens=400, minutes=10, adapt=Settings(minutes=2))


def main() -> None:
    started = time.perf_counter()
    shutil.rmtree(WORK, ignore_errors=True)
    train, test = read(HERE / "data" / "train.csv.xz"), read(HERE / "data" / "test.csv.xz")
    pool = list(read(HERE / "data" / "pool.txt.xz").texts)
    tuned = finetune(train, WORK / "classifier", test=test, unlabelled=pool, options=OPTIONS)
    write_atomically(HERE / "results.json", (json.dumps(tuned.record["results"], indent=1) + "\n").encode())
    shutil.copy(tuned.folder / "report.html", HERE / "report.html")
    print(tuned.comparison.table())
    print(f"{time.perf_counter() - started:.0f} seconds; demo/results.json, demo/report.html, {tuned.folder}")
    print("Ask it yourself: .venv/bin/textgraft serve demo/work/classifier")


if __name__ == "__main__":
    main()
