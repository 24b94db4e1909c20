"""Exact match and F1 by hand, as the official scripts count them."""

from __future__ import annotations

import numpy as np
import pytest

from textgraft.data.squad import Answer, Question, parse_squad
from textgraft.metrics.question_answering import exact_match, f1, normalize_answer, score_answers
from textgraft.tasks.question_answering.predictor import scores


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The  Eiffel-Tower!", "eiffeltower"),  # punctuation goes, and leaves no space
        ("a cat, an owl and the dog", "cat owl and dog"),
        ("Theatre of the Absurd", "theatre of absurd"),  # only whole words are articles
        ("U.S.A.", "usa"),
        ("a.", ""),  # punctuation first, then the article
        ("the-end", "theend"),
        ("“quoted”", "“quoted”"),  # only ASCII punctuation
        ("Der Turm an der Isar", "der turm der isar"),  # the German "an" is taken for the article
        ("ein Haus, das Dach", "ein haus das dach"),
        ("โบสถ์ของ ฮาน", "โบสถ์ของ ฮาน"),
        ("ใน a ปี", "ใน ปี"),
        ("\tone\ntwo\u00a0three ", "one two three"),
    ],
)
def test_normal_forms(text: str, normal: str) -> None:
    assert normalize_answer(text) == normal


def test_exact_match_is_of_normal_forms() -> None:
    assert exact_match("the Tower.", "tower") == 1.0
    assert exact_match("towers", "tower") == 0.0
    assert exact_match("the", "") == 1.0  # both are empty once normalised


def test_f1_counts_words_as_bags() -> None:
    assert f1("the big red dog", "a red dog") == pytest.approx(2 * (2 / 3) * 1 / (2 / 3 + 1))
    assert f1("dog dog cat", "dog cat cat") == pytest.approx(2 / 3)  # one dog and one cat are shared
    assert f1("cat", "dog") == 0.0
    assert f1("", "dog") == 0.0
    assert f1("the", "the") == 0.0  # no word is left to share, as in the script of version 1.1
    assert f1("in der Stadt an der Isar", "Stadt der Isar") == pytest.approx(2 * (3 / 5) * 1 / (3 / 5 + 1))


def test_thai_without_spaces_is_one_word() -> None:
    assert f1("กรุงเทพมหานคร", "กรุงเทพ") == 0.0
    assert f1("กรุงเทพ 308", "308") == pytest.approx(2 / 3)
    assert exact_match("308 คะแนน", "308 คะแนน") == 1.0


def asked(id: str, *golds: str, impossible: bool = False) -> Question:
    return Question(id, "?", tuple(Answer(g, 0) for g in golds), impossible)


def test_the_best_of_the_gold_answers_counts() -> None:
    found = score_answers([asked("a", "in 1889", "1889", "spring of 1889")], {"a": "1889"})
    assert found.exact_match.tolist() == [1.0]
    assert found.f1.tolist() == [1.0]
    part = score_answers([asked("a", "in early 1889", "spring of 1889")], {"a": "early spring 1889"})
    assert part.exact_match.tolist() == [0.0]
    assert part.f1.tolist() == pytest.approx([2 / 3])


def test_missing_predictions_count_as_wrong() -> None:
    found = score_answers([asked("a", "x"), asked("b", "y")], {"a": "x", "c": "z"})
    assert found.exact_match.tolist() == [1.0, 0.0]
    assert found.unanswered == ["b"]


def test_impossible_questions_want_the_empty_answer() -> None:
    questions = [asked("a", impossible=True), asked("b", impossible=True), asked("c", "x")]
    found = score_answers(questions, {"a": "", "b": "something", "c": ""})
    assert found.exact_match.tolist() == [1.0, 0.0, 0.0]
    assert found.f1.tolist() == [1.0, 0.0, 0.0]
    summary = found.summary()
    assert summary["no_answer_accuracy"] == 0.5
    assert summary["has_answer_f1"] == 0.0
    with pytest.raises(ValueError, match="no answer to compare"):
        score_answers([asked("a")], {"a": "x"})


def test_gold_answers_that_normalise_to_nothing() -> None:
    """`evaluate-v2.0.py` gives exact 50 and F1 50 here, `evaluate-v1.1.py` 100 and 0."""
    questions = [asked("a", "the"), asked("b", "A", "Vitamin A")]
    predictions = {"a": "the", "b": ""}
    version_2 = score_answers(questions, predictions, rules="2.0")
    assert (version_2.exact_match.tolist(), version_2.f1.tolist()) == ([1.0, 0.0], [1.0, 0.0])
    version_1 = score_answers(questions, predictions)
    assert (version_1.exact_match.tolist(), version_1.f1.tolist()) == ([1.0, 1.0], [0.0, 0.0])


@pytest.mark.parametrize(("version", "f1"), [("v2.0", 1.0), ("2.0", 1.0), ("1.1", 0.0), ("", 0.0)])
def test_a_file_is_scored_by_the_script_of_its_version(version: str, f1: float) -> None:
    question = {"id": "a", "question": "?", "answers": [{"text": "the", "answer_start": 0}]}
    paragraph = {"context": "the", "qas": [question]}
    squad = parse_squad({"version": version, "data": [{"paragraphs": [paragraph]}]})
    assert scores(squad, {"a": "the"}).f1.tolist() == [f1]


def test_intervals_are_over_questions() -> None:
    """A hundred coins have the binomial's interval, four times as many half of it."""
    widths = {}
    for n in (100, 400):
        questions = [asked(str(i), "x") for i in range(n)]
        summary = score_answers(questions, {str(i): "x" if i % 2 else "y" for i in range(n)}).summary()
        em = summary["exact_match"]
        assert em["mean"] == 0.5
        widths[n] = em["high"] - em["low"]
        assert widths[n] == pytest.approx(2 * 1.96 * np.sqrt(0.25 / n), rel=0.15)
    assert "no_answer_accuracy" not in summary
