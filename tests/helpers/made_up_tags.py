"""Sentences whose tags a model of a second can learn: a word is of one part of speech, and in a name behind a title."""

from __future__ import annotations

from pathlib import Path

import made_up_questions
import numpy as np

from textgraft.data.conll import Sentence, Tagged, conll_text

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


def write_encoder(folder: Path, family: str, *, num_layers: int = 1) -> Path:
    """A tiny untrained encoder that knows these words (made_up_questions.encoder)."""
    return made_up_questions.write_encoder(folder, family, TEXT, num_layers=num_layers)
