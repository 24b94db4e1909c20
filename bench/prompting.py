"""What a language model answers to prompts on two data sets, beside always giving the most frequent label.

    python bench/prompting.py en-ulmfit --data ../shared/data [--texts 1000] [--json out.json]

Movie reviews of one sentence (positive or negative) and text messages (spam or ham), drawn with seed 0, examples from
200 others. The templates are those that ship, unchanged; every way tried is printed. Then the last word of up to 300
encyclopedia passages of some fifty words (LAMBADA's question, though not its passages).
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from textgraft import PromptOptions, last_words, prompt
from textgraft.cli.prompt import verdict
from textgraft.data.examples import Examples
from textgraft.data.readers import read_texts
from textgraft.metrics.classification import bootstrap_interval
from textgraft.models.loading import load_network

POOL = 200
PASSAGES = 300
LINEAR_METHODS: dict[str, Mapping[str, Any]] = {
    "no examples": {},
    "no examples, calibrated": {"calibrate": True},
    "no examples, unconditional": {"scoring": "unconditional"},
    "4 examples": {"shots": 4},
    "4 examples, calibrated": {"shots": 4, "calibrate": True},
    "16 examples, calibrated": {"shots": 16, "calibrate": True},
}


def polarity(data: Path) -> list[tuple[str, str]]:
    folder = data / "sentence-polarity"
    names = ("neg", "pos")
    return [(t, n) for n in names for t in (folder / f"rt-polarity.{n}").read_text("utf-8", "replace").splitlines()]


def messages(data: Path) -> list[tuple[str, str]]:
    lines = (data / "sms-spam" / "SMSSpamCollection").read_text("utf-8").splitlines()
    return [(text, label.lower()) for label, _, text in (line.partition("\t") for line in lines)]


DATA = {"polarity": polarity, "spam": messages}
"""By the template that asks."""


def passages(data: Path) -> list[str]:
    """Each the first 50 to 60 words of an article's paragraph, up to a word of letters only."""
    found = []
    for text in read_texts(sorted((data / "enwiki").glob("*test*"))):
        paragraphs = [p.split() for p in text.split("\n") if len(p.split()) > 60]
        words = paragraphs[0] if paragraphs else []
        end = next((n for n in range(60, 49, -1) if n < len(words) and words[n].isalpha()), None)
        if end is not None:
            found.append(" ".join(words[: end + 1]))
    return found[:PASSAGES]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data")
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    model, results = load_network(given.model), {}
    for template, rows_of in DATA.items():
        rows = rows_of(given.data)
        random.Random(0).shuffle(rows)
        parts = [rows[: given.texts], rows[given.texts : given.texts + POOL]]
        texts, pool = (Examples([t for t, _ in part], [n for _, n in part], "single") for part in parts)
        for way, options in LINEAR_METHODS.items():
            examples = pool if options.get("shots") else None
            found = prompt(model, texts, template, options=PromptOptions(**options), examples=examples).evaluate()
            results[f"{template}, {way}"] = found
            print(f"{template}, {way}: {verdict(found)}", flush=True)
    words = last_words(model, passages(given.data))
    accuracy = bootstrap_interval(np.array(words.right, dtype=float))._asdict()
    results["last words"] = {"passages": len(words.right), "accuracy": accuracy, "perplexity": words.perplexity}
    print(f"last words: {results['last words']}")
    if given.json:
        given.json.write_text(json.dumps({"model": given.model, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
