"""Column guessing: which column holds the text and which the label, and the kind of the labels."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from textgraft.core.errors import UserError, did_you_mean
from textgraft.data.examples import MAX_CHARACTERS, Choice, Label, Pair, TargetKind, is_missing
from textgraft.data.label_cells import is_list, is_no_label
from textgraft.data.label_kinds import kind_of_whole_numbers
from textgraft.text.visible import visible

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
"""Names of columns of single texts. Plurals come last and are not used for pairs or options: beside another text they
may be counts.
"""
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
    *("intent", "topic", "topics", "polarity", "rating", "stars", "score", "gold_label", "cats", "accept"),
)
PAIR_NAMES = (
    ("premise", "hypothesis"),
    *((f"{name}{a}", f"{name}{b}") for name in ("sentence", "text", "question") for a, b in (("1", "2"), ("_a", "_b"))),
    *((f"{name}_1", f"{name}_2") for name in ("sentence", "text", "question")),
    *((f"{name}a", f"{name}b") for name in ("sentence", "text")),
    ("query", "passage"),
)
"""Names, in lower case, of the two columns of a pair of texts."""
ID_NAMES = ("id", "_id", "uid", "guid", "doc_id", "document_id", "review_id")
_OF_SQUAD = (("data", "version"), ("title", "paragraphs"), ("context", "qas"))
_OTHER_DATA = (
    *((frozenset(squad), "This looks like SQuAD; textgraft qa reads it.") for squad in _OF_SQUAD),
    *((frozenset((words,)), "Words with tags are read by textgraft tag.") for words in ("tokens", "words")),
)
"""Columns of data that other commands read."""
_NUMBER = re.compile(r"[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


def find_column(
    columns: Sequence[str], named: str | None, guesses: Sequence[str], option: str, source: str
) -> str | None:
    """The column that the user named, else the first guess that exists.

    Case and surrounding spaces are ignored.

    Args:
        columns: Names of all columns.
        named: Name given by the user.
        guesses: Names to try in order, in lower case.
        option: Description of the column for the error message.
        source: Name of the data for the error message.

    Returns:
        The column; None if it is not named and no guess exists.

    Raises:
        UserError: The named column does not exist.

    >>> find_column(["Review", "y"], None, TEXT_NAMES, "the text", "train.csv")
    'Review'
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
    """The text column: named, guessed by its name, or the only one besides `others` (label, id). Raises UserError if
    unclear.
    """
    column = find_column(columns, named, TEXT_COLUMNS, "the text", source)
    if column is not None:
        return column
    remaining = [column for column in columns if column not in others]
    if len(remaining) == 1:
        return remaining[0]
    other = next((say for names, say in _OTHER_DATA if names <= set(columns)), None)
    raise UserError(
        f"no column looks like the text. Columns: {', '.join(map(str, columns))}.",
        where=source,
        remedy=other or "Name it with text=…; a file without a header line needs one.",
    )


def find_pair_columns(
    columns: Sequence[str], text: str | None, text2: str | None, others: Sequence[str | None], source: str
) -> tuple[str, str] | None:
    """The two columns of text pairs: both named, one named and its partner guessed, or both guessed.

    Args:
        columns: Names of all columns.
        text, text2: Names given by the user. Without `text2` there are pairs only if `text` is not named either and no
            column is named like a single text.
        others: Columns that hold something else.
        source: Name of the data for error messages.

    Returns:
        First and second column; None for single texts.

    Raises:
        UserError: A named column does not exist, or both are the same.
    """
    if text2 is None:
        if text is not None or find_column(columns, None, TEXT_NAMES, "", source) is not None:
            return None
        candidates = ([find_column(columns, None, [name], "", source) for name in pair] for pair in PAIR_NAMES)
        return next(((a, b) for a, b in candidates if a is not None and b is not None and a not in others), None)
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
    """Guess the label column of two by their values, where names do not decide.

    Labels repeat, with at most half as many distinct values as rows; texts rarely do, and are longer.

    Args:
        columns: Names of all columns.
        table: The rows.
        id_column: The id column, which is not considered.

    Returns:
        The label column, or None if unclear.
    """
    remaining = [column for column in columns if column != id_column]
    if len(remaining) != 2 or find_pair_columns(remaining, None, None, (), "") is not None:
        return None
    values = {column: [str(row[column]) for row in table if not is_missing(row.get(column))] for column in remaining}
    for label, text in (remaining, remaining[::-1]):
        label_values, texts = values[label], values[text]
        few, many = 1 < len(set(label_values)) <= len(label_values) / 2, len(set(texts)) > len(texts) / 2
        if few and many and sum(map(len, texts)) * len(label_values) > sum(map(len, label_values)) * len(texts):
            return label
    return None


def guess_kind(values: Sequence[Any], name: str = "") -> TargetKind:
    """The kind of target that label values suggest.

    Args:
        values: One value per text.
        name: Name of their column.

    Returns:
        "multi" for lists; for whole numbers that of `kind_of_whole_numbers`; "numeric" for other numbers; else
        "single".

    >>> guess_kind(["pos", "neg"]), guess_kind([0, 1]), guess_kind([0.5, 1.25]), guess_kind([["a"], []])
    ('single', 'single', 'numeric', 'multi')
    """
    if any(is_list(value) for value in values):
        return "multi"
    if (numbers := whole_numbers(values)) is not None:
        return kind_of_whole_numbers(numbers, name)
    present = [_number(value) for value in values if not is_no_label(value)]
    return "single" if not present or None in present else "numeric"


def whole_numbers(values: Sequence[Any]) -> list[float] | None:
    """The numbers of the labels that are not missing; None if there are none, or one is no whole number."""
    numbers: list[float] = []
    for value in values:
        if is_no_label(value):
            continue
        number = _number(value)
        if number is None or not number.is_integer():
            return None
        numbers.append(number)
    return numbers or None


@dataclass(frozen=True)
class Cells:
    """Conversion of the cells of one source into texts and labels, with the location of each row for errors.

    Methods take one value per row and raise UserError, with its location, for an unusable value.
    """

    source: str
    unit: str
    lines: Sequence[int]

    def texts(self, values: Sequence[Any]) -> list[str]:
        """Convert to strings: "" for missing cells, numbers written out, lone surrogates replaced by U+FFFD."""
        return [
            value if type(value) is str and value.isascii() and len(value) <= MAX_CHARACTERS else self.text(value, i)
            for i, value in enumerate(values)
        ]

    def pairs(self, first: Sequence[Any], second: Sequence[Any]) -> list[str]:
        """Convert to `Pair`s. Raises UserError, with the location, where only one of the two texts is missing."""
        pairs = [Pair(a, b) for a, b in zip(self.texts(first), self.texts(second), strict=True)]
        for index, pair in enumerate(pairs):
            if bool(pair.first.strip()) != bool(pair.second.strip()):
                which = "second" if pair.first.strip() else "first"
                self.fail(f"the {which} text of the pair is missing.", index, "Fill it in, or take the row out.")
        return list(pairs)

    def labels(self, values: Sequence[Any], kind: TargetKind) -> list[Label] | None:
        """Labels as in `Examples.labels`; None if all are missing."""
        if all(is_no_label(value) for value in values):
            return None
        read: Mapping[TargetKind, Callable[[Any, int], Label]] = {
            "single": self._name,
            "multi": self._names,
            "numeric": self._number,
            "choice": self._name,
        }
        return [read[kind](value, i) for i, value in enumerate(values)]

    def fail(self, message: str, index: int, remedy: str = "") -> NoReturn:
        """Raise a UserError with the location of row `index`."""
        raise UserError(message, where=f"{self.source} {self.unit} {self.lines[index]}", remedy=remedy)

    def text(self, value: Any, index: int) -> str:
        """Convert one cell as `texts` does."""
        if is_missing(value):
            return ""
        if isinstance(value, Pair):
            return Pair(self.text(value.first, index), self.text(value.second, index))
        if isinstance(value, Choice):
            options = [self.text(option, index) for option in value.options]
            return Choice(self.text(value.context, index), options, self.text(value.question, index))
        if isinstance(value, (bytes, bytearray, dict)) or is_list(value):
            self.fail(f"the text is a {type(value).__name__}, not a string.", index)
        text = str(value)
        if len(text) > MAX_CHARACTERS:
            message = f"a text has {len(text):,} characters, and {MAX_CHARACTERS:,} are the most."
            self.fail(message, index, "Cut it into several texts.")
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return text

    def _name(self, value: Any, index: int) -> str:
        if _is_span(value):
            self.fail(f"{str(value)[:80]} is a span, and no label of a text.", index, "textgraft tag reads spans.")
        if is_list(value):
            remedy = 'Say kind="multi" if a text can have several labels.'
            self.fail("a list of labels where one is expected.", index, remedy)
        if isinstance(value, dict):
            self.fail("the label is an object, not a string.", index)
        if is_no_label(value):
            return ""
        if isinstance(value, float) and value.is_integer():  # whole numbers beside a gap are floats in a frame
            return str(int(value))
        return visible(self.text(value, index))

    def _names(self, value: Any, index: int) -> Label:
        if is_no_label(value):
            return ""
        if not is_list(value):
            remedy = 'Say what separates them, for example label_separator="|".'
            self.fail(f"several labels expected, but {value!r} is one string.", index, remedy)
        return tuple(dict.fromkeys(name for item in value if (name := self._name(item, index))))

    def _number(self, value: Any, index: int) -> float:
        if is_no_label(value):
            return math.nan
        number = _number(value)
        if number is None or math.isinf(number):
            remedy = 'Correct it, or say kind="single" if these are class names.'
            self.fail(f"label {value!r} is not a finite number.", index, remedy)
        return number


def _is_span(value: Any) -> bool:
    """True for a start, an end and a label, in a list or by name, as annotation tools write entities."""
    if isinstance(value, dict):
        return bool(value.keys() & {"start", "start_offset"})
    return isinstance(value, list) and len(value) == 3 and [type(item) for item in value] == [int, int, str]


def _number(value: Any) -> float | None:
    """The number in a cell; None for anything else, including booleans and codes such as 007."""
    if isinstance(value, str):
        value = value.strip()
        return float(value) if _NUMBER.fullmatch(value) else None
    if isinstance(value, bool) or type(value).__name__ == "bool" or is_list(value) or isinstance(value, dict):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):  # integers may be longer than any float
        return None
