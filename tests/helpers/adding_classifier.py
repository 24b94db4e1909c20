"""A classifier whose right explanations are known: its log-odds are a sum over words."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from textgraft.data.labels import Labels

WEIGHTS = {"fine": 1.5, "good": 0.75, "film": 0.0, "dull": -2.0, "awful": -0.5, "plot": 0.25}
BIAS = 0.1


class Adding:
    """A classifier, as `Classifier` has them, whose log-odds are a sum over words; it keeps what it was asked."""

    run = {"stage": "finetune"}  # noqa: RUF012
    has_vectors = False

    def __init__(self, kind: str = "single", reads: str = "texts") -> None:
        self.labels = {
            "single": Labels("single", ("neg", "pos")),
            "multi": Labels("multi", ("neg", "pos")),
            "numeric": Labels("numeric", (), 10.0, 2.0),
        }[kind]
        self.run = {**self.run, "reads": reads}
        self.asked: list[str] = []

    def outputs(self, texts: Sequence[str], precision: str = "auto") -> np.ndarray:
        self.asked += texts
        sums = np.array([BIAS + sum(WEIGHTS.get(word, 0.0) for word in re.findall(r"\w+", text)) for text in texts])
        if self.labels.kind == "numeric":
            return sums
        chance = 1 / (1 + np.exp(-sums))
        return np.stack([1 - chance, chance], axis=1)

    def knows(self, texts: Sequence[str]) -> np.ndarray:
        return np.ones(len(texts), dtype=bool)
