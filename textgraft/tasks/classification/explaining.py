"""Explanations of a classifier's prediction by its words: how it changes when one is left out.

Erasure (Li, Monroe & Jurafsky 2016, arXiv:1612.08220; occlusion, Zeiler & Fergus 2014). It uses
nothing of a classifier but its predictions, so networks, linear classifiers, ensembles and ONNX graphs are explained
alike, and by changes of the prediction instead of gradients. It does not show the joint effect of several words: of two
synonyms each may be left out without a change.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from textgraft.core.brief import Brief
from textgraft.core.errors import UserError, did_you_mean
from textgraft.data.examples import Choice, Pair, each_text
from textgraft.tasks.classification import predictor
from textgraft.tasks.classification.predictor import Classifier, Prediction
from textgraft.text.sentences import sentence_spans
from textgraft.text.words import split_visible_words

MAX_PARTS = 300
"""Maximum number of parts, each of which needs a prediction; of longer texts sentences are left out, not words."""
MIN_PROBABILITY = 1e-6
"""Probabilities are clipped here before log-odds are taken: closer to 0 and 1 float32 is not precise."""

TextSpan = tuple[int, int, int]
"""Text of a pair (0 for the first or a single text, 1 for the second), and characters [start, end) of it."""


@dataclass(frozen=True)
class Part:
    """Characters [start, end) of the text, or of the second text of a pair (`side` 1), and their effect.

    `weight` is the decrease of the prediction's log-odds without them, in nats, or for a number that of the number.
    """

    start: int
    end: int
    weight: float
    side: int = 0


@dataclass(frozen=True, repr=False)
class Explanation(Brief):
    """Explanation of a prediction.

    Attributes:
        text: The text, or pair.
        label: The label that is explained; None for a number.
        answer: The label's probability, or the number.
        parts: The parts that were left out in turn, in order.
        known: False where the model knows nothing in the text (`Prediction.known`).
    """

    text: str
    label: str | None
    answer: float
    parts: tuple[Part, ...]
    known: bool = True

    @property
    def sides(self) -> tuple[str, ...]:
        """The text, or both of a pair."""
        return (self.text.first, self.text.second) if isinstance(self.text, Pair) else (self.text,)

    def text_of(self, part: Part) -> str:
        """The words of a part."""
        return self.sides[part.side][part.start : part.end]

    def ranked(self) -> list[Part]:
        """The parts by decreasing absolute weight."""
        return sorted(self.parts, key=lambda part: -abs(part.weight))

    def as_json(self) -> dict[str, Any]:
        """The prediction and its parts in order, as in JSON; `side` only for pairs."""
        parts = [{"text": self.text_of(part), **vars(part)} for part in self.parts]
        if len(self.sides) == 1:
            for part in parts:
                del part["side"]
        return {"label": self.label, "answer": self.answer, "known": self.known, "parts": parts}


def removable_spans(text: str, most: int = MAX_PARTS) -> list[TextSpan]:
    """Split a text into at most `most` parts to leave out: words, else sentences, else groups of sentences.

    Raises:
        UserError: The text is a question with options.
    """
    if isinstance(text, Choice):
        raise UserError("predictions for questions with options cannot be explained.", remedy="Use texts or pairs.")
    sides = [text.first, text.second] if isinstance(text, Pair) else [text]
    for cut in (split_visible_words, sentence_spans):
        spans = [(side, start, end) for side, words in enumerate(sides) for start, end in cut(words)]
        if len(spans) <= most:
            return spans
    together = math.ceil(len(spans) / most)
    joined = []
    for side in range(len(sides)):
        of_side = [span for span in spans if span[0] == side]
        joined += [(side, part[0][1], part[-1][2]) for part in _chunks(of_side, together)]
    return joined


def _chunks(removable_spans: Sequence[TextSpan], size: int) -> Iterator[Sequence[TextSpan]]:
    return (removable_spans[begin : begin + size] for begin in range(0, len(removable_spans), size))


def without(text: str, span: TextSpan) -> str:
    """Remove a span from a text, and one space where two would be left."""
    side, start, end = span
    sides = [text.first, text.second] if isinstance(text, Pair) else [text]
    before, after = sides[side][:start], sides[side][end:]
    if after[:1].isspace() and (not before or before[-1].isspace()):
        after = after[1:]
    sides[side] = before + after
    return Pair(*sides) if isinstance(text, Pair) else sides[0]


def variants(text: str, spans: Sequence[TextSpan]) -> list[str]:
    """The texts to predict: the text, then the text without each span."""
    return [text, *(without(text, span) for span in spans)]


def explained(
    text: str, spans: Sequence[TextSpan], predictions: Sequence[Prediction], label: str | None = None
) -> Explanation:
    """Compute the weights of spans from the predictions for `variants`.

    Args:
        text: The text.
        spans: The spans that were left out.
        predictions: Predictions for the text and for each variant.
        label: The label to explain (None: the most probable one).

    Raises:
        UserError: The classifier does not have the label.
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
    parts = (Part(s, e, values[0] - value, side) for (side, s, e), value in zip(spans, values[1:], strict=True))
    return Explanation(text, label, answer, tuple(parts), predictions[0].known)


def _log_odds(chance: float) -> float:
    chance = min(max(chance, MIN_PROBABILITY), 1 - MIN_PROBABILITY)
    return math.log(chance / (1 - chance))


def explain(
    model: Classifier | str | Path,
    texts: Iterable[str],
    *,
    label: str | None = None,
    most: int = MAX_PARTS,
    precision: str = "auto",
    device: str = "cpu",
) -> Iterator[Explanation]:
    """Explain the predictions for texts, or pairs of texts, by the effect of each word; one text at a time, in order.

    A text of N words needs N + 1 predictions.

    Args:
        model: A classifier or its folder.
        texts: The texts, or pairs.
        label: The label to explain (None: of each text the most probable one).
        most: Maximum number of parts of a text that are left out in turn.
        precision: "auto", "fp32", "bf16" or "int8".
        device: Device to predict on.

    Raises:
        UserError: A text is a question with options, the classifier does not have the label, or as `predict`.
    """
    classifier = predictor.as_classifier(model, precision=precision, device=device)
    return (_explain(classifier, text, label, most) for text in each_text(texts))


def _explain(classifier: Classifier, text: str, label: str | None, most: int) -> Explanation:
    spans = removable_spans(text, most)
    return explained(text, spans, list(classifier.predict(variants(text, spans))), label)
