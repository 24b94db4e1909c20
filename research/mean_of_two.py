"""The worth of the mean of two methods' answers: `python research/mean_of_two.py imdb RUN --of co-training,no-adapt`.

RUN is what `research/curves.py NAME … --out RUN` has left, or several such folders where no one holds both methods, all
of the same tests (--tested as there). The logits of both are brought to one deviation over the tests, which needs no
label, and added. Prints, for each number of labels that both have, accuracy over texts and draws with 95 % intervals,
of each and of the mean, and the mean's difference to the better of them. Two classes only.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import curves
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from textgraft.data.labels import Labels
from textgraft.metrics.classification import Interval, bootstrap_interval, difference_interval, paired_test

KEY = re.compile(r"(?P<method>.+), (?P<labels>[\d,]+) labels, seed (?P<seed>\d+)")
Predictions = dict[int, dict[int, NDArray[np.float64]]]
"""(N, 2) probabilities by number of labels, then by draw."""


def answers(folders: list[Path], method: str) -> Predictions:
    """What a method said in any of the runs. Raises SystemExit where none has it."""
    found: Predictions = {}
    for folder in folders:
        for key, given in load_file(folder / "answers.safetensors").items():
            if (parts := KEY.fullmatch(key)) and parts["method"] == method:
                found.setdefault(int(parts["labels"].replace(",", "")), {})[int(parts["seed"])] = given
    if not found:
        raise SystemExit(f"no run here has answers of {method}: {', '.join(map(str, folders))}")
    return found


def mean(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """(N,) the sum of both logits of the second class, of deviation 1 each."""
    logits = [np.log(p[:, 1]) - np.log(p[:, 0]) for p in (np.clip(a, 1e-6, 1) for a in (first, second))]
    return np.sum([each / max(float(each.std()), 1e-9) for each in logits], axis=0)


def points(interval: Interval, sign: str = "") -> str:
    """As points of a hundred."""
    middle, low, high = (f"{100 * value:{sign}.1f}" for value in (interval.mean, interval.low, interval.high))
    return f"{middle} [{low}, {high}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=curves.DATA)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--of", required=True, help="two methods, with a comma")
    parser.add_argument("--data", type=Path, default=curves.HERE.parents[1] / "shared" / "data")
    parser.add_argument("--tested", type=curves.so_many, default=5000)
    asked = parser.parse_args()
    folder, read = curves.DATA[asked.name]
    train, test, _ = read(asked.data / folder)
    if asked.tested is not None and asked.tested < len(test):
        test = curves.sample(test, asked.tested)
    labels = Labels.fit(curves.examples(train, asked.name))
    truth = np.asarray(labels.encode(curves.examples(test, f"{asked.name} test")))
    one, other = asked.of.split(",")
    first, second = answers(asked.runs, one), answers(asked.runs, other)
    for count in sorted(first.keys() & second.keys()):
        draws = sorted(first[count].keys() & second[count].keys())
        pairs = [(first[count][draw], second[count][draw]) for draw in draws]
        if pairs and pairs[0][0].shape != (len(truth), 2):
            raise SystemExit(f"the answers are {pairs[0][0].shape}, and there are {len(truth)} tests of two classes")
        said = {one: [a.argmax(1) for a, _ in pairs], other: [b.argmax(1) for _, b in pairs]}
        said["mean of both"] = [(mean(a, b) > 0).astype(int) for a, b in pairs]
        right = {name: np.stack([guesses == truth for guesses in each]).astype(float) for name, each in said.items()}
        for name, scores in right.items():
            print(f"{count:>7,} labels  {name:24} {points(bootstrap_interval(scores))}")
        better = max((one, other), key=lambda name: right[name].mean())
        ahead = points(difference_interval(right["mean of both"] - right[better]), sign="+")
        print(f"{'':16}the mean less {better}: {ahead}, p = {paired_test(right['mean of both'], right[better]).p:.3g}")


if __name__ == "__main__":
    main()
