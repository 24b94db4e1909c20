"""Values as programs write them: what is a number, what is a class, and what is neither."""

import warnings

import pytest

from textgraft.core.errors import UserError
from textgraft.data.cells_as_written import columns_without_content, label_cells
from textgraft.data.columns import Cells
from textgraft.data.readers import read


def cells(values: list, kind=None) -> list:  # type: ignore[no-untyped-def]
    return list(label_cells(values, kind, Cells("a.csv", "line", range(2, len(values) + 2))))


@pytest.mark.parametrize(
    ("values", "names"),
    [
        (["1.0", "2.0", "", None], ["1", "2", "", None]),
        (["1", "2.00", "nan"], ["1", "2", "nan"]),
        (["1.0", "2.5"], ["1.0", "2.5"]),
        (["1.0", "n/a"], ["1.0", "n/a"]),
        (["007", "08"], ["007", "08"]),
        ([" bad", "bad ", "good\u00a0"], ["bad", "bad", "good"]),
        ([1.0, 2, True, ["a"]], [1.0, 2, True, ["a"]]),
    ],
)
def test_names_lose_what_a_program_added_and_nothing_else(values: list, names: list) -> None:
    assert cells(values) == names


@pytest.mark.parametrize(
    ("written", "numbers"),
    [
        (["0,5", "12,25", "3"], [0.5, 12.25, 3]),
        (["1.234,5", "2.000", "7"], [1234.5, 2000, 7]),
        (["1,234.5", "2,000", "7"], [1234.5, 2000, 7]),
        (["1,234,567", "1,000"], [1234567, 1000]),
        (["1 234,5", "1\u202f000", "-3"], [1234.5, 1000, -3]),
        (["1'234.5", "1’000"], [1234.5, 1000]),
        (["12 %", "3.5%", ""], [12, 3.5, ""]),
        (["12,5 %", "3%", None], [12.5, 3, None]),
        (["\u22123,5", "+2,0"], [-3.5, 2]),
        (["0,123", "0,456"], [0.123, 0.456]),
    ],
)
def test_a_number_in_any_usual_notation_is_a_number_where_one_is_wanted(written: list, numbers: list) -> None:
    with pytest.warns(UserWarning, match=r"a\.csv: labels such as '.*' are read as numbers, here "):
        assert cells(written, "numeric") == numbers


@pytest.mark.parametrize("plain", [["1.5", "2", "-3e4", " 4 "], ["1.234", "2.345"], [1.5, None], ["0.5", "many"]])
def test_plain_numbers_are_read_as_before_without_a_word(plain: list) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [str(v).strip() for v in cells(plain, "numeric")] == [str(v).strip() for v in plain]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["5", "1,234", "2,500"], r"a\.csv line 3: '1,234' is either 1234 or 1\.234\. Write the numbers without"),
        (["3,5", "3.5"], r"a\.csv line 3: '3\.5' has another decimal separator than '3,5' \(line 2\)"),
        (["50%", "0.5"], r"a\.csv line 3: '0\.5' has no sign for per cent"),
    ],
)
def test_numbers_with_two_readings_are_not_guessed(values: list, message: str) -> None:
    with pytest.raises(UserError, match=message):
        cells(values, "numeric")


@pytest.mark.filterwarnings("ignore:.*are read as numbers")
def test_what_is_no_number_beside_a_decimal_comma_is_named_with_its_line(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "a.csv"
    path.write_text("text;score\na;0,5\nb;dear\n")
    with pytest.raises(UserError, match=r"line 3: label 'dear' is not a finite number"):
        read(path, kind="numeric")


def test_columns_without_content() -> None:
    table = [
        {"": "0", "text": "1", "index": "7", "Unnamed: 2": "x", "notes": "", "n": "1"},
        {"": "1", "text": "2", "index": "7", "Unnamed: 2": "y", "notes": None, "n": "2"},
    ]
    assert columns_without_content(list(table[0]), table) == ["", "notes"]


@pytest.mark.parametrize("train", [["1", "2"], ["1.0", "2.0"], [1, 2], [1.0, 2.0]])
def test_one_and_one_point_nought_are_one_class_everywhere(train: list) -> None:
    assert read((["a", "b"], train)).labels == ["1", "2"]
