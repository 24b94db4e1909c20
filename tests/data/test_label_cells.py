"""Several labels in one cell, in every shape that programs write, and cells that only look like it."""

from typing import Any

import numpy as np
import pytest

from textgraft.data.label_cells import is_indicator, unpack


@pytest.mark.parametrize(
    ("cells", "labels"),
    [
        (["['a', 'b']", "['c']"], [["a", "b"], ["c"]]),  # pandas
        (['["a", "b"]', "[]", ""], [["a", "b"], [], ""]),  # JSON
        (["['a' 'b']", "['c'\n 'a']"], [["a", "b"], ["c", "a"]]),  # numpy
        (["[np.str_('a'), np.str_('b (1)')]", "[]"], [["a", "b (1)"], []]),  # a list of numpy 2's strings
        (["array(['a', 'b'], dtype=object)", "array([], dtype='<U1')"], [["a", "b"], []]),
        (["tensor([0, 1, 1])", "tensor([0, 0, 1])"], [["1", "2"], ["2"]]),
        (["tensor([0., 1.], device='cuda:0')", "tensor([1., 1.], requires_grad=True)"], [["1"], ["0", "1"]]),
        (["frozenset({'a'})", "frozenset()"], [["a"], []]),
        (["('a',)", "('b', 'c')"], [["a"], ["b", "c"]]),
        (["{'a', 'b'}", "set()"], [["a", "b"], []]),
        ([r"""['it\'s', "d'or", 'x, y']""", "['z', nan, None]"], [["it's", "d'or", "x, y"], ["z"]]),
        ([r'["\u00e9t\u00e9 \"89\""]'], [['été "89"']]),
        (["['a', 'b']", "c", " "], [["a", "b"], ["c"], " "]),  # Label Studio's CSV, and cells filled in by hand
        (['{"choices": ["a", "b"]}', "c", "{'choices': ['d']}"], [["a", "b"], ["c"], ["d"]]),
        ([{"choices": ["a", "b"]}, "c", {"choices": "d"}, {"choices": []}], [["a", "b"], ["c"], ["d"], []]),
        ([{"A": 1.0, "B": 0.0}, {"A": 0.2, "B": 0.5}, {}], [["A"], ["B"], {}]),  # spaCy
        (['{"A": true, "B": false}', "{'A': 0, 'B': 0}"], [["A"], []]),
        (["[a, b c]", "[c]", "[]"], [["a", "b c"], ["c"], []]),
        (["[3]", "[27]"], [[3], [27]]),
        (["[np.int64(3), np.int64(4)]", "[5]"], [[3, 4], [5]]),
        (["[007, 008]", "[9]"], [["007", "008"], [9]]),
        (
            [["a"], ("b", "c"), np.array(["d"]), {"f", "e"}, "g", None],
            [["a"], ["b", "c"], ["d"], ["e", "f"], ["g"], None],
        ),
    ],
)
def test_lists_in_every_shape(cells: list[Any], labels: list[Any]) -> None:
    assert unpack(cells).values == labels
    assert unpack(cells).has_lists


@pytest.mark.parametrize(
    "cells",
    [
        ["[deleted]", "spam"],
        ["[pos]", "[neg]"],  # one name in each
        ["[a, b]", "spam"],
        ["list(price)", "set(up)", "tensor(11)", "array(" + ", dtype=" * 50_000],
        ["(0, 10]", "(10, 20]"],  # intervals of pandas
        ["(0, 10)", "(10, 20)"],
        ["(other)", "[]"],
        ["{1}", "{2}"],
        ["a, b", "'a' 'b'", "]["],
        [1, 2.5, "x", True],
        [{"a": 2}, {"a": "b"}],
    ],
)
def test_what_only_looks_like_a_list_is_left_alone(cells: list[Any]) -> None:
    assert unpack(cells).values == cells


def test_names_without_quotes_may_be_classes() -> None:
    assert not unpack(["[a, b]", "[c]"]).is_certain
    assert unpack(["['a', 'b']", "[c]"]).is_certain


def test_a_separator_divides_what_is_no_list() -> None:
    assert unpack(["a | b", "c", "", "[]", "|"], "|").values == [["a", "b"], ["c"], "", [], []]
    assert unpack(["['a, b', 'c']", "d, e"], ",").values == [["a, b", "c"], ["d", "e"]]
    assert unpack([["a"], "b|c"], "|").values == [["a"], ["b", "c"]]


@pytest.mark.parametrize(
    "vectors",
    [
        [[1, 0, 0], [0, 1, 1]],
        [np.array([1.0, 0.0, 0.0]), np.array([0.0, 1.0, 1.0])],
        [[True, False, False], [False, True, True]],
        ["[1, 0, 0]", "[0, 1, 1]"],
        ["[1 0 0]", "[0 1 1]"],
        ["[1. 0. 0.]", "[0. 1. 1.]"],
        ["[ True False False]", "[False  True  True]"],
    ],
)
def test_vectors_of_zeros_and_ones_are_numbered_labels(vectors: list[Any]) -> None:
    cells = unpack([*vectors, None])
    assert cells.values == [["0"], ["1", "2"], None]
    assert cells.numbered == 3


def test_vectors_with_a_separator_are_those_where_a_value_comes_back() -> None:
    assert unpack(["1|0|0", "0|1|1"], "|").values == [["0"], ["1", "2"]]
    assert unpack(["0|1", "1|0"], "|").values == [["0", "1"], ["1", "0"]]  # numbers of labels


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([[1, 0], [0, 1]], True),
        ([[1], [0]], False),
        ([[1, 0], [0, 1, 1]], False),
        ([[1, 2], [0, 1]], False),
        ([{1, 0}, {0, 1}], False),
        ([["a", "b"], ["b", "a"]], False),
        ([], False),
    ],
)
def test_indicators_are_vectors_of_one_length(rows: list[Any], expected: bool) -> None:
    assert is_indicator(rows) == expected
