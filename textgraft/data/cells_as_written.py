"""Values as spreadsheets and other programs write them: 1.0 for 1, 3,5 for 3.5, empty columns, numbers of rows."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from textgraft.data.columns import Cells
from textgraft.data.examples import TargetKind
from textgraft.data.label_cells import is_no_label
from textgraft.data.targets import TARGETS
from textgraft.text.visible import visible

_WHOLE = re.compile(r"([+-]?[0-9]+)(?:\.0+)?")
_INDEX = re.compile(r"|index|unnamed: \d+", re.IGNORECASE)
_GROUP_SPACE = re.compile("(?<=\\d)[ \u00a0\u2007\u2009\u202f'’](?=\\d{3}(?!\\d))")
"""A space or apostrophe before three digits."""


def columns_without_content(columns: Sequence[str], table: Sequence[Mapping[str, Any]]) -> list[str]:
    """Columns that are no text and no label: those without a value, and an index of the rows.

    An index has no name, or is named index or as pandas does ("Unnamed: 0"), and holds different whole numbers.

    >>> columns_without_content(["", "a", "b"], [{"": 0, "a": "x", "b": ""}, {"": 1, "a": "y", "b": None}])
    ['', 'b']
    """
    return [column for column in columns if _is_without_content(str(column), [row.get(column) for row in table])]


def _is_without_content(name: str, values: Sequence[Any]) -> bool:
    if all(is_no_label(value) for value in values):
        return True
    if _INDEX.fullmatch(name.strip()) is None:
        return False
    numbers = [str(value).strip() for value in values]
    return all(number.isdecimal() for number in numbers) and len(set(numbers)) == len(numbers)


def label_cells(values: Sequence[Any], kind: TargetKind | None, cells: Cells) -> Sequence[Any]:
    """Label values without what their program added: 1.0 for 1, spaces around names, separators in numbers.

    Args:
        values: A value per row.
        kind: Kind that the user named, if any.
        cells: Locations of the rows, for errors.

    Returns:
        For a quantity numbers where a string was one; else strings in their visible form, and without decimals where
        all are whole numbers.

    Raises:
        UserError: Numbers have two readings, such as 1,234, or no common one.
    """
    trimmed = [visible(value) if type(value) is str else value for value in values]
    if kind is not None and not TARGETS[kind].has_classes:
        return _numbers(trimmed, cells)
    return without_decimals(trimmed)


def without_decimals(values: Sequence[Any]) -> list[Any]:
    """The values, where all strings are whole numbers without their decimals.

    >>> without_decimals(["1.0", "2"]), without_decimals(["1.0", "2.5"])
    (['1', '2'], ['1.0', '2.5'])
    """
    whole = {value: _WHOLE.fullmatch(value) for value in values if type(value) is str and not is_no_label(value)}
    if not all(whole.values()):
        return list(values)
    return [match[1] if type(value) is str and (match := whole.get(value)) else value for value in values]


def number_in_another_notation(values: Sequence[Any]) -> str | None:
    """A value that only `label_cells` for a quantity reads as a number, where all are numbers; else None.

    >>> number_in_another_notation(["0,5", "12"]), number_in_another_notation(["0.5"])
    ('0,5', None)
    """
    present = [value for value in values if not is_no_label(value)]
    if any(type(value) is not str for value in present):
        return None
    distinct = list(dict.fromkeys(present))
    numbers = _Numbers.of(distinct)
    return None if len(numbers.texts) < len(distinct) or not numbers.unusual else distinct[numbers.unusual[0]]


@dataclass(frozen=True)
class _Notation:
    """A way to write numbers: the character before the decimals, and the one between groups of three digits."""

    decimal: str
    group: str

    def reads(self, text: str) -> bool:
        whole = rf"(?:[1-9]\d{{0,2}}(?:{re.escape(self.group)}\d{{3}})+|\d+)"
        decimals = re.escape(self.decimal)
        number = rf"[+-]?(?:{whole}(?:{decimals}\d*)?|{decimals}\d+)(?:[eE][+-]?\d+)?"
        return re.fullmatch(number, text, re.ASCII) is not None

    def value(self, text: str) -> float:
        return float(text.replace(self.group, "").replace(self.decimal, "."))


_POINT, _COMMA = _Notation(".", ","), _Notation(",", ".")


def _numbers(values: Sequence[Any], cells: Cells) -> Sequence[Any]:
    """The values, with strings that are numbers in any usual notation as floats; a warning says so.

    Strings that are none are left to `Cells.labels`, which knows the row.
    """
    numbers, unusual = _Numbers.of(values)
    if not unusual:
        return values
    _validate_percent(values, cells)
    notation = _notation(numbers, values, cells)
    read = [notation.value(numbers[i]) if i in numbers else value for i, value in enumerate(values)]
    example = max(unusual, key=lambda i: (not read[i].is_integer(), len(values[i])))
    sign = " per cent" if values[example].endswith("%") else ""
    message = (
        f"{cells.source}: labels such as '{values[example]}' are read as numbers, here {read[example]:.10g}{sign}."
    )
    warnings.warn(message, stacklevel=4)
    return read


class _Numbers(NamedTuple):
    """The strings that are numbers in any notation, bare and by index; and the indices of those float does not read."""

    texts: Mapping[int, str]
    unusual: Sequence[int]

    @classmethod
    def of(cls, values: Sequence[Any]) -> _Numbers:
        bare = {i: _bare(value) for i, value in enumerate(values) if type(value) is str and not is_no_label(value)}
        texts = {i: text for i, text in bare.items() if _POINT.reads(text) or _COMMA.reads(text)}
        return cls(texts, [i for i, text in texts.items() if text != values[i] or "," in text])


def _bare(text: str) -> str:
    """A number without a sign for per cent, and without what is neither a comma nor a point between its digits."""
    return _GROUP_SPACE.sub("", text.removesuffix("%").strip().replace("\u2212", "-"))


def _validate_percent(values: Sequence[Any], cells: Cells) -> None:
    signs = {i: str(value).endswith("%") for i, value in enumerate(values) if not is_no_label(value)}
    if any(signs.values()) and not all(signs.values()):
        index = next(i for i, sign in signs.items() if not sign)
        message = f"{values[index]!r} has no sign for per cent, and other labels have one."
        cells.fail(message, index, "Write all labels with it, or none.")


def _notation(numbers: Mapping[int, str], values: Sequence[Any], cells: Cells) -> _Notation:
    """The notation in which all `numbers`, by index, can be read."""
    fitting = [notation for notation in (_POINT, _COMMA) if all(map(notation.reads, numbers.values()))]
    commas = [i for i, text in numbers.items() if "," in text]
    if len(fitting) == 1 or not commas:
        return fitting[0] if fitting else _POINT
    index = commas[0]
    if fitting:
        message = f"{values[index]!r} is either {_POINT.value(numbers[index]):g} or {_COMMA.value(numbers[index]):g}."
        cells.fail(message, index, "Write the numbers without separators of thousands, as 1234 or 1.234.")
    one, other = (next(i for i, text in numbers.items() if not some.reads(text)) for some in (_POINT, _COMMA))
    message = f"{values[other]!r} has another decimal separator than {values[one]!r} ({cells.unit} {cells.lines[one]})."
    cells.fail(message, other, "Write all numbers in one way, such as 1234.5.")
