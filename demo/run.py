"""The main job on data and a model that ship: 100 labelled reviews, 1,400 without labels, 500 to be judged by.

Prints and writes demo/results.json and demo/report.html: the adapted and fine-tuned model beside the same network
without pretraining, n-grams with logistic regression, and the latent semantic analysis of the unlabelled reviews.
"""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path

from textgraft import FinetuneOptions, adapt, finetune, read
from textgraft.files import write_atomically

HERE = Path(__file__).parent
WORK = HERE / "work"
MODEL = "en-ulmfit"
OPTIONS = FinetuneOptions(recipe="default", seeds=3, max_tokens=400)


def main() -> None:
    started = time.perf_counter()
    shutil.rmtree(WORK, ignore_errors=True)
    train = read(HERE / "data" / "train.csv.xz")
    test = read(HERE / "data" / "test.csv.xz")
    pool = list(read(HERE / "data" / "pool.txt.xz").texts)
    adapted = adapt([*pool, *train.texts], WORK / "adapted", model=MODEL, recipe="demo")
    scratch = finetune(
        train,
        WORK / "scratch",
        model=adapted,
        test=test,
        options=replace(OPTIONS, from_scratch=True, baselines=False),
    )
    tuned = finetune(
        train,
        WORK / "classifier",
        model=adapted,
        test=test,
        unlabelled=pool,
        options=OPTIONS,
        beside=scratch.comparison.outcomes,
    )
    results = tuned.record["results"]
    write_atomically(HERE / "results.json", (json.dumps(results, indent=1) + "\n").encode())
    shutil.copy(tuned.folder / "report.html", HERE / "report.html")
    print(tuned.comparison.table())
    print(f"{time.perf_counter() - started:.0f} seconds; demo/results.json, demo/report.html, {tuned.folder}")


if __name__ == "__main__":
    main()
