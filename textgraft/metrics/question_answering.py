"""Exact match and F1 of answers, as the official scripts of SQuAD compute them.

`evaluate-v1.1.py` (Rajpurkar et al. 2016, §6.1) and, for questions without an answer, `evaluate-v2.0.py`. Both know the
articles and the punctuation of English only, and count words by spaces: in a text without spaces, such as Thai, an
answer is one word, so that its F1 hardly differs from its exact match.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from textgraft.data.squad import Question
from textgraft.metrics.classification import bootstrap_interval

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = frozenset(string.punctuation)


def normalize_answer(text: str) -> str:
    """Lower case, without ASCII punctuation, without the words a, an and the, and with single spaces; in this order."""
    bare = "".join(c for c in text.lower() if c not in _PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", bare).split())


def exact_match(predicted: str, gold: str) -> float:
    """1.0 if the two are equal once normalised, else 0.0."""
    return float(normalize_answer(predicted) == normalize_answer(gold))


def f1(predicted: str, gold: str) -> float:
    """The harmonic mean of precision and recall over the words of the two as bags; 0.0 where they share none."""
    of_predicted, of_gold = normalize_answer(predicted).split(), normalize_answer(gold).split()
    shared = sum((Counter(of_predicted) & Counter(of_gold)).values())
    if not shared:
        return 0.0
    precision, recall = shared / len(of_predicted), shared / len(of_gold)
    return 2 * precision * recall / (precision + recall)


@dataclass(frozen=True)
class AnswerScores:
    """N questions in their order, each with its exact match and its F1 (N,), between 0 and 1.

    `unanswered` are the ids that the predictions lacked, which count as wrong.
    """

    ids: list[str]
    impossible: np.ndarray
    exact_match: np.ndarray
    f1: np.ndarray
    unanswered: list[str]

    def summary(self, *, seed: int = 0) -> dict[str, Any]:
        """`questions`, and `exact_match` and `f1` each as mean, low and high of a 95 % bootstrap over questions.

        The interval is that of other questions on the same articles, about the same text: questions on one paragraph
        are not drawn independently, so for other articles it is somewhat too narrow. With impossible questions, also
        the two means over those that have an answer and the accuracy over those that have none.
        """
        result: dict[str, Any] = {"questions": len(self.ids), "unanswered": len(self.unanswered)}
        for name in ("exact_match", "f1"):
            result[name] = bootstrap_interval(getattr(self, name), seed=seed)._asdict()
        if self.impossible.any():
            result["no_answer_accuracy"] = float(self.exact_match[self.impossible].mean())
            if not self.impossible.all():
                answered = ~self.impossible
                result["has_answer_exact_match"] = float(self.exact_match[answered].mean())
                result["has_answer_f1"] = float(self.f1[answered].mean())
        return result


def score_answers(asked: Sequence[Question], predictions: Mapping[str, str]) -> AnswerScores:
    """Each question's best exact match and best F1 over its gold answers; a missing prediction scores 0.

    An impossible question is right with the empty answer, and only so, by both measures (version 2's script). Raises
    ValueError for a question that is neither answered nor impossible.
    """
    exact, overlap = [], []
    for question in asked:
        if not question.answers and not question.impossible:
            raise ValueError(f"question '{question.id}' has no answer to compare with")
        predicted = predictions.get(question.id)
        if predicted is None:
            scores = (0.0, 0.0)
        elif question.impossible:
            scores = (exact_match(predicted, ""),) * 2
        else:
            golds = [a.text for a in question.answers]
            scores = (max(exact_match(predicted, g) for g in golds), max(f1(predicted, g) for g in golds))
        exact.append(scores[0])
        overlap.append(scores[1])
    return AnswerScores(
        ids=[q.id for q in asked],
        impossible=np.array([q.impossible for q in asked], dtype=bool),
        exact_match=np.array(exact),
        f1=np.array(overlap),
        unanswered=[q.id for q in asked if q.id not in predictions],
    )
