"""What tests of methods and of their comparison share: a recipe of seconds, and examples made of a few words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from made_up_reviews import BAD, GOOD, PLAIN, reviews

from textgraft.comparison.methods import MethodOptions
from textgraft.data.examples import Examples
from textgraft.models import artifact, loading
from textgraft.models.artifact import Artifact
from textgraft.models.model import build
from textgraft.text import wordpiece
from textgraft.text.character_encoding import CharacterEncodingTokenizer
from textgraft.text.tokenizer import Tokenizer
from textgraft.word_embeddings import folder as vectors_folder
from textgraft.word_embeddings.word_vectors import WordVectors

RECIPE = """
name = "quick"
description = "For tests"
source = "none"

[adapt]
batch_size = 8
bptt = 35

[[adapt.phases]]
name = "all"
epochs = 1
lr = 0.01

[finetune]
batch_size = 8

[[finetune.phases]]
name = "all"
epochs = 2
lr = 0.01
"""


def examples(count: int = 40, seed: int = 1) -> Examples:
    texts, labels = reviews(count, seed)
    return Examples(texts, labels, "single")


def quick_options(folder: Path, language_model: Path) -> MethodOptions:
    """Options with a recipe of three epochs, which is written to `folder`."""
    (folder / "quick.toml").write_text(RECIPE)
    return MethodOptions(model=language_model, recipe=str(folder / "quick.toml"), max_tokens=32, show=False)


TRANSFORMER = {"embedding_dim": 16, "num_layers": 2, "num_heads": 2, "max_length": 40}
ENCODERS: dict[str, dict[str, Any]] = {
    "bert": {"name": "bert", **TRANSFORMER, "feed_forward_dim": 32, "pooler": False},
    "gpt": {"name": "gpt", **TRANSFORMER},
    "elmo": {
        "name": "elmo",
        "character_dim": 4,
        "filters": [[1, 4], [3, 12]],
        "projection_dim": 8,
        "hidden_dim": 10,
        "num_layers": 2,
    },
    "flair-forward": {"name": "flair", "embedding_dim": 12, "hidden_dim": 24},
    "flair-backward": {"name": "flair", "embedding_dim": 12, "hidden_dim": 24, "direction": "right"},
    "cove": {"name": "cove", "embedding_dim": 12, "hidden_dim": 8},
}
MODEL = {"flair": "flair-forward+flair-backward"}
"""What a method reads where that is not one model of its own name."""


def family_model(name: str) -> Artifact:
    """A tiny untrained model of a family, one of ENCODERS, that knows the words of the reviews."""
    texts, family = reviews(60)[0], ENCODERS[name]["name"]
    made: Tokenizer
    if family == "bert":
        made = wordpiece.train(texts, vocab_size=160)
    elif family == "elmo":
        made = CharacterEncodingTokenizer.from_vocabulary()
    else:
        kinds: dict[str, dict[str, Any]] = {
            "gpt": {"model": "byte_level", "vocab_size": 400},
            "flair": {"kind": "character"},
            "cove": {"kind": "word"},
        }
        made = Tokenizer.train(texts, **kinds[family])
    encoder = ENCODERS[name] | ({} if family == "elmo" else {"vocab_size": made.vocab_size})
    width = {"elmo": 16, "flair": 24, "cove": 12 + 2 * 8}.get(family, 16)
    head: dict[str, Any] = {"name": "features", "input_dim": width}
    if family == "gpt":  # which is adapted by the next token, and a bare one has no head for that
        head = {"name": "language_model", "input_dim": width, "vocab_size": made.vocab_size, "bias": False}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = build({"encoder": encoder, "head": head}).eval()
    return Artifact(model, made, run={"name": name, "stage": "pretrain", "licence": "Apache-2.0"})


def write_family(folder: Path, method: str) -> str:
    """Write what a method of a family reads into `folder`; how it is named behind an @."""
    names = MODEL.get(method, method).split("+")
    return "+".join(str(artifact.save(family_model(name), folder / name)) for name in names)


def write_vectors(folder: Path, words: list[str] = GOOD + BAD + PLAIN) -> Path:
    """A folder of word vectors of 7 dimensions, of which the first says whether a word is one of praise."""
    rows = np.random.default_rng(0).normal(size=(len(words), 7)).astype(np.float32)
    rows[:, 0] = [4.0 * ((word in GOOD) - (word in BAD)) for word in words]
    return vectors_folder.write(WordVectors(words, rows, lowercase=False).stream(), folder / "vectors")


def backwards(folder: Path) -> Artifact:
    """The same weights, read from right to left."""
    source = loading.load_network(folder)
    description = source.model.describe()
    description["encoder"]["direction"] = "right"
    model = build(description)
    artifact.fill(model, source.model.values(), where="model")
    return replace(source, model=model)
