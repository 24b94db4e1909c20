"""Sentences whose tags a model of a second can learn: a word is of one part of speech, and in a name behind a title."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from textgraft import artifact
from textgraft.artifact import Artifact
from textgraft.data.conll import Sentence, Tagged, conll_text
from textgraft.model import build
from textgraft.text import wordpiece
from textgraft.text.tokenizer import Tokenizer

NOUNS = ["river", "stone", "lamp", "garden", "window", "bread", "silver", "music"]
VERBS = ["sees", "takes", "likes", "finds"]
TITLES = {"captain": "person", "city": "place"}
TEXT = " ".join([*NOUNS, *VERBS, *TITLES, "the", "."])


def sentences(count: int, seed: int, *, names: bool = False, clauses: int = 1) -> Tagged:
    """`count` sentences with parts of speech; with `names` instead, nouns behind a title are an entity's words."""
    generator = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        words: list[str] = []
        tags: list[str] = []
        for _ in range(clauses):
            title = str(generator.choice([*TITLES, "the"]))
            nouns = [str(noun) for noun in generator.choice(NOUNS, size=int(generator.integers(1, 3)))]
            kind = TITLES.get(title)
            words += [title, *nouns, str(generator.choice(VERBS)), "."]
            if names:
                inside = [f"B-{kind}", *[f"I-{kind}"] * (len(nouns) - 1)] if kind else ["O"] * len(nouns)
                tags += ["O", *inside, "O", "O"]
            else:
                tags += ["DET" if kind is None else "NOUN", *["NOUN"] * len(nouns), "VERB", "PUNCT"]
        made.append(Sentence.of(words, tags))
    return Tagged(tuple(made), "IOB2" if names else "plain", f"made up {seed}")


def write_sentences(path: Path, count: int, seed: int, *, names: bool = False) -> Path:
    data = sentences(count, seed, names=names)
    path.write_text(conll_text(data.sentences, [s.tags for s in data.sentences]))
    return path


def tokenizer(family: str) -> Tokenizer:
    if family == "bert":
        return wordpiece.train([TEXT] * 3, vocab_size=60)
    if family == "gpt":
        return Tokenizer.train([TEXT] * 3, model="byte_level", vocab_size=300)
    return Tokenizer.train([TEXT] * 3, vocab_size=80) if family == "xl" else Tokenizer.train([TEXT] * 3, kind="word")


def encoder(family: str) -> Artifact:
    """A tiny encoder of a family, untrained: "bert" (with a pooler), "gpt", "xl", "lstm" or "backward"."""
    common = {"embedding_dim": 16, "num_layers": 1}
    transformer = {**common, "num_heads": 2, "max_length": 48}
    made = tokenizer(family)
    if family == "bert":
        encoder = {"name": "bert", **transformer, "feed_forward_dim": 32, "pooler": True}
    elif family == "gpt":
        encoder = {"name": "gpt", **transformer}
    elif family == "xl":
        encoder = {"name": "transformer_xl", **common, "num_heads": 2, "hidden_dim": 32, "memory_length": 8}
    else:
        encoder = {"name": "awd_lstm", **common, "hidden_dim": 24}
        encoder |= {"direction": "right" if family == "backward" else "left"}
    encoder["vocab_size"] = made.vocab_size
    torch.manual_seed(0)
    model = build({"encoder": encoder, "head": {"name": "features", "input_dim": 16}}).eval()
    return Artifact(model, made, run={"name": family, "stage": "pretrain", "licence": "Apache-2.0"})


def write_encoder(folder: Path, family: str) -> Path:
    return artifact.save(encoder(family), folder / family)


RECIPE = """
name = "quick"
description = "For tests"
source = "none"

[finetune]
rows = 8
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
