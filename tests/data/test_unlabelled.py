"""Rows without a label are unlabelled text beside training texts, and left out of a test set."""

import math
from typing import Any

import pytest

from textgraft.core.errors import UserError
from textgraft.data.checks import check
from textgraft.data.examples import Examples, Pair
from textgraft.data.held_out import read_held_out
from textgraft.data.labels import Labels
from textgraft.data.readers import read
from textgraft.data.unlabelled import labelled_only, split_unlabelled, with_unlabelled


@pytest.mark.parametrize(
    ("labels", "kept"),
    [
        (["pos", None, "neg", ""], ["pos", "neg"]),
        ([0.5, None, 1.5, math.nan], [0.5, 1.5]),
        ([["a"], None, [], math.nan], [("a",), ()]),  # an empty list is no gap
        (["['a']", "", "[]", None], [("a",), ()]),
    ],
)
def test_gaps_are_unlabelled_text(labels: list[Any], kept: list[Any]) -> None:
    examples = read((["t1", "t2", "t3", " "], labels))
    labelled, texts = split_unlabelled(examples)
    assert (labelled.labels, labelled.lines, texts) == (kept, [1, 3], ["t2"])
    Labels.fit(labelled)
    with pytest.raises(UserError, match=r"row 2: the label is missing \(2 texts have none\)"):
        Labels.fit(examples)


def test_texts_of_pairs_come_apart() -> None:
    pairs = Examples([Pair("a", "b"), Pair("c", "d")], ["x", ""], "single")
    assert split_unlabelled(pairs)[1] == ["c", "d"]


def test_all_labels_or_none_leave_all_as_it_is() -> None:
    for examples in (Examples(["a"], ["x"], "single"), Examples(["a"], [""], "single"), Examples(["a"])):
        assert split_unlabelled(examples) == (examples, [])
        assert with_unlabelled(examples, ["u"]) == (examples, ["u"])
        assert with_unlabelled(examples, None) == (examples, None)


def test_it_is_said() -> None:
    examples = Examples(["a", "b", "c"], ["x", "", "y"], "single", source="train.csv")
    with pytest.warns(UserWarning, match=r"train\.csv: 1 of 3 texts have no label and are used as unlabelled text\."):
        assert with_unlabelled(examples, ["u"])[1] == ["u", "b"]
    with pytest.warns(UserWarning, match=r"train\.csv: 1 of 3 texts have no label and are left out\."):
        assert labelled_only(examples).texts == ["a", "c"]


def test_check_tells_a_test_text_among_the_unlabelled_rows_from_a_training_text() -> None:
    texts = [f"text {i}" for i in range(20)]
    train = read(([*texts, "shared", "text 1"], [*(["pos", "neg"] * 10), None, None]))
    test = read((["Shared", "new"], ["pos", "neg"]))
    found = {problem.name: problem.severity for problem in check(train, test=test)}
    assert found["test-leak-unlabelled"] == "warning"
    assert "test-leak-training" not in found
    assert "conflicting-labels" not in found  # a gap contradicts nothing


def test_a_held_out_part_has_the_kind_of_the_training_texts() -> None:
    train = read((["a", "b"] * 30, [*range(30)] * 2), kind="single")
    assert read_held_out((["c"] * 25, [*range(25)]), train).labels[3] == "3"
    assert read_held_out((["c"] * 25, [*range(25)]), train, kind="numeric").labels[3] == 3.0
    several = read((["a", "b"], [["x"], ["x", "y"]]))
    assert read_held_out((["c"], ["x"]), several).labels == ["x"]
