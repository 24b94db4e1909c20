"""Whole numbers are codes of classes or a quantity, by their spread and the name of the column."""

import pytest

from textgraft.data.label_kinds import kind_of_whole_numbers, reading_of_whole_numbers

CODES = [*range(30)] * 4
WITH_GAPS = [*range(100, 1000, 30)] * 4


@pytest.mark.parametrize(
    "name", ["intent", "class", "category", "label", "Labels", "intent_id", "classId", "topic code"]
)
@pytest.mark.parametrize("values", [CODES, WITH_GAPS])
def test_a_name_of_classes_makes_codes_classes(name: str, values: list[int]) -> None:
    assert kind_of_whole_numbers(values, name) == "single"


@pytest.mark.parametrize("name", ["rating", "score", "Age", "price_eur", "label_score", "percentage"])
@pytest.mark.parametrize("values", [CODES, WITH_GAPS])
def test_a_name_of_a_quantity_makes_them_a_quantity(name: str, values: list[int]) -> None:
    assert kind_of_whole_numbers(values, name) == "numeric"


def test_other_names_leave_it_to_the_spread() -> None:
    assert kind_of_whole_numbers(CODES, "target") == "single"
    assert kind_of_whole_numbers([n + 1 for n in CODES], "y") == "single"
    assert kind_of_whole_numbers(WITH_GAPS, "target") == "numeric"
    assert kind_of_whole_numbers([n - 15 for n in CODES], "target") == "numeric"


def test_numbers_that_hardly_come_back_are_a_quantity() -> None:
    assert kind_of_whole_numbers([*range(30)], "label") == "numeric"
    assert kind_of_whole_numbers([*range(30)] * 2, "label") == "single"


def test_twenty_numbers_are_classes_whatever_their_name() -> None:
    assert kind_of_whole_numbers([*range(20)], "score") == "single"
    assert kind_of_whole_numbers([*range(21)], "score") == "numeric"


def test_the_reading_says_how_to_change_it() -> None:
    assert reading_of_whole_numbers(1200, "'x'", "numeric") == (
        "the 1,200 different whole numbers of 'x' are read as a quantity (regression). If they are codes of classes, "
        'say kind="single".'
    )
    assert reading_of_whole_numbers(30, "'x'", "single").endswith(
        'classes. If they are a quantity, say kind="numeric".'
    )
