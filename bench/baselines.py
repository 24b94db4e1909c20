"""The linear baselines on IMDb with few labels: `python bench/baselines.py --labels 100,500,1000 --seeds 3 --json`.

For each number of labels: a balanced draw a seed from the 25,000 training reviews, a fixed random sample of
5,000 test reviews, and for `lsa` the 50,000 unlabelled reviews beside the 25,000 training texts. The latent
space does not depend on the draw, so it is fitted once; its time is counted in every row.
"""

from __future__ import annotations

import argparse
import json
import lzma
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from textgraft.baselines import LatentSpace, LinearBaseline, LsaBaseline
from textgraft.training.metrics import summarise_seeds

IMDB = Path(__file__).parents[1] / ".." / "shared" / "data" / "imdb"
TEST_SAMPLE = 5_000


def read(folder: Path, name: str) -> tuple[list[str], np.ndarray]:
    """Texts, and 1 where the label is pos."""
    with lzma.open(folder / f"{name}.jsonl.xz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return [row["text"] for row in rows], np.array([row.get("label") == "pos" for row in rows], dtype=np.int64)


def balanced_draw(targets: np.ndarray, n: int, seed: int) -> np.ndarray:
    """Indices of n / 2 texts of each class."""
    generator = np.random.default_rng(seed)
    halves = [generator.permutation(np.flatnonzero(targets == c))[: n // 2] for c in (0, 1)]
    return np.concatenate(halves)


def measure(folder: Path, sizes: list[int], seeds: int, *, with_lsa: bool = True) -> list[dict[str, Any]]:
    """One object a number of labels, in the shape of results.json."""
    texts, targets = read(folder, "train")
    test_texts, test_targets = read(folder, "test")
    sample = np.random.default_rng(0).permutation(len(test_texts))[:TEST_SAMPLE]
    test_texts, test_targets = [test_texts[i] for i in sample], test_targets[sample]
    space, space_seconds = None, 0.0
    results = [{"labels": n, "test_n": len(test_texts), "seeds": seeds, "methods": {}} for n in sizes]
    for method in ("linear", "lsa") if with_lsa else ("linear",):
        if method == "lsa":
            started = time.perf_counter()
            space = LatentSpace().fit(texts + read(folder, "unsup")[0])
            space_seconds = time.perf_counter() - started
        for n, result in zip(sizes, results):
            started, right = time.perf_counter(), []
            for seed in range(seeds):
                chosen = balanced_draw(targets, n, seed)
                baseline = LinearBaseline(seed=seed) if space is None else LsaBaseline(space=space, seed=seed)
                baseline.fit([texts[i] for i in chosen], targets[chosen])
                right.append(baseline.predict_proba(test_texts).argmax(1) == test_targets)
            summary = summarise_seeds(np.array(right))
            seconds = space_seconds + (time.perf_counter() - started) / seeds
            result["methods"][method] = {
                "accuracy": summary.interval._asdict(),
                "spread": summary.spread,
                "minutes": round(seconds / 60, 2),
                "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
                "about": baseline.about,
            }
            print(f"{n:>6} labels  {method:<6} {_shown(summary.interval)}  {baseline.about}", file=sys.stderr)
    return results


def _shown(interval: tuple[float, float, float]) -> str:
    mean, low, high = (100 * value for value in interval)
    return f"{mean:.1f} % [{low:.1f}, {high:.1f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", default="100,500,1000", help="numbers of labels, with commas")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--data", type=Path, default=IMDB, help="folder of train, test and unsup .jsonl.xz")
    parser.add_argument("--no-lsa", action="store_true")
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout")
    options = parser.parse_args()
    if not (options.data / "train.jsonl.xz").exists():
        parser.error(f"no train.jsonl.xz in {options.data}; name the folder with --data")
    sizes = [int(n) for n in options.labels.split(",")]
    results = measure(options.data, sizes, options.seeds, with_lsa=not options.no_lsa)
    if options.json:
        print(json.dumps({"imdb": results}, indent=2))


if __name__ == "__main__":
    main()
