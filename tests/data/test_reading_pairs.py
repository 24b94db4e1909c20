"""Pairs of texts, and questions with options, out of files, frames and lists."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from textgraft.core.errors import UserError
from textgraft.data.checks import check
from textgraft.data.examples import Choice, Examples, Pair, reads
from textgraft.data.labels import Labels
from textgraft.data.readers import read, read_texts


def parts(examples: Examples) -> list[tuple[str, str]]:
    return [(text.first, text.second) for text in examples.texts if isinstance(text, Pair)]


def test_a_pair_is_a_string_of_both_that_survives_copies() -> None:
    pair = Pair("It rains.", "It is wet.")
    assert pair == "It rains.\nIt is wet."
    for again in (copy.deepcopy(pair), pickle.loads(pickle.dumps(pair))):
        assert (again.first, again.second) == ("It rains.", "It is wet.")
    choice = Choice("It rains.", ["Wet.", "Dry."], "What then?")
    again = pickle.loads(pickle.dumps(choice))
    assert (again.context, again.options, again.question) == ("It rains.", ("Wet.", "Dry."), "What then?")
    assert [(p.first, p.second) for p in again.pairs] == [
        ("It rains. What then?", "Wet."),
        ("It rains. What then?", "Dry."),
    ]


@pytest.mark.parametrize(
    "header",
    ["premise,hypothesis", "sentence1,sentence2", "Question1,Question2", "sentence_A,sentence_B", "text_a,text_b"],
)
def test_columns_of_pairs_are_guessed(header: str, tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text(f"id,{header},label\n7,a b,c d,yes\n8,e,f,no\n")
    found = read(path)
    assert parts(found) == [("a b", "c d"), ("e", "f")]
    assert (found.labels, found.ids, reads(found.texts)) == (["yes", "no"], ["7", "8"], "pairs")


def test_columns_of_pairs_are_named(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join(json.dumps({"text": "t", "left": "l", "right": "r", "label": y}) for y in "ab"))
    assert parts(read(path, text="left", text2="right")) == [("l", "r")] * 2
    assert parts(read(path, text2="right")) == [("t", "r")] * 2
    assert read(path).texts == ["t", "t"]  # a column that looks like a text is one


def test_a_single_text_is_read_where_one_column_is_named(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("premise,hypothesis,label\na,b,x\n")
    found = read(path, text="hypothesis")
    assert found.texts == ["b"]
    assert reads(found.texts) == "texts"
    assert list(read_texts(path)) == ["a", "b"]  # a language model reads both


@pytest.mark.parametrize(
    "source",
    [
        ([("a", "b"), ("c", "d")], ["x", "y"]),
        [{"text": "a", "text2": "b", "label": "x"}, {"text": "c", "text2": "d", "label": "y"}],
        pd.DataFrame({"text": ["a", "c"], "text2": ["b", "d"], "label": ["x", "y"]}),
    ],
)
def test_pairs_in_memory(source: Any) -> None:
    found = read(source) if isinstance(source, tuple) else read(source, text2="text2")
    assert parts(found) == [("a", "b"), ("c", "d")]
    assert parts(found.take([1])) == [("c", "d")]
    assert found.labels == ["x", "y"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"text2": "hypothesi"}, "no column 'hypothesi' for the second text. Known:"),
        ({"text": "premise", "text2": "premise"}, "'premise' is both texts of the pair"),
        ({"text2": "note"}, "no column looks like the text"),
        ({}, "pairs.csv line 3: the second text of the pair is missing."),
    ],
)
def test_pairs_that_are_none(columns: dict[str, str], message: str, tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("premise,hypothesis,note,label\na,b,n,x\nc, ,n,y\n")
    with pytest.raises(UserError) as caught:
        read(path, **columns)
    assert message in str(caught.value)


def test_check_finds_what_is_wrong_with_pairs() -> None:
    texts = [Pair("a", "b"), Pair("A", "b"), Pair("", ""), Pair("b", "a")]
    found = {p.name: p.lines for p in check(Examples(texts, ["x", "y", "x", "y"], "single"))}
    assert found["empty-text"] == (3,)
    assert any(lines == (1, 2) for lines in found.values())  # the same pair, with two labels


COPA = [
    {"premise": "It rained.", "question": "effect", "choice1": "Dry.", "choice2": "Wet.", "label": 1},
    {"premise": "He fell.", "question": "cause", "choice1": "Ice.", "choice2": "Sun.", "label": 0},
]


def test_choices_with_a_column_for_each_option(tmp_path: Path) -> None:
    path = tmp_path / "copa.jsonl"
    path.write_text("\n".join(map(json.dumps, COPA)))
    found = read(path, kind="choice")
    assert (found.kind, found.labels) == ("choice", ["2", "1"])
    text = found.texts[0]
    assert isinstance(text, Choice)
    assert (text.context, text.question, text.options) == ("It rained.", "effect", ("Dry.", "Wet."))


def test_choices_are_guessed_where_no_column_is_a_text(tmp_path: Path) -> None:
    path = tmp_path / "swag.csv"
    path.write_text("context,ending1,ending0,ending2,answer\nShe ran,b,a,c,3\nHe ran,b,a,,1\n")
    found = read(path)
    assert [t.options for t in found.texts if isinstance(t, Choice)] == [("a", "b", "c"), ("a", "b")]
    assert found.labels == ["3", "1"]


@pytest.mark.parametrize(
    ("answers", "numbers"),
    [([0, 1], ["1", "2"]), ([1, 2], ["1", "2"]), (["A", "b"], ["1", "2"]), (["no", "yes"], ["2", "1"])],
)
def test_answers_are_numbers_letters_or_options(answers: list[Any], numbers: list[str]) -> None:
    rows = [{"context": "c", "choices": ["yes", "no"], "answer": answer} for answer in answers]
    assert read(rows, kind="choice").labels == numbers


def test_many_options_stand_in_their_numbers_order() -> None:
    rows = [{"context": "c", **{f"choice{n}": f"o{n}" for n in (10, 9, 2, 1, 3, 4, 5, 6, 7, 8)}, "answer": 10}]
    (text,) = read(rows).texts
    assert isinstance(text, Choice)
    assert text.options == tuple(f"o{n}" for n in range(1, 11))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"context": "c", "choices": ["a"], "answer": 1}, "row 1: 1 option where there should be two or more."),
        ({"context": "c", "choices": ["a", " ", "b"], "answer": 1}, "row 1: an option is empty."),
        ({"context": "c", "choices": "a|b", "answer": 1}, "row 1: the options are 'a|b', not a list."),
        ({"context": " ", "choices": ["a", "b"], "answer": 2}, "row 1: the context is missing."),
        ({"context": "c", "choices": ["a", "b"], "answer": "C"}, "row 1: answer 'C' names none of the 2 options."),
        ({"context": "c", "choices": ["a", "b"], "answer": 1}, "answer 1 may be counted from 0 or from 1."),
        ({"context": "c", "text": "x", "label": "y"}, "no columns look like options. Columns: context, text, label."),
        ({"body": "c", "choices": ["a", "b"], "odd": 1}, ""),
        ({"x": "c", "choices": ["a", "b"]}, "no column looks like the context."),
    ],
)
def test_choices_that_are_none(row: dict[str, Any], message: str) -> None:
    if not message:
        assert read([row], kind="choice").labels is None
        return
    with pytest.raises(UserError) as caught:
        read([row], kind="choice")
    assert message in str(caught.value)


def test_labels_of_choices_are_numbers_of_options() -> None:
    texts = [Choice("c", "ab"), Choice("c", "abc")]
    examples = read((texts, ["2", "3"]))
    labels = Labels.fit(examples)
    assert (labels.kind, labels.names) == ("choice", ("1", "2", "3"))
    assert labels.encode(examples).tolist() == [1, 2]
    assert labels.decode(labels.encode(examples)) == ["2", "3"]
    assert Labels.from_json(labels.to_json()) == labels
    with pytest.raises(UserError, match="label '3' is not the number of one of 2 options"):
        labels.encode(read((texts, ["3", "3"])))
    with pytest.raises(UserError, match="there are no options to choose from"):
        labels.encode(Examples(["a", "b"], ["1", "2"], "choice"))
    with pytest.raises(UserError, match="no classes to weight"):
        labels.class_weights(examples, "balanced")
