"""Which column is the text and which the label, and what kind of label its values are."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from textgraft.core.errors import UserError, did_you_mean
from textgraft.data.examples import Choice, Label, Pair, TargetKind, is_missing

TEXT_NAMES = (
    *(
        "text",
        "review",
        "content",
        "sentence",
        "body",
        "comment",
        "message",
        "document",
        "tweet",
        "utterance",
    ),
    *(
        "question",
        "review_text",
        "reviewtext",
        "comment_text",
        "full_text",
        "description",
        "abstract",
        "post",
    ),
)
TEXT_COLUMNS = (
    *TEXT_NAMES,
    *("texts", "reviews", "contents", "sentences", "bodies", "comments", "messages", "documents", "tweets"),
    *("utterances", "questions", "descriptions", "abstracts", "posts"),
)
"""What a column of single texts may be called. Plurals last, and not where pairs or options are looked for: beside
another text they may well be how many there are."""
LABEL_NAMES = (
    *(
        "label",
        "labels",
        "class",
        "category",
        "categories",
        "target",
        "targets",
        "sentiment",
        "y",
        "tag",
        "tags",
    ),
    *("intent", "topic", "topics", "polarity", "rating", "stars", "score", "gold_label"),
)
PAIR_NAMES = (
    ("premise", "hypothesis"),
    *((f"{name}{a}", f"{name}{b}") for name in ("sentence", "text", "question") for a, b in (("1", "2"), ("_a", "_b"))),
    *((f"{name}_1", f"{name}_2") for name in ("sentence", "text", "question")),
    *((f"{name}a", f"{name}b") for name in ("sentence", "text")),
    ("query", "passage"),
)
"""What the columns of two texts that belong together are called, in lower case."""
ID_NAMES = ("id", "_id", "uid", "guid", "doc_id", "document_id", "review_id")
_MOST_NUMBER_CLASSES = 20
_NUMBER = re.compile(r"[+-]?(0|[1-9][0-9]*)?(\.[0-9]*)?([eE][+-]?[0-9]+)?")


def find_column(
    columns: Sequence[str], named: str | None, guesses: Sequence[str], option: str, source: str
) -> str | None:
    """The column that the user `named`, else the first of `guesses` that is there, else None.

    Case and outer spaces do not matter. Raises UserError when a named column is not there.
    """
    folded = {str(column).strip().casefold(): column for column in reversed(columns)}
    if named is None:
        return next((folded[guess] for guess in guesses if guess in folded), None)
    if named in columns:
        return named
    if (near := folded.get(str(named).strip().casefold())) is not None:
        return near
    raise UserError(
        f"no column '{named}' for {option}.", where=source, remedy=did_you_mean(str(named), map(str, columns))
    )


def find_text_column(columns: Sequence[str], named: str | None, others: Sequence[str | None], source: str) -> str:
    """The text column: named, guessed by its name, or the only one left beside `others` (label, id)."""
    found = find_column(columns, named, TEXT_COLUMNS, "the text", source)
    if found is not None:
        return found
    left = [column for column in columns if column not in others]
    if len(left) == 1:
        return left[0]
    raise UserError(
        f"no column looks like the text. Columns: {', '.join(map(str, columns))}.",
        where=source,
        remedy="Name it with text=…; a file without a header line needs one.",
    )


def find_pair_columns(
    columns: Sequence[str], text: str | None, text2: str | None, others: Sequence[str | None], source: str
) -> tuple[str, str] | None:
    """The columns of two texts: both named, one named and its partner guessed, or both guessed; None for one text.

    Without `text2` there is a pair only where no column is named and none looks like a text by itself. Raises UserError
    where a named column is not there, or both are one.
    """
    if text2 is None:
        if text is not None or find_column(columns, None, TEXT_NAMES, "", source) is not None:
            return None
        found = ([find_column(columns, None, [name], "", source) for name in pair] for pair in PAIR_NAMES)
        return next(((a, b) for a, b in found if a is not None and b is not None and a not in others), None)
    second = find_column(columns, text2, (), "the second text", source)
    assert second is not None
    if text is None:
        partners = [a for a, b in PAIR_NAMES if b == second.strip().casefold()]
        first = find_column(columns, None, partners, "", source)
        first = first or find_text_column([c for c in columns if c != second], None, others, source)
    else:
        first = find_text_column(columns, text, others, source)
    if first == second:
        raise UserError(f"'{first}' is both texts of the pair.", where=source, remedy="Name two columns.")
    return first, second


def guess_label_column(columns: Sequence[str], table: Sequence[Mapping[str, Any]], id_column: str | None) -> str | None:
    """The label's column by what it holds, of two whose names do not say which it is, beside the id; None if unsure.

    Labels come back: half as many values as rows, at most. Texts hardly do, and are longer.
    """
    left = [column for column in columns if column != id_column]
    if len(left) != 2 or find_pair_columns(left, None, None, (), "") is not None:
        return None
    values = {column: [str(row[column]) for row in table if not is_missing(row.get(column))] for column in left}
    for label, text in (left, left[::-1]):
        names, texts = values[label], values[text]
        few, many = 1 < len(set(names)) <= len(names) / 2, len(set(texts)) > len(texts) / 2
        if few and many and sum(map(len, texts)) * len(names) > sum(map(len, names)) * len(texts):
            return label
    return None


def guess_kind(values: Sequence[Any], separator: str | None = None) -> TargetKind:
    """What label values are: lists, or strings with a `separator`, "multi"; numbers "numeric"; else "single".

    Whole numbers of at most 20 different values are class names ("single"), as in 0/1 or one to five stars.
    """
    if separator is not None or any(_is_list(value) for value in values):
        return "multi"
    present = [value for value in values if not _no_label(value)]
    numbers = {_number(value) for value in present}
    if not numbers or None in numbers:
        return "single"
    whole = all(number is not None and number.is_integer() for number in numbers)
    return "single" if whole and len(numbers) <= _MOST_NUMBER_CLASSES else "numeric"


@dataclass(frozen=True)
class Cells:
    """Turns the raw cells of one source into texts and labels, and knows where each cell stands.

    Every method takes one value a row and raises UserError with the place of a value that does not fit.
    """

    source: str
    unit: str
    lines: Sequence[int]

    def texts(self, values: Sequence[Any]) -> list[str]:
        """Missing cells are "", numbers are written out, half a surrogate pair becomes U+FFFD."""
        return [
            value if type(value) is str and value.isascii() else self.text(value, i) for i, value in enumerate(values)
        ]

    def pairs(self, first: Sequence[Any], second: Sequence[Any]) -> list[str]:
        """Two texts a row. Raises UserError, with the place, where one of the two is missing and the other is not."""
        pairs = [Pair(a, b) for a, b in zip(self.texts(first), self.texts(second), strict=True)]
        for index, pair in enumerate(pairs):
            if bool(pair.first.strip()) != bool(pair.second.strip()):
                which = "second" if pair.first.strip() else "first"
                self.fail(f"the {which} text of the pair is missing.", index, "Fill it in, or take the row out.")
        return list(pairs)

    def labels(self, values: Sequence[Any], kind: TargetKind, separator: str | None) -> list[Label] | None:
        """Labels as `Examples.labels` wants them; None when not one is there."""
        if all(_no_label(value) for value in values):
            return None
        if kind == "numeric":
            return [self._number(value, i) for i, value in enumerate(values)]
        if kind == "multi":
            return [self._names(value, separator, i) for i, value in enumerate(values)]
        return [self._name(value, i) for i, value in enumerate(values)]

    def fail(self, message: str, index: int, remedy: str = "") -> NoReturn:
        """Raise the UserError for row `index`."""
        raise UserError(message, where=f"{self.source} {self.unit} {self.lines[index]}", remedy=remedy)

    def text(self, value: Any, index: int) -> str:
        """One cell as `texts` has them."""
        if is_missing(value):
            return ""
        if isinstance(value, Pair):
            return Pair(self.text(value.first, index), self.text(value.second, index))
        if isinstance(value, Choice):
            options = [self.text(option, index) for option in value.options]
            return Choice(self.text(value.context, index), options, self.text(value.question, index))
        if isinstance(value, (bytes, bytearray, dict)) or _is_list(value):
            self.fail(f"the text is a {type(value).__name__}, not a string.", index)
        text = str(value)
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return text

    def _name(self, value: Any, index: int) -> str:
        if _is_list(value):
            remedy = 'Say kind="multi" if a text can have several labels.'
            self.fail("a list of labels where one is expected.", index, remedy)
        if isinstance(value, dict):
            self.fail("the label is an object, not a string.", index)
        if _no_label(value):
            return ""
        if isinstance(value, float) and value.is_integer():  # whole numbers beside a gap are floats in a frame
            return str(int(value))
        return self.text(value, index)

    def _names(self, value: Any, separator: str | None, index: int) -> tuple[str, ...]:
        if _is_list(value):
            names = [self._name(item, index) for item in value]
        elif _no_label(value):
            names = []
        elif separator is None:
            remedy = 'Say what separates them, for example label_separator="|".'
            self.fail(f"several labels expected, but {value!r} is one string.", index, remedy)
        else:
            names = [name.strip() for name in str(value).split(separator)]
        return tuple(dict.fromkeys(name for name in names if name))

    def _number(self, value: Any, index: int) -> float:
        if _no_label(value):
            return math.nan
        number = _number(value)
        if number is None or math.isinf(number):
            remedy = 'Correct it, or say kind="single" if these are class names.'
            self.fail(f"label {value!r} is not a finite number.", index, remedy)
        return number


def _number(value: Any) -> float | None:
    """The number that a cell is or spells; None for anything else, booleans and codes such as 007 too."""
    if isinstance(value, str):
        value = value.strip()
        return float(value) if _NUMBER.fullmatch(value) and any(c.isdigit() for c in value) else None
    if isinstance(value, bool) or type(value).__name__ == "bool" or _is_list(value) or isinstance(value, dict):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _no_label(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip() in ("", "nan", "NaN")  # what a missing value becomes on its way through CSV
    return is_missing(value)


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple, set, frozenset)) or (
        hasattr(value, "tolist") and getattr(value, "ndim", 0) == 1
    )
