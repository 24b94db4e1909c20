"""Exact match and F1 of answers, as in the official SQuAD scripts.

`evaluate-v1.1.py` (Rajpurkar et al. 2016, §6.1) scores files of that version, and `evaluate-v2.0.py` those of version
2; they differ where an answer is nothing but articles and punctuation. Both handle articles and punctuation of English
only, and split words at spaces: in text without spaces, such as Thai, an answer is one word, so that its F1 hardly
differs from its exact match.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from textgraft.data.squad import Question, Rules
from textgraft.metrics.classification import bootstrap_interval

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = frozenset(string.punctuation)


def normalize_answer(text: str) -> str:
    """Lower-case, remove ASCII punctuation and the words a, an and the, and collapse spaces, in this order.

    >>> normalize_answer("The Eiffel Tower!")
    'eiffel tower'
    """
    bare = "".join(c for c in text.lower() if c not in _PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", bare).split())


def exact_match(predicted: str, gold: str) -> float:
    """1.0 if both are equal after normalisation, else 0.0."""
    return float(normalize_answer(predicted) == normalize_answer(gold))


def f1_of_version_2(predicted: str, gold: str) -> float:
    """`f1`, but 1.0 where both normalise to nothing.

    >>> f1_of_version_2("the", "an"), f1_of_version_2("", "a car")
    (1.0, 0.0)
    """
    normal_forms = normalize_answer(predicted), normalize_answer(gold)
    return f1(predicted, gold) if all(normal_forms) else float(normal_forms[0] == normal_forms[1])


def f1(predicted: str, gold: str) -> float:
    """Harmonic mean of precision and recall over the two bags of words; 0.0 without common words.

    >>> f1("the red house", "a red car")
    0.5
    """
    predicted_words, gold_words = normalize_answer(predicted).split(), normalize_answer(gold).split()
    shared = sum((Counter(predicted_words) & Counter(gold_words)).values())
    if not shared:
        return 0.0
    precision, recall = shared / len(predicted_words), shared / len(gold_words)
    return 2 * precision * recall / (precision + recall)


F1_OF: Mapping[Rules, Callable[[str, str], float]] = {"1.1": f1, "2.0": f1_of_version_2}
"""F1 of each version's script."""


@dataclass(frozen=True)
class AnswerScores:
    """Exact match (N,) and F1 (N,), between 0 and 1, of N questions.

    `unanswered` are the ids without a prediction, which count as wrong.
    """

    ids: list[str]
    impossible: np.ndarray
    exact_match: np.ndarray
    f1: np.ndarray
    unanswered: list[str]

    def summary(self, *, seed: int = 0) -> dict[str, Any]:
        """`questions`, and mean, low and high of `exact_match` and `f1` by a 95 % bootstrap over questions.

        The interval is for other questions on the same articles: questions on one paragraph are not independent, so for
        other articles it is somewhat too narrow. With impossible questions, the result also has both means over
        questions with an answer and the accuracy over those without.
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


def _gold_texts(question: Question, rules: Rules) -> list[str]:
    """The gold answers that a script compares with; version 2's drops those that normalise to nothing."""
    texts = [answer.text for answer in question.answers]
    if rules == "2.0":
        texts = [text for text in texts if normalize_answer(text)]
    return texts or [""]


def score_answers(
    questions: Sequence[Question], predictions: Mapping[str, str], *, rules: Rules = "1.1"
) -> AnswerScores:
    """Best exact match and F1 of each question over its gold answers.

    Args:
        questions: The questions.
        predictions: Predicted answer by question id; a missing one scores 0. For an impossible question only the empty
            answer is correct, by both measures.
        rules: Version of the script; an impossible question is always scored by version 2's.

    Raises:
        ValueError: A question is neither answered nor impossible.
    """
    exact, overlap = [], []
    for question in questions:
        if not question.answers and not question.impossible:
            raise ValueError(f"question '{question.id}' has no answer to compare with")
        predicted = predictions.get(question.id)
        scores = (0.0, 0.0)
        if predicted is not None:
            of_question: Rules = "2.0" if question.impossible else rules
            overlap_of = F1_OF[of_question]
            golds = _gold_texts(question, of_question)
            scores = (max(exact_match(predicted, g) for g in golds), max(overlap_of(predicted, g) for g in golds))
        exact.append(scores[0])
        overlap.append(scores[1])
    return AnswerScores(
        ids=[q.id for q in questions],
        impossible=np.array([q.impossible for q in questions], dtype=bool),
        exact_match=np.array(exact),
        f1=np.array(overlap),
        unanswered=[q.id for q in questions if q.id not in predictions],
    )
