"""Explanations of a classifier's prediction by its words: how it changes when one is left out.

Erasure (Li, Monroe & Jurafsky 2016, arXiv:1612.08220; occlusion, Zeiler & Fergus 2014). It uses
nothing of a classifier but its predictions, so networks, linear classifiers, ensembles and ONNX graphs are explained
alike, by what the classifier does and not by what its gradients suggest. It does not show what several words do only
together: of two synonyms each may be left out without a change.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from textgraft.core.errors import UserError, did_you_mean
from textgraft.data.examples import Choice, Pair, each_text
from textgraft.tasks.classification import predictor
from textgraft.tasks.classification.predictor import Classifier, Prediction
from textgraft.text.sentences import sentence_spans
from textgraft.text.words import split_words

MOST_PARTS = 300
"""A text is read again for each of its parts: of more words than this its sentences are left out."""
LEAST_CHANCE = 1e-6
"""Log-odds end here: beyond it float32 has nothing to say."""

Stretch = tuple[int, int, int]
"""The side of a pair, 0 but for second texts, and the characters [start, end) of it."""


@dataclass(frozen=True)
class Part:
    """Characters [start, end) of the text, or of the second text of a pair (`side` 1), and how much they speak for it.

    `weight` is what the log-odds of the answer lose without them, in nats, or for a number the number itself.
    """

    start: int
    end: int
    weight: float
    side: int = 0


@dataclass(frozen=True)
class Explanation:
    """Of one text: the `label` that is explained (None for a number), its probability or the number, and the parts."""

    text: str
    label: str | None
    answer: float
    parts: tuple[Part, ...]

    @property
    def sides(self) -> tuple[str, ...]:
        """The text, or both of a pair."""
        return (self.text.first, self.text.second) if isinstance(self.text, Pair) else (self.text,)

    def said(self, part: Part) -> str:
        """The words of a part."""
        return self.sides[part.side][part.start : part.end]

    def ranked(self) -> list[Part]:
        """The parts, those that matter most first, whichever way they speak."""
        return sorted(self.parts, key=lambda part: -abs(part.weight))

    def listed(self) -> dict[str, Any]:
        """The answer and its parts in order, as JSON has them; `side` only of pairs."""
        parts = [{"text": self.said(part), **vars(part)} for part in self.parts]
        if len(self.sides) == 1:
            for part in parts:
                del part["side"]
        return {"label": self.label, "answer": self.answer, "parts": parts}


def stretches(text: str, most: int = MOST_PARTS) -> list[Stretch]:
    """What is left out in turn: words, or where there are more than `most` sentences, or where these are more several.

    Raises UserError for a question with options.
    """
    if isinstance(text, Choice):
        raise UserError("what answers a question with options cannot be explained.", remedy="Ask about texts or pairs.")
    sides = [text.first, text.second] if isinstance(text, Pair) else [text]
    for cut in (split_words, sentence_spans):
        found = [(side, start, end) for side, words in enumerate(sides) for start, end in cut(words)]
        if len(found) <= most:
            return found
    together = math.ceil(len(found) / most)
    joined = []
    for side in range(len(sides)):
        own = [stretch for stretch in found if stretch[0] == side]
        joined += [(side, part[0][1], part[-1][2]) for part in _chunks(own, together)]
    return joined


def _chunks(stretches: Sequence[Stretch], size: int) -> Iterator[Sequence[Stretch]]:
    return (stretches[begin : begin + size] for begin in range(0, len(stretches), size))


def without(text: str, stretch: Stretch) -> str:
    """The text without a stretch, and with one space where there were two."""
    side, start, end = stretch
    sides = [text.first, text.second] if isinstance(text, Pair) else [text]
    before, after = sides[side][:start], sides[side][end:]
    if after[:1].isspace() and (not before or before[-1].isspace()):
        after = after[1:]
    sides[side] = before + after
    return Pair(*sides) if isinstance(text, Pair) else sides[0]


def variants(text: str, found: Sequence[Stretch]) -> list[str]:
    """What a classifier is asked: the text, then the text without each stretch."""
    return [text, *(without(text, stretch) for stretch in found)]


def explained(
    text: str, found: Sequence[Stretch], predictions: Sequence[Prediction], label: str | None = None
) -> Explanation:
    """What the answers to `variants` say about the stretches; without a `label` of the likeliest one.

    Raises UserError for a label that the classifier does not know.
    """
    whole = predictions[0].probabilities
    if whole is None:
        if label is not None:
            raise UserError("this model gives a number and has no labels.", remedy="Leave the label out.")
        numbers = [float(prediction.label) for prediction in predictions]  # type: ignore[arg-type]
        answer, values = numbers[0], numbers
    else:
        label = max(whole, key=whole.__getitem__) if label is None else label
        if label not in whole:
            raise UserError(f"the model has no label '{label}'.", remedy=did_you_mean(label, whole))
        answer, values = whole[label], [_log_odds(p.probabilities[label]) for p in predictions if p.probabilities]
    parts = (Part(s, e, values[0] - value, side) for (side, s, e), value in zip(found, values[1:], strict=True))
    return Explanation(text, label, answer, tuple(parts))


def _log_odds(chance: float) -> float:
    chance = min(max(chance, LEAST_CHANCE), 1 - LEAST_CHANCE)
    return math.log(chance / (1 - chance))


def explain(
    model: Classifier | str | Path,
    texts: Iterable[str],
    *,
    label: str | None = None,
    most: int = MOST_PARTS,
    precision: str = "auto",
    device: str = "cpu",
) -> Iterator[Explanation]:
    """Which words of each text, or pair of texts, a classifier's answer hangs on, in order, one text at a time.

    `model` is a classifier or its folder, `label` which answer is explained (None: of each text the likeliest), `most`
    how many parts of a text are left out in turn. A text of N words is read N + 1 times.

    Raises UserError for questions with options, for a label that the classifier does not know, and as `predict` does.
    """
    asked = predictor.loaded(model, precision=precision, device=device)
    return (_explained_by(asked, text, label, most) for text in each_text(texts))


def _explained_by(asked: Classifier, text: str, label: str | None, most: int) -> Explanation:
    found = stretches(text, most)
    return explained(text, found, list(asked.predict(variants(text, found))), label)
