"""What tests of whole stages share: a language model small enough to be pretrained in a second or two."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

RECIPE = """
name = "tiny"
description = "For tests"
language = "en"
licence = "Apache-2.0"
validate_every = 100

[tokenizer]
kind = "subword"
vocab_size = 120

[model]
embedding_dim = 16
hidden_dim = 24

[head]

[stage]
rows = 8
bptt = 35

[[stage.phases]]
name = "pretrain"
epochs = 1
lr = 0.01
"""
GOOD = ["great", "wonderful", "superb", "lovely", "brilliant"]
BAD = ["awful", "terrible", "boring", "dreadful", "poor"]
PLAIN = ["the", "and", "movie", "it", "I", "film", "plot", "actor"]


def review(positive: bool, rng: random.Random, words: int = 16) -> str:
    """A made-up review whose class a few words give away."""
    return "The film was " + " ".join(rng.choice((GOOD if positive else BAD) + PLAIN) for _ in range(words)) + "."


def reviews(count: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """Texts and their labels, "neg" and "pos" in turn."""
    rng = random.Random(seed)
    return [review(i % 2 == 1, rng) for i in range(count)], [("neg", "pos")[i % 2] for i in range(count)]


@pytest.fixture(scope="session")
def tiny_recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe for `pretrain` that takes a second."""
    path = tmp_path_factory.mktemp("recipe") / "tiny.toml"
    path.write_text(RECIPE)
    return path


@pytest.fixture(scope="session")
def tiny_lm(tiny_recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny pretrained language model; copy it before changing it."""
    from textgraft.stages.pretrain import pretrain

    folder = tmp_path_factory.mktemp("tiny")
    (folder / "pool.txt").write_text("\n".join(reviews(400)[0]))
    return pretrain([folder / "pool.txt"], folder / "lm", recipe=str(tiny_recipe), show=False)
