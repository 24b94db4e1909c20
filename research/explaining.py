"""Are the words that `textgraft explain` names the ones that matter? `python research/explaining.py MODEL texts.csv`.

The words that speak most for an answer are found one by one; here the first one, two, three and five of them are left
out together, and as many drawn at random (the mean of --draws), and how often that changes the answer is counted, over
texts that have more words than that. 95 % intervals over texts. Needs a classifier of single texts.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from textgraft import load
from textgraft.data.readers import read_texts
from textgraft.metrics.classification import bootstrap_interval
from textgraft.tasks.classification.explaining import Explanation, Part, explain, without
from textgraft.tasks.classification.predictor import Classifier

LEFT_OUT = (1, 2, 3, 5)


def without_all(one: Explanation, parts: Sequence[Part]) -> str:
    """The text without several parts."""
    text = one.text
    for part in sorted(parts, key=lambda part: -part.start):
        text = without(text, (part.side, part.start, part.end))
    return text


def changed(model: Classifier, explanations: Sequence[Explanation], left: Sequence[Sequence[Part]]) -> np.ndarray:
    """(N,) whether each answer changes where these parts are left out."""
    found = model.predict([without_all(one, parts) for one, parts in zip(explanations, left, strict=True)])
    return np.array([p.label != one.label for p, one in zip(found, explanations, strict=True)], dtype=float)


def shares(model: Classifier, explanations: Sequence[Explanation], count: int, draws: int) -> dict[str, np.ndarray]:
    """(N,) how often each answer changes without `count` words: the strongest, and random ones."""
    generator = np.random.default_rng(0)
    strongest = [sorted(one.parts, key=lambda part: -part.weight)[:count] for one in explanations]

    def drawn() -> list[list[Part]]:
        return [[one.parts[i] for i in generator.permutation(len(one.parts))[:count]] for one in explanations]

    at_random = [changed(model, explanations, drawn()) for _ in range(draws)]
    return {"strongest": changed(model, explanations, strongest), "at random": np.mean(at_random, axis=0)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("texts", type=Path)
    parser.add_argument("--most", type=int, default=500, help="how many of the texts")
    parser.add_argument("--draws", type=int, default=5)
    given = parser.parse_args()
    model = load(given.model)
    explanations = list(explain(model, islice(read_texts([given.texts]), given.most)))
    for count in LEFT_OUT:
        able = [one for one in explanations if len(one.parts) > count]
        found = shares(model, able, count, given.draws)
        said = []
        for name, share in found.items():
            mean, low, high = (100 * value for value in bootstrap_interval(share))
            said.append(f"{name} {mean:.1f} % [{low:.1f}, {high:.1f}]")
        print(
            f"without {count} of a text's words, {len(able):,} texts: answers that change: {'; '.join(said)}",
            flush=True,
        )


if __name__ == "__main__":
    main()
