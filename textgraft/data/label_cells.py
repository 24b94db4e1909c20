"""Cells of several labels as programs write them: lists and their text, choices, values by label, zeros and ones."""

from __future__ import annotations

import ast
import json
import math
import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from textgraft.data.examples import is_missing

_QUOTED = r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
_ITEM = re.compile(rf"\s*(?:np\.str_\((?P<numpy>{_QUOTED})\)|(?P<quoted>{_QUOTED})|(?P<gap>None|null|nan|NaN))\s*,?\s*")
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?|True|False|true|false")
_WHOLE = re.compile(r"[+-]?(?:0|[1-9][0-9]{0,14})(?:\.0*)?")
_NUMPY = re.compile(r"np\.[a-z]+[0-9_]*\(([^()]*)\)")
_CALLS = ("array", "tensor", "set", "frozenset", "list", "tuple")
_OPTIONS = re.compile(r"(?:,\s*\w+=[^,()=]+)*")
_TRUTH = {"true": True, "false": False}
_BRACKETS = {"[": "]", "(": ")", "{": "}"}
_EMPTY = ("[]", "()", "{}", "set()")
SEPARATORS = "|;,/+&"
"""What people write between several labels of a text."""


@dataclass(frozen=True)
class LabelCells:
    """The values of labels, one per text, with lists in place of all that stands for several labels.

    Attributes:
        values: The values; a list has the labels of a text, and may be empty.
        is_certain: There are lists that cannot be names of classes, as `[a, b]` without quotes could.
        numbered: Number of labels where the values were vectors of 0 and 1, whose labels are numbered from 0; else 0.
    """

    values: list[Any]
    is_certain: bool = True
    numbered: int = 0

    @property
    def has_lists(self) -> bool:
        """True where texts have several labels."""
        return any(is_list(value) for value in self.values)


def unpack(values: Sequence[Any], separator: str | None = None) -> LabelCells:
    """Read the cells of a column of labels.

    Lists are lists, arrays, sets; `{"choices": [...]}` of Label Studio; a value by label, such as spaCy's `cats`, whose
    labels are those of 0.5 and more; and each of them as text, which is what a CSV file has: `['a', 'b']`, `["a"]`,
    `['a' 'b']`, `array(['a', 'b'], dtype=object)`, `[a, b]`. Text in brackets without quotes is a list only where every
    cell has brackets. Where one cell is a list, another is one label. Vectors of 0 and 1 become lists of numbers.

    Args:
        values: One value per text.
        separator: Separator of several labels in one cell that is no list.

    >>> unpack(["['a', 'b']", "['c' 'a']", "[]", ""]).values
    [['a', 'b'], ['c', 'a'], [], '']
    >>> unpack([{"choices": ["a", "b"]}, "c"]).values, unpack([[1, 0, 1], [0, 0, 1]]).values
    ([['a', 'b'], ['c']], [['0', '2'], ['2']])
    """
    present = array("q", (i for i, value in enumerate(values) if not is_no_label(value)))  # of a table of millions
    lists = {i: found for i in present if (found := _list_in(values[i])) is not None}
    bracketed = len(lists) == len(present) and any(not _is_one_name(found.items) for found in lists.values())
    is_certain = any(found.is_certain for found in lists.values())
    if not (bracketed or is_certain):
        if separator is None:
            return LabelCells(list(values))
        lists, is_certain = {}, True
    rows = list(values)
    for i in present:
        rows[i] = lists[i].items if i in lists else _parts(values[i], separator)
    vectors = [rows[i] for i in present]
    if not is_indicator(vectors):
        return LabelCells(rows, is_certain)
    for i in present:
        rows[i] = [str(number) for number, value in enumerate(rows[i]) if _bit(value)]
    return LabelCells(rows, is_certain, len(vectors[0]))


def is_indicator(rows: Sequence[Any]) -> bool:
    """True for vectors of 0 and 1 of one length, two or more; as strings only where one of them repeats a value."""
    if not rows or not all(is_list(row) and not isinstance(row, set | frozenset) for row in rows):
        return False
    if len({len(row) for row in rows}) != 1 or len(rows[0]) < 2:
        return False
    if any(_bit(value) is None for row in rows for value in row):
        return False
    has_text = any(isinstance(value, str) for row in rows for value in row)
    return not has_text or any(len(set(row)) < len(row) for row in rows)


def is_list(value: Any) -> bool:
    """True for a list, tuple, set or array of one dimension."""
    return isinstance(value, (list, tuple, set, frozenset)) or (
        hasattr(value, "tolist") and getattr(value, "ndim", 0) == 1
    )


def is_no_label(value: Any) -> bool:
    """True for a missing value, also after a round trip through CSV."""
    if isinstance(value, str):
        return value.strip() in ("", "nan", "NaN")
    return is_missing(value) or (isinstance(value, Mapping) and not value)


@dataclass(frozen=True)
class _List:
    """The labels in a cell; `is_certain` unless it is text in brackets without quotes, which may be a class."""

    items: list[Any]
    is_certain: bool = True


def _list_in(value: Any) -> _List | None:
    """The list that a cell is, or is the text of; None for any other cell."""
    if isinstance(value, Mapping):
        return _of_mapping(value)
    if is_list(value):
        return _List(sorted(value, key=str) if isinstance(value, set | frozenset) else list(value))
    text = _called_with(value.strip()) if isinstance(value, str) else ""
    if text in _EMPTY:
        return _List([], is_certain=False)
    if len(text) < 2 or _BRACKETS.get(text[0]) != text[-1]:
        return None
    if text[0] == "{" and (mapping := _mapping(text)) is not None:
        return _of_mapping(mapping)
    return _quoted_items(text[1:-1]) or (_bare_items(text[1:-1]) if text[0] == "[" else None)


def _called_with(text: str) -> str:
    """What stands in the brackets of a call such as `array(['a'], dtype=object)`; other text as it is."""
    name, _, rest = text.partition("(")
    if name not in _CALLS or not rest.endswith(")"):
        return text
    inside = rest[:-1].strip()
    if not inside:
        return "[]"
    end = inside.rfind(_BRACKETS[inside[0]]) + 1 if inside[0] in _BRACKETS else 0
    return inside[:end] if end and _OPTIONS.fullmatch(inside, end) else text


def _is_one_name(items: Sequence[Any]) -> bool:
    return len(items) == 1 and not _NUMBER.fullmatch(str(items[0]))


def _of_mapping(value: Mapping[Any, Any]) -> _List | None:
    """Labels of `{"choices": [...]}`, or of a value from 0 to 1 for each label."""
    if list(value) == ["choices"]:
        choices = value["choices"]
        return _List(list(choices) if is_list(choices) else [choices])
    numbers = [float(number) if isinstance(number, int | float) else math.nan for number in value.values()]
    if not numbers or not all(0 <= number <= 1 for number in numbers):
        return None
    return _List([name for name, number in zip(value, numbers, strict=True) if number >= 0.5])


def _mapping(text: str) -> Mapping[Any, Any] | None:
    """The object that a cell is the JSON or the Python notation of."""
    for parse in (json.loads, ast.literal_eval):
        try:
            value = parse(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        return value if isinstance(value, dict) else None
    return None


def _quoted_items(inside: str) -> _List | None:
    """Quoted strings with commas or spaces between them, gaps left out; None for anything else."""
    items: list[Any] = []
    position = 0
    while position < len(inside):
        match = _ITEM.match(inside, position)
        if match is None:
            return None
        if (quoted := match["numpy"] or match["quoted"]) is not None:
            items.append(_unquoted(quoted))
        position = match.end()
    return _List(items)


def _unquoted(quoted: str) -> str:
    try:
        return str(json.loads(quoted) if quoted[0] == '"' else ast.literal_eval(quoted))
    except (ValueError, SyntaxError):
        return quoted[1:-1]


def _bare_items(inside: str) -> _List | None:
    """Numbers with commas or spaces between them, or names with commas between them."""
    parts = [part for part in re.split(r"[\s,]+", _NUMPY.sub(r"\1", inside)) if part]
    if all(_NUMBER.fullmatch(part) for part in parts):
        return _List([_number(part) for part in parts], is_certain=False)
    names: list[Any] = [part.strip() for part in inside.split(",")]
    return _List(names, is_certain=False) if all(names) and not re.search(r"[][(){}\"']", inside) else None


def _number(part: str) -> Any:
    """True, False or a whole number; another number, or a code such as 007, as it is written."""
    if part.casefold() in _TRUTH:
        return _TRUTH[part.casefold()]
    return int(float(part)) if _WHOLE.fullmatch(part) else part


def _parts(value: Any, separator: str | None) -> Any:
    """A cell that is no list as a list; unchanged if missing or an object."""
    if is_no_label(value) or isinstance(value, Mapping):
        return value
    text = str(value)
    if separator is None:
        return [value]
    return [] if text.strip() in _EMPTY else [part for name in text.split(separator) if (part := name.strip())]


def _bit(value: Any) -> bool | None:
    """True for 1, False for 0, None for anything else."""
    if isinstance(value, str):
        value = {"1": 1, "0": 0, "1.0": 1, "0.0": 0}.get(value.strip())
    return bool(value) if value is not None and not is_missing(value) and value in (0, 1) else None
