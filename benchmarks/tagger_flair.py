"""Flair's side of the taggers' speed: its FlairEmbeddings, stack, projection, LSTM, CRF and predict.

Started by tagger_speed.py in Flair's environment; answers its commands on stdin (`timing.serve`).
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path

import flair
import torch
from flair.data import Dictionary, Sentence
from flair.embeddings import FlairEmbeddings, StackedEmbeddings
from flair.models import SequenceTagger
from timing import clocks, serve, since

for handler in logging.getLogger("flair").handlers:
    handler.setStream(sys.stderr)  # stdout is for answers


def tagger_of(models: list[str], tags: list[str]) -> SequenceTagger:
    """A tagger over language models in Flair's files, of its default shape, with random weights of its own."""
    torch.manual_seed(0)
    dictionary = Dictionary(add_unk=False)
    for tag in tags:
        dictionary.add_item(tag)
    embeddings = StackedEmbeddings([FlairEmbeddings(model) for model in models])
    return SequenceTagger(embeddings, dictionary, "ner", tag_format="BIOES", hidden_size=256).eval()


def tagging(tagger: SequenceTagger, words: list[list[str]], batch: int) -> Callable[[], dict[str, float]]:
    """What tags all sentences, which nobody has seen (Flair keeps what it has embedded in them), and says how long."""

    def speed() -> dict[str, float]:
        sentences = [Sentence(one, use_tokenizer=False) for one in words]
        start = clocks()
        tagger.predict(sentences, mini_batch_size=batch)
        return since(start)

    return speed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", type=Path, help="JSON: language models, tags and sentences")
    task = json.loads(parser.parse_args().task.read_text("utf-8"))
    torch.set_num_threads(task["threads"])
    tagger = tagger_of(task["flair"], task["tags"])
    speed = tagging(tagger, task["sentences"], task["batch"])
    serve({"describe": lambda: {"flair": flair.__version__, "torch": torch.__version__}, "speed": speed})


if __name__ == "__main__":
    main()
