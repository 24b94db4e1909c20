"""Labels of a table as the command line and Python read them, and what is said where they were guessed."""

import json
import warnings
from pathlib import Path
from typing import Any

import pandas
import pytest

from textgraft.core.errors import UserError
from textgraft.data.checks import check
from textgraft.data.label_columns import find_label_columns
from textgraft.data.problems import has_errors
from textgraft.data.readers import read

TEXTS = ["The novel won a prize", "Voters went to the polls", "The coach changed the team", "The goal came late"]
SETS = [("culture",), ("politics",), ("culture", "sport"), ()]
NAMES = ("culture", "politics", "sport")
VECTORS = [[int(name in row) for name in NAMES] for row in SETS]


@pytest.fixture(autouse=True)
def nothing_unexpected() -> Any:
    with warnings.catch_warnings(action="error"):
        yield


def csv_of(path: Path, header: str, rows: list[Any]) -> Path:
    frame = pandas.DataFrame({"text": TEXTS, header: rows})
    frame.to_csv(path, index=False)
    return path


def test_list_strings_of_pandas_are_several_labels(tmp_path: Path) -> None:
    examples = read(csv_of(tmp_path / "a.csv", "labels", [list(row) for row in SETS]))
    assert (examples.kind, examples.labels) == ("multi", SETS)
    separated = read(tmp_path / "a.csv", label_separator=",")
    assert separated.labels == SETS


def test_json_and_label_studio_and_spacy_and_frames_say_the_same(tmp_path: Path) -> None:
    cats = [{name: float(name in row) for name in NAMES} for row in SETS]
    choices = [row[0] if len(row) == 1 else {"choices": list(row)} for row in SETS]
    for name, column, values in [("l", "labels", SETS), ("c", "cats", cats), ("s", "topic", choices)]:
        rows = [{"text": text, column: value} for text, value in zip(TEXTS, values, strict=True)]
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(rows))
        assert read(path).labels == read(rows).labels == read(pandas.DataFrame(rows)).labels == SETS
        written = csv_of(
            tmp_path / f"{name}.csv", column, [json.dumps(v) if isinstance(v, dict) else v for v in values]
        )
        assert read(written).labels == SETS


def test_vectors_are_numbered_labels_and_it_is_said(tmp_path: Path) -> None:
    path = tmp_path / "hot.jsonl"
    path.write_text("".join(json.dumps({"text": t, "labels": v}) + "\n" for t, v in zip(TEXTS, VECTORS, strict=True)))
    with pytest.warns(UserWarning, match=r"hot.jsonl: the vectors of 0 and 1 in 'labels' are read as 3 labels.*label="):
        examples = read(path)
    assert (examples.kind, examples.labels) == ("multi", [("0",), ("1",), ("0", "2"), ()])


@pytest.mark.parametrize("label", ["culture,politics,sport", " culture, Politics ,sport", list(NAMES), NAMES])
def test_columns_of_zeros_and_ones_are_several_labels(label: Any, tmp_path: Path) -> None:
    frame = pandas.DataFrame({"text": TEXTS} | {name: [row[i] for row in VECTORS] for i, name in enumerate(NAMES)})
    frame.to_csv(tmp_path / "a.csv", index=False)
    assert read(tmp_path / "a.csv", label=label).labels == SETS
    assert read(frame, label=label).kind == "multi"
    assert read(frame.astype(dict.fromkeys(NAMES, bool)), label=label).labels == SETS
    assert read(frame.astype(dict.fromkeys(NAMES, float)), label=label).labels == SETS
    with pytest.warns(UserWarning, match=r"If columns of 0 and 1 are labels, say label=culture,politics,sport\."):
        assert read(tmp_path / "a.csv").labels is None


def test_a_row_without_marks_is_unlabelled_and_a_mark_can_be_a_cross() -> None:
    rows = [("x", "", ""), ("", "X", "yes"), ("", None, float("nan")), ("0", "no", "False"), ("", "x", "")]
    table = [dict(zip(("text", *NAMES), (f"t{i}", *row), strict=True)) for i, row in enumerate(rows)]
    assert read(table, label=NAMES).labels == [("culture",), ("politics", "sport"), "", (), ("politics",)]
    with pytest.raises(UserError, match=r"<memory> row 2: column 'sport' of labels has 0\.7 where 0 or 1"):
        read([table[0], table[1] | {"sport": 0.7}], label=NAMES)


@pytest.mark.parametrize("marks", [("1.0", "0"), ("x", ""), ("TRUE", "FALSE"), (True, None), ("yes", "no")])
def test_columns_of_any_marks_are_pointed_out(marks: tuple[Any, Any]) -> None:
    table = [{"text": f"t{i}", "toxic": marks[i % 2], "rude": marks[i // 2]} for i in range(4)]
    with pytest.warns(UserWarning, match=r"no column is named like a label.*say label=toxic,rude\."):
        assert read(table).labels is None


@pytest.mark.parametrize("number", ["0,5", "5 %", "1 000", "\u22125"])
def test_numbers_in_the_notation_of_a_spreadsheet_are_classes_with_a_warning(number: str) -> None:
    rows = [{"text": f"t{i}", "score": value} for i, value in enumerate([number, "12", number, "12"])]
    said = rf"numbers of 'score', such as '{number}', are read as classes.*kind=\"numeric\""
    with pytest.warns(UserWarning, match=said):
        assert read(rows).kind == "single"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(rows, kind="single")
        read([row | {"score": f"a {row['score']}"} for row in rows])


@pytest.mark.parametrize("blank", ["\u00a0", "\u200b", "\ufeff", " \t"])
def test_a_class_has_one_name_whatever_a_reader_does_not_see(blank: str) -> None:
    names = ["good", f"good{blank}", f"{blank}good", "bad"]
    assert read((TEXTS, names)).labels == ["good", "good", "good", "bad"]
    sets = read((TEXTS, [[name, "x"] for name in names])).labels
    assert sets == [("good", "x"), ("good", "x"), ("good", "x"), ("bad", "x")]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": "Ann", "label": [[0, 3, "PER"]]}, r"row 1: \[0, 3, 'PER'\] is a span.* textgraft tag reads spans"),
        ({"text": "Ann", "label": [{"start": 0, "end": 3, "label": "PER"}]}, r"row 1: .* is a span"),
        ({"tokens": ["Ann"], "ner_tags": ["O"]}, "Words with tags are read by textgraft tag"),
        ({"version": "2.0", "data": []}, "textgraft qa reads it"),
    ],
)
def test_data_of_another_command_is_sent_there(row: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        read([row])


def test_one_column_whose_name_has_a_comma_is_one_column() -> None:
    assert find_label_columns(["text", "a,b", "a", "b"], "a,b", "") == ("a,b",)
    assert find_label_columns(["text", "a", "b"], "a,b", "") == ("a", "b")
    assert find_label_columns(["text"], None, "") == ()
    with pytest.raises(UserError, match="no column 'c' for the label"):
        find_label_columns(["text", "a", "b"], "a,c", "t.csv")
    with pytest.raises(UserError, match=r"t\.csv: the label column 'a' is named twice"):
        find_label_columns(["text", "a", "b"], "a,A", "t.csv")


def test_one_label_in_each_list_may_be_one_class() -> None:
    with pytest.warns(UserWarning, match=r"'label' can have several labels.*exactly one.*kind=\"single\""):
        assert read((TEXTS, ["['a']", "['b']", "['a']", "['b']"])).kind == "multi"
    assert read((TEXTS, ["['a']", "['b']", "['a']", "['b']"]), kind="single").labels == ["a", "b", "a", "b"]
    assert read((TEXTS, [{"A": 1.0, "B": 0.0}] * 4), kind="single").labels == ["A"] * 4
    with pytest.raises(UserError, match=r'a list of labels where one is expected.*kind="multi"'):
        read((TEXTS, SETS), kind="single")


def test_brackets_without_quotes_are_said_and_can_be_kept() -> None:
    cells = ["[a, b]", "[c]", "[a]", "[b]"]
    with pytest.warns(UserWarning, match=r"'label' are read as lists of labels.*kind=\"single\""):
        assert read((TEXTS, cells)).labels == [("a", "b"), ("c",), ("a",), ("b",)]
    assert read((TEXTS, cells), kind="single").labels == cells


def test_whole_numbers_with_a_point_are_the_same_classes() -> None:
    for kind in (None, "single"):
        assert read((TEXTS, ["1.0", "2.0", "", "1.0"]), kind=kind).labels == ["1", "2", "", "1"]
    assert read((TEXTS, ["1.0", "1.1", "v", "1.0"])).labels == ["1.0", "1.1", "v", "1.0"]


def test_more_than_twenty_whole_numbers_are_said_and_can_be_said_otherwise() -> None:
    assert read((["t"] * 20, list(range(20)))).kind == "single"
    with pytest.warns(UserWarning, match=r"21 different whole numbers of 'label'.* a quantity.*say kind=\"single\""):
        assert read((["t"] * 21, list(range(21)))).kind == "numeric"
    with pytest.warns(UserWarning, match=r"21 different whole numbers of 'label'.* classes.*say kind=\"numeric\""):
        assert read((["t"] * 42, [*range(21)] * 2)).labels[20] == "20"
    assert read((["t"] * 21, list(range(21))), kind="single").labels[20] == "20"
    assert read((["t"] * 42, [*range(21)] * 2), kind="numeric").labels[20] == 20.0


@pytest.mark.parametrize("name", ["intent", "class", "category", "label"])
def test_a_test_file_has_the_kind_of_the_training_file(name: str, tmp_path: Path) -> None:
    lines = [f"some words {i} of {i % 30},{i % 30}" for i in range(120)]
    (tmp_path / "train.csv").write_text("\n".join([f"text,{name}", *lines]))
    (tmp_path / "test.csv").write_text("\n".join([f"text,{name}", *(f"other {line}" for line in lines[:29])]))
    with pytest.warns(UserWarning, match=f"the 30 different whole numbers of '{name}' are read as classes"):
        train = read(tmp_path / "train.csv")
    assert train.kind == "single"
    assert not has_errors(check(train, test=tmp_path / "test.csv"))
