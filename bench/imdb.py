"""IMDb at a few labels: ULMFiT beside its baselines, from scratch, and without adaptation.

    python bench/imdb.py --data ../shared/data/imdb --labels 100,500,1000 --draws 3 --out bench/results/imdb

Each draw takes its own labelled sample of the training reviews (half of each class) and its own seed; the test set is
a fixed sample of 5,000 test reviews, without the 123 that also stand in training. The language model adapts once, to
`--adapt-texts` of the unlabelled reviews; the LSA baseline gets all of them. Every cell is kept as a file, so that the
run can be stopped and resumed; the table is made from the files.
"""

from __future__ import annotations

import argparse
import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np

from textgraft.data.examples import Examples
from textgraft.evaluation import Outcome
from textgraft.files import write_atomically
from textgraft.linear.baselines import LinearBaseline, LsaBaseline
from textgraft.linear.latent_space import LatentSpace
from textgraft.stages.adapt import adapt
from textgraft.stages.finetune import FinetuneOptions, finetune
from textgraft.training.loop import Settings
from textgraft.training.meter import Meter
from textgraft.training.metrics import bootstrap_interval, paired_test

TEST = 5_000
METHODS = ("linear", "lsa", "ulmfit", "no-adapt", "scratch")


def read_reviews(path: Path) -> tuple[list[str], list[str]]:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return [row["text"] for row in rows], [str(row.get("label")) for row in rows]


def sample(texts: list[str], labels: list[str], count: int, seed: int) -> Examples:
    """`count` reviews, the same number of each class."""
    generator = np.random.default_rng([seed, count])
    chosen: list[int] = []
    for name in sorted(set(labels)):
        members = [i for i, label in enumerate(labels) if label == name]
        chosen += generator.choice(members, count // 2, replace=False).tolist()
    chosen = [chosen[i] for i in generator.permutation(len(chosen))]
    return Examples([texts[i] for i in chosen], [labels[i] for i in chosen], "single", source="imdb")


def main() -> None:
    args = arguments()
    out: Path = args.out
    train_texts, train_labels = read_reviews(args.data / "train.jsonl.xz")
    test_texts, test_labels = read_reviews(args.data / "test.jsonl.xz")
    pool, _ = read_reviews(args.data / "unsup.jsonl.xz")
    seen = set(train_texts)
    fresh = [i for i, text in enumerate(test_texts) if text not in seen]
    order = np.random.default_rng(0).permutation(fresh)[: args.test]
    test = Examples([test_texts[i] for i in order], [test_labels[i] for i in order], "single", source="imdb test")
    adapted = out / "adapted"
    if "ulmfit" in args.methods and not adapted.exists():
        texts = [pool[i] for i in np.random.default_rng(1).permutation(len(pool))[: args.adapt_texts]]
        adapt(texts, adapted, model=args.model, recipe=args.recipe)
    space: list[LatentSpace] = []
    for count in args.labels:
        for draw in range(args.draws):
            examples = sample(train_texts, train_labels, count, draw)
            for method in args.methods:
                cell = out / "cells" / f"{method}-{count}-{draw}.json"
                if cell.exists():
                    continue
                if method == "lsa" and not space:
                    space.append(LatentSpace().fit([*pool, *train_texts]))
                result = run_cell(method, examples, test, draw, args, adapted, space)
                write_atomically(cell, json.dumps(result).encode())
                print(
                    method, count, draw, f"{np.mean(result['correct']):.4f}", f"{result['minutes']:.2f} min", flush=True
                )
    report(out, args.labels)


def run_cell(
    method: str,
    examples: Examples,
    test: Examples,
    draw: int,
    args: argparse.Namespace,
    adapted: Path,
    space: list[LatentSpace],
) -> dict[str, Any]:
    """Whether each test review was classified rightly, and what it cost."""
    truth = np.array(list(test.labels or ()))
    if method in ("linear", "lsa"):
        baseline = LinearBaseline(seed=draw) if method == "linear" else LsaBaseline(spaces=space, seed=draw)
        names = sorted(set(examples.labels or ()))  # type: ignore[type-var]
        targets = np.array([names.index(label) for label in examples.labels or ()])
        with Meter() as meter:
            answers = baseline.fit(list(examples.texts), targets).predict_proba(list(test.texts)).argmax(1)
        correct = [bool(names[a] == t) for a, t in zip(answers, truth, strict=True)]
        return {"correct": correct, "minutes": meter.seconds / 60, "peak_mb": meter.peak_mb}
    options = FinetuneOptions(
        recipe=args.recipe,
        max_tokens=args.max_tokens,
        from_scratch=method == "scratch",
        baselines=False,
        settings=Settings(seed=draw),
    )
    folder = args.out / "models" / f"{method}-{len(examples)}-{draw}"
    model = args.model if method == "no-adapt" else adapted
    tuned = finetune(examples, folder, model=model, test=test, options=options, overwrite=True)
    outcome: Outcome = tuned.comparison.outcomes[0]
    correct = tuned.comparison.scores(outcome)[0].astype(bool).tolist()
    return {"correct": correct, "minutes": outcome.minutes, "peak_mb": outcome.peak_mb}


def report(out: Path, labels: list[int]) -> None:
    """Print and write the table: mean accuracy over draws with a 95 % interval, and the paired test against LSA."""
    rows: list[dict[str, Any]] = []
    for count in labels:
        correct: dict[str, np.ndarray] = {}
        for method in METHODS:
            cells = [json.loads(p.read_text()) for p in sorted((out / "cells").glob(f"{method}-{count}-*.json"))]
            if not cells:
                continue
            correct[method] = np.array([c["correct"] for c in cells], dtype=float)
            interval = bootstrap_interval(correct[method])
            row: dict[str, Any] = {"labels": count, "method": method, "draws": len(cells), **interval._asdict()}
            row["spread"] = float(correct[method].mean(1).std(ddof=1)) if len(cells) > 1 else None
            row["minutes"] = float(np.mean([c["minutes"] for c in cells]))
            rows.append(row)
        for row in rows:
            if row["labels"] == count and row["method"] != "lsa" and "lsa" in correct:
                own = correct[row["method"]]
                if len(own) == len(correct["lsa"]):
                    row["against_lsa"] = paired_test(own, correct["lsa"])._asdict()
    write_atomically(out / "results.json", (json.dumps({"test_n": TEST, "rows": rows}, indent=1) + "\n").encode())
    for row in rows:
        interval = f"{row['mean']:.3f} ({row['low']:.3f}–{row['high']:.3f})"
        print(f"{row['labels']:>6} {row['method']:<10} {interval}  n={row['draws']}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("bench/results/imdb"))
    parser.add_argument("--labels", type=lambda s: [int(x) for x in s.split(",")], default=[100, 500, 1000])
    parser.add_argument("--methods", type=lambda s: s.split(","), default=list(METHODS))
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--test", type=int, default=TEST)
    parser.add_argument("--adapt-texts", type=int, default=10_000)
    parser.add_argument("--max-tokens", type=int, default=400)
    parser.add_argument("--model", default="en-ulmfit")
    parser.add_argument("--recipe", default="default")
    return parser.parse_args()


if __name__ == "__main__":
    main()
