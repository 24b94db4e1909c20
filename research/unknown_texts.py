"""Shares of texts in which a model knows nothing, by the rule of `Prediction.known` (text.known_texts, linear.ngrams).

    python research/unknown_texts.py en-gpt-small en-bert-small linear --texts sms.csv --texts reviews.txt

`linear` stands for n-grams of LABELLED texts drawn from the same file. Beside each file stands its share of false
alarms (real texts that are called unknown), and of random letters that are recognised.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Sequence

import numpy as np

import textgraft
from textgraft.linear.ngrams import Ngrams
from textgraft.models.loading import load_network
from textgraft.text import known_texts

LABELLED, MOST, SEED = 100, 3_000, 0
LETTERS = "qwertyuiopasdfghjkl"


def random_letters(count: int) -> list[str]:
    """Texts of one to five words of three to nine random letters."""
    generator = random.Random(SEED)

    def word() -> str:
        return "".join(generator.choices(LETTERS, k=generator.randint(3, 9)))

    return [" ".join(word() for _ in range(generator.randint(1, 5))) for _ in range(count)]


def judge(name: str, texts: Sequence[str]) -> tuple[Callable[[Sequence[str]], np.ndarray], Sequence[str]]:
    """The rule of a model, and the texts to judge by it."""
    if name != "linear":
        tokenizer = load_network(name).tokenizer
        return lambda given: known_texts.knows(tokenizer, given), texts
    return Ngrams(characters=True, max_features=100_000).fit(texts[:LABELLED]).knows, texts[LABELLED:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--texts", action="append", required=True, help="A file that textgraft.read reads.")
    arguments = parser.parse_args()
    print("| texts | n | model | called unknown | random letters recognised |\n|---|---|---|---|---|")
    for file in arguments.texts:
        texts = [text for text in textgraft.read(file).texts if text.strip()]
        random.Random(SEED).shuffle(texts)
        for name in arguments.models:
            knows, judged = judge(name, texts[: MOST + LABELLED])
            judged = judged[:MOST]
            false, found = ((~knows(given)).mean() for given in (judged, random_letters(1_000)))
            print(f"| {file} | {len(judged):,} | {name} | {false:.2%} | {found:.1%} |", flush=True)


if __name__ == "__main__":
    main()
