"""Evaluation of word vectors: human similarity judgements, and analogies."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textgraft.core.errors import UserError
from textgraft.data.text_files import lines
from textgraft.word_embeddings.word_vectors import WordVectors, unit

RESTRICT = 300_000
"""Number of most frequent words that are candidates for analogies; gensim's number."""
QUESTIONS = 512


@dataclass(frozen=True)
class JudgedPair:
    """Two words with the similarity score that people gave them."""

    first: str
    second: str
    score: float


@dataclass(frozen=True)
class Section:
    """Analogies of one kind: a is to b as c is to d."""

    name: str
    questions: list[tuple[str, str, str, str]]


def read_similarities(path: str | Path) -> list[JudgedPair]:
    """Read lines `word word score`, separated by tabs, else commas, else spaces; # begins a comment.

    Raises:
        UserError: A line has another form, or there are fewer than two pairs.
    """
    pairs = []
    for number, line in enumerate(lines(Path(path)), start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        separator = "\t" if "\t" in text else "," if "," in text else None
        fields = [field.strip() for field in text.split(separator)]
        try:
            first, second, score = fields[0], fields[1], float(fields[2])
        except (IndexError, ValueError):
            score = math.nan
        if not math.isfinite(score):
            remedy = "Each line is two words and a number; a head line begins with #."
            raise UserError(
                f"'{text[:60]}' is not two words and a score.", where=f"{path} line {number}", remedy=remedy
            )
        pairs.append(JudgedPair(first, second, score))
    if len(pairs) < 2:
        raise UserError(
            "there are fewer than two pairs of words in it.", where=str(path), remedy="Is it the right file?"
        )
    return pairs


def read_analogies(path: str | Path) -> list[Section]:
    """Read Google's format: `: name` begins a section, `a b c d` is a question.

    Raises:
        UserError: A question is not four words, or is before the first section.
    """
    sections: list[Section] = []
    for number, line in enumerate(lines(Path(path)), start=1):
        words = line.split()
        where = f"{path} line {number}"
        if words and words[0].startswith(":"):
            sections.append(Section(line.strip().removeprefix(":").strip(), []))
        elif words and not sections:
            raise UserError("a question stands before the first section.", where=where, remedy="Begin with ': name'.")
        elif words:
            if len(words) != 4:
                raise UserError(f"{len(words)} words where a question has four.", where=where, remedy="Is it damaged?")
            sections[-1].questions.append((words[0], words[1], words[2], words[3]))
    if not any(section.questions for section in sections):
        raise UserError("there are no questions in it.", where=str(path), remedy="Is it the right file?")
    return sections


def similarity(vectors: WordVectors, pairs: Sequence[JudgedPair]) -> dict[str, Any]:
    """Spearman's rank correlation of cosines with human scores, over the pairs whose words both have vectors.

    Returns:
        `spearman` with `low` and `high` of its 95 % interval (Bonett & Wright 2000; None for fewer than ten pairs or
        without any spread), `pairs` evaluated, `unknown` pairs left out, and `out_of_vocabulary` pairs among the
        evaluated, in which an n-gram vector replaces a word's.
    """
    from scipy.stats import spearmanr

    left, right = (vectors.vectors(words) for words in ([p.first for p in pairs], [p.second for p in pairs]))
    covered = left.any(axis=1) & right.any(axis=1)
    cosines = (unit(left) * unit(right)).sum(axis=1)[covered]
    scores = np.array([pair.score for pair in pairs])[covered]
    defined = len(scores) > 1 and bool(np.ptp(scores)) and bool(np.ptp(cosines))
    rho = float(spearmanr(cosines, scores).statistic) if defined else None
    composed = sum(pair.first not in vectors or pair.second not in vectors for pair in pairs) - int((~covered).sum())
    low, high = interval(rho, len(scores)) if rho is not None else (None, None)
    counted = {"pairs": len(scores), "unknown": int((~covered).sum()), "out_of_vocabulary": composed}
    return {"spearman": rho, "low": low, "high": high, **counted}


def interval(rho: float, n: int) -> tuple[float | None, float | None]:
    """The 95 % interval of Spearman's rho on n pairs: Fisher's z with variance (1 + rho²/2) / (n - 3)."""
    if n < 10 or abs(rho) >= 1:
        return None, None
    half = 1.959964 * math.sqrt((1 + rho**2 / 2) / (n - 3))
    return math.tanh(math.atanh(rho) - half), math.tanh(math.atanh(rho) + half)


def analogies(vectors: WordVectors, sections: Sequence[Section], *, restrict: int | None = RESTRICT) -> dict[str, Any]:
    """Accuracy by section, of semantic and of syntactic sections (named gram…) and of all, by 3CosAdd.

    Args:
        vectors: Word vectors.
        sections: Questions.
        restrict: Number of most frequent words that are candidates (None: all). Questions with other words are left out
            and counted as `unknown`.

    Returns:
        {"sections": [{name, right, questions, unknown, accuracy}], and the same without a name for "semantic",
        "syntactic" and "total"}; accuracy is None without a question.
    """
    candidates = vectors if restrict is None else vectors.truncated(restrict)
    rows = []
    for section in sections:
        right, evaluated = 0, 0
        for correct in _correct_answers(candidates, section.questions):
            right, evaluated = right + int(correct.sum()), evaluated + len(correct)
        rows.append({"name": section.name, **_accuracy(right, evaluated, len(section.questions) - evaluated)})
    kinds = {
        "semantic": [row for row in rows if not row["name"].startswith("gram")],
        "syntactic": [row for row in rows if row["name"].startswith("gram")],
        "total": rows,
    }
    sums = {
        kind: _accuracy(*(sum(r[k] for r in members) for k in ("right", "questions", "unknown")))
        for kind, members in kinds.items()
    }
    return {"sections": rows, **sums}


def _accuracy(right: int, questions: int, unknown: int) -> dict[str, Any]:
    share = right / questions if questions else None
    return {"right": right, "questions": questions, "unknown": unknown, "accuracy": share}


def _correct_answers(
    vectors: WordVectors, questions: Sequence[tuple[str, str, str, str]]
) -> Iterator[NDArray[np.bool_]]:
    """For a few hundred questions at a time, those with unknown words left out: whether the answer is right."""
    indices = [[vectors.place(word) for word in question] for question in questions]
    complete = np.array([p for p in indices if None not in p], dtype=np.int64).reshape(-1, 4)
    for start in range(0, len(complete), QUESTIONS):
        chunk = complete[start : start + QUESTIONS]
        a, b, c = (unit(vectors[chunk[:, i]]) for i in range(3))
        neighbours = vectors.nearest(unit(b - a + c), 1, [set(row[:3]) for row in chunk.tolist()])
        answers = [vectors.place(neighbour[0][0]) if neighbour else None for neighbour in neighbours]
        yield np.array([answer == expected for answer, expected in zip(answers, chunk[:, 3].tolist(), strict=True)])
