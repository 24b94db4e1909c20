"""Questions that a model of a second can learn to answer: how many there are of a thing, of which a number tells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from textgraft.models import artifact
from textgraft.models.artifact import Artifact
from textgraft.models.model import build
from textgraft.text import wordpiece
from textgraft.text.tokenizer import Tokenizer

WORDS = ["river", "stone", "lamp", "garden", "window", "bread", "silver", "music", "winter", "horse", "paper", "cloud"]
TEXT = " ".join(WORDS) + " how many the has . ? " + " ".join(map(str, range(10, 60)))


def questions(count: int, seed: int, *, impossible: bool = False) -> dict[str, Any]:
    """A SQuAD file of `count` articles with a question each; with `impossible`, every third has no answer."""
    generator = np.random.default_rng(seed)
    articles = []
    for number in range(count):
        words = [str(word) for word in generator.choice(WORDS, size=14)]
        value, open_ = str(generator.integers(10, 60)), impossible and number % 3 == 0
        if not open_:
            words[int(generator.integers(14))] = value
        context = " ".join(words[:7]) + ". " + " ".join(words[7:]) + "."
        asked: dict[str, Any] = {"id": f"{seed}-{number}", "question": f"how many {words[0]}?", "answers": []}
        if not open_:
            asked["answers"] = [{"text": value, "answer_start": context.index(value)}]
        if impossible:
            asked["is_impossible"] = open_
        articles.append({"title": f"{seed}-{number}", "paragraphs": [{"context": context, "qas": [asked]}]})
    return {"version": "2.0" if impossible else "1.1", "data": articles}


def write_questions(path: Path, count: int, seed: int, *, impossible: bool = False) -> Path:
    path.write_text(json.dumps(questions(count, seed, impossible=impossible)))
    return path


def encoder(family: str, text: str = TEXT, *, num_layers: int = 1) -> Artifact:
    """A tiny encoder of a family, untrained: "bert" (with a pooler), "gpt", "xl", "lstm" or "backward"."""
    common = {"embedding_dim": 16, "num_layers": num_layers}
    transformer = {**common, "num_heads": 2, "max_length": 40}
    made: Tokenizer
    if family == "bert":
        made = wordpiece.train([text] * 3, vocab_size=160)
        encoder = {"name": "bert", **transformer, "feed_forward_dim": 32, "pooler": True}
    elif family == "gpt":
        made = Tokenizer.train([text] * 3, model="byte_level", vocab_size=400)
        encoder = {"name": "gpt", **transformer}
    elif family == "xl":
        made = Tokenizer.train([text] * 3, vocab_size=160)
        encoder = {"name": "transformer_xl", **common, "num_heads": 2, "hidden_dim": 32, "memory_length": 8}
    else:
        made = Tokenizer.train([text] * 3, kind="word")
        encoder = {"name": "awd_lstm", **common, "hidden_dim": 24}
        encoder |= {"direction": "right" if family == "backward" else "left"}
    encoder["vocab_size"] = made.vocab_size
    torch.manual_seed(0)
    model = build({"encoder": encoder, "head": {"name": "features", "input_dim": 16}}).eval()
    return Artifact(model, made, run={"name": family, "stage": "pretrain", "licence": "Apache-2.0"})


def write_encoder(folder: Path, family: str, text: str = TEXT, *, num_layers: int = 1) -> Path:
    return artifact.save(encoder(family, text, num_layers=num_layers), folder / family)


RECIPE = """
name = "quick"
description = "For tests"
source = "none"

[finetune]
batch_size = 8
dropout = 0.0

[[finetune.phases]]
name = "all"
epochs = {epochs}
lr = 0.02
"""


def write_recipe(folder: Path, epochs: int) -> Path:
    path = folder / f"quick-{epochs}.toml"
    path.write_text(RECIPE.format(epochs=epochs))
    return path
