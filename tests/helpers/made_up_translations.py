"""A language that is English backwards: each word has one translation, and the last one comes first."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from textgraft.data.parallel import Parallel

LEXICON = {"dog": "hund", "cat": "katze", "sees": "sieht", "runs": "läuft", "red": "rot", "old": "alt", "bird": "vogel"}
RECIPE = """
name = "tiny"
description = "For tests"
source = "none"
language = "en"
licence = "none"

[tokenizer]
min_frequency = 1

[target_tokenizer]
min_frequency = 1

[model]
embedding_dim = 16
hidden_dim = 16
input_dropout = 0.0
hidden_dropout = 0.0

[head]
embedding_dim = 16
hidden_dim = 32
num_layers = 1
input_dropout = 0.0
hidden_dropout = 0.0

[stage]
batch_size = 16
clip = 1.0

[[stage.phases]]
name = "all"
epochs = EPOCHS
lr = 0.02
"""


def pairs(count: int, seed: int) -> Parallel:
    """`count` sentences of two to six words that differ from their neighbours, with their translations."""
    generator = np.random.default_rng(seed)
    source = [" ".join(generator.permutation(list(LEXICON))[: generator.integers(2, 7)]) for _ in range(count)]
    return Parallel.of(source, [translated(sentence) for sentence in source])


def translated(sentence: str) -> str:
    return " ".join(LEXICON[word] for word in reversed(sentence.split()))


def write_pairs(folder: Path, name: str, count: int, seed: int) -> tuple[Path, Path]:
    made = pairs(count, seed)
    files = folder / f"{name}.en", folder / f"{name}.xx"
    for path, side in zip(files, (made.source, made.target), strict=True):
        path.write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    return files


def write_translation_recipe(folder: Path, epochs: float = 8) -> Path:
    path = folder / f"tiny-{epochs}.toml"
    path.write_text(RECIPE.replace("EPOCHS", str(epochs)))
    return path
