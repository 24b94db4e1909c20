"""A tiny random XLM of two languages, and sentences whose words have one translation each."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from tiny_checkpoints import pipeline_of, save_checkpoint

from textgraft.data.parallel import Parallel

LANGUAGES = {"en": 0, "de": 1}
WORDS = [f"{a}{b}" for a in "bdfgk" for b in "aeio"]


def pairs(count: int, seed: int = 0) -> Parallel:
    """Random words, and each word's translation: the same letters backwards, and an x."""
    rng = random.Random(seed)
    sentences = [[rng.choice(WORDS) for _ in range(rng.randint(4, 8))] for _ in range(count)]
    return Parallel.of(*([" ".join(map(side, s)) for s in sentences] for side in (str, lambda w: w[::-1] + "x")))


def checkpoint(folder: Path, **settings: Any) -> Path:
    known = pairs(300)
    pipeline = pipeline_of("xlm", [*known.source, *known.target])
    settings = {"n_langs": 2, "lang2id": LANGUAGES, "dropout": 0.0, "attention_dropout": 0.0, **settings}
    return save_checkpoint("xlm", folder, auto="AutoModelForMaskedLM", pipeline=pipeline, **settings)
