"""Token ids for the comparison: wikitext-2 by whole words, the most frequent first."""

from __future__ import annotations

import csv
import lzma
from collections import Counter
from itertools import chain
from pathlib import Path

import numpy as np

UNKNOWN, PAD = 0, 1


def write_tokens(data: Path | None, vocab_size: int, out: Path) -> dict[str, str]:
    """Ids of training and validation text in two .npy files; ids rise as frequency falls, which adaptive and sampled
    softmax rely on. Without `data`, random words of Zipf's law."""
    if data is None:
        generator = np.random.default_rng(0)
        train, valid = (np.minimum(generator.zipf(1.3, n) + 1, vocab_size - 1) for n in (4000, 400))
    else:
        csv.field_size_limit(1 << 30)
        with lzma.open(data / "train.fastai-csv.xz", "rt", encoding="utf-8", newline="") as file:
            words = list(chain.from_iterable(row[0].split() for row in csv.reader(file) if row))
        with lzma.open(data / "valid.txt.xz", "rt", encoding="utf-8") as file:
            valid_words = file.read().split()
        known = {word: i + 2 for i, (word, _) in enumerate(Counter(words).most_common(vocab_size - 2))}
        train, valid = (np.array([known.get(w, UNKNOWN) for w in text]) for text in (words, valid_words[:60_000]))
    paths = {"train": out / "train.npy", "valid": out / "valid.npy"}
    for name, ids in (("train", train), ("valid", valid)):
        np.save(paths[name], ids.astype(np.int32))
    return {name: str(path) for name, path in paths.items()}
