"""Labels in words: the forms they may have, and what is no label."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from textgraft import UserError
from textgraft.data.examples import Examples
from textgraft.tasks.classification.label_texts import LabelTexts

TOML = """
[labels]
refund = "The customer wants  money back."
delivery = ["A parcel is late.", "Where is my order?"]
other_things = ""

[examples]
refund = ["Give me my money!", "I paid twice."]
"""


def test_a_file_has_names_descriptions_and_examples(tmp_path: Path) -> None:
    path = tmp_path / "labels.toml"
    path.write_text(TOML)
    labels = LabelTexts.of(path)
    assert labels == LabelTexts.of(str(path)) == LabelTexts.of(labels)
    assert labels.names == labels.labels.names == ("delivery", "other_things", "refund")
    assert labels.texts == (
        ("A parcel is late.", "Where is my order?"),
        ("other things",),
        ("The customer wants money back.",),
    )
    texts, targets = labels.labelled
    assert texts == ["Give me my money!", "I paid twice."]
    np.testing.assert_array_equal(targets, [2, 2])


def test_the_forms_without_a_file() -> None:
    forms = ("late_parcel, refund", ["refund", "late_parcel"], {"refund": None, "late_parcel": ""})
    expected = ("late_parcel", "refund"), (("late parcel",), ("refund",))
    for form in forms:
        labels = LabelTexts.of(form)
        assert (labels.names, labels.texts) == expected
        assert labels.labelled[0] == []


@pytest.mark.parametrize(
    ("labels", "parts"),
    [
        ("refund", ["there is one label, 'refund': at least two are needed.", ".toml"]),
        ([], ["there are no labels: at least two are needed."]),
        ("a, b, a", ["the label 'a' is repeated."]),
        ("a,,b", ["a label has no name."]),
        ({"": "x", "b": "y"}, ["a label has no name."]),
        ("lost_card, lost card", ["'lost card' and 'lost_card' have the same text"]),
        ({"a": "The same.", "b": ["the same."]}, ["'a' and 'b' have the same text"]),
        ({"a": 1, "b": "y"}, ["labels, a: 1 is neither a text nor a list of texts."]),
        ({"a": ["x", 2], "b": "y"}, ["labels, a: ['x', 2] is neither"]),
        (5, ["this is of type int, not labels."]),
        (Path("labels.txt"), ["not labels.", ".toml"]),
        ("missing.toml", ["missing.toml: cannot be read (No such file or directory). Check the path."]),
    ],
)
def test_mistakes_are_one_message(labels: Any, parts: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        LabelTexts.of(labels)
    for part in parts:
        assert part in str(caught.value)
    assert caught.value.where
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("refund: money", ["this is not a TOML file", "refund = "]),
        ("", ["there are no labels.", "[labels]"]),
        ("labels = 3", ["labels: this is not a table."]),
        ("[label]\na = ''\nb = ''", ["unknown table 'label'.", "Did you mean 'labels'?"]),
        ("[labels]\na = ''", ["there is one label, 'a'"]),
        ("[labels]\na = ''\nb = 7", ["labels, b: 7 is neither"]),
        ("[labels]\na = ''\na = ''", ["this is not a TOML file"]),
        ("[labels]\na = ''\nb = ''\n[examples]\nc = 'x'", ["there are examples of 'c', which is no label."]),
    ],
)
def test_mistakes_in_a_file_name_the_file(content: str, parts: list[str], tmp_path: Path) -> None:
    path = tmp_path / "labels.toml"
    path.write_text(content)
    with pytest.raises(UserError) as caught:
        LabelTexts.of(path)
    for part in (str(path), *parts):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("test", "part"),
    [
        (Examples(["x", "y"], ["a", "c"], "single", source="t.csv"), "t.csv line 2: 'c' is none of the labels."),
        (Examples(["x"], [""], "single", source="t.csv"), "t.csv line 1: the label is missing."),
        (Examples(["x"], source="t.csv"), "t.csv: there are no labels."),
        (Examples(["x"], [1.0], "numeric", source="t.csv"), "one label a text"),
    ],
)
def test_a_test_set_has_the_same_labels(test: Examples, part: str) -> None:
    labels = LabelTexts.of("a, b")
    labels.validate(Examples(["x"], ["a"], "single"))
    with pytest.raises(UserError) as caught:
        labels.validate(test)
    assert part in str(caught.value)
