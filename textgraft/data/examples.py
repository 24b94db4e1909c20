"""Labelled or unlabelled texts as one plain value, whatever file or frame they came from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from textgraft.core.brief import Brief
from textgraft.core.errors import UserError
from textgraft.core.identity import content_hash

TargetKind = Literal["single", "multi", "numeric", "choice"]
Unit = Literal["line", "row", "item", "file"]
Label = str | tuple[str, ...] | float


class Pair(str):
    r"""Two texts that are classified together: a premise and a hypothesis, or two sentences to compare.

    As a string it is both texts, one per line, so code that counts, hashes or splits texts works for pairs too.

    >>> pair = Pair("A man eats.", "Someone eats.")
    >>> pair.second, str(pair)
    ('Someone eats.', 'A man eats.\nSomeone eats.')
    """

    __slots__ = ("first", "second")
    first: str
    second: str

    def __new__(cls, first: str, second: str) -> Self:
        pair = super().__new__(cls, f"{first}\n{second}")
        pair.first, pair.second = str(first), str(second)
        return pair

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return self.first, self.second


class Choice(str):
    """A multiple-choice question: a context, optionally a question about it, and two or more `options`.

    As a string it is all of them, one per line.
    """

    __slots__ = ("context", "options", "question")
    context: str
    options: tuple[str, ...]
    question: str

    def __new__(cls, context: str, options: Iterable[str], question: str = "") -> Self:
        choices = tuple(map(str, options))
        choice = super().__new__(cls, "\n".join(part for part in (context, question, *choices) if part))
        choice.context, choice.options, choice.question = str(context), choices, str(question)
        return choice

    def __getnewargs__(self) -> tuple[str, tuple[str, ...], str]:  # type: ignore[override]
        return self.context, self.options, self.question

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The context, with the question, paired with each option."""
        context = f"{self.context} {self.question}" if self.question else self.context
        return tuple(Pair(context, option) for option in self.options)


MAX_CHARACTERS = 100_000_000
"""The longest text. A longer one is no text, but a quote that is never closed, or a file of another kind."""
InputKind = Literal["texts", "pairs", "choices"]
"""Kind of an example's input: a single text, a pair, or a question with options."""


def reads(texts: Sequence[str]) -> InputKind:
    """The kind of input of these texts, judged by the first."""
    first = texts[0] if len(texts) else ""
    return "pairs" if isinstance(first, Pair) else "choices" if isinstance(first, Choice) else "texts"


def as_text(value: Any) -> str:
    """Two strings in a tuple or list as a Pair; any other value unchanged."""
    if isinstance(value, tuple | list) and len(value) == 2 and all(isinstance(part, str) for part in value):
        return Pair(*value)
    return value


def each_text(texts: Iterable[Any], *, name: str = "texts") -> Iterator[str]:
    """Validated texts of a list or stream, one at a time, converted by `as_text`.

    Args:
        texts: An iterable of strings, or of pairs of strings.
        name: Name of the argument for error messages.

    Raises:
        UserError: Immediately for a single string, whose characters would be taken for texts; during iteration, with
            the index, for an item that is neither a string nor two strings.
    """
    validate_not_single_text(texts, name=name)
    return (_text(as_text(value), f"{name}[{index}]") for index, value in enumerate(texts))


def validate_not_single_text(texts: Any, *, name: str, remedy: str = "Pass a list of texts.") -> None:
    """Raise UserError for a string where several texts are expected."""
    if isinstance(texts, str | bytes):
        raise UserError("this is one text.", where=name, remedy=remedy)


def validate_types(*, wanted: type | tuple[type, ...], reader: str, **arguments: Any) -> None:
    """Raise UserError for an argument that is not None and not an instance of `wanted`, such as a path.

    Args:
        wanted: The accepted type or types.
        reader: Name of the function that returns them, for the remedy.
        arguments: Values by argument name.
    """
    for name, data in arguments.items():
        if data is not None and not isinstance(data, wanted):
            raise UserError(f"this is of type {type(data).__name__}.", where=name, remedy=f"Pass what {reader} gives.")


def _text(value: Any, where: str) -> str:
    if isinstance(value, str):
        return value
    name, invalid = "the text", value
    if isinstance(value, tuple | list) and len(value) == 2:
        part = next(i for i, half in enumerate(value) if not isinstance(half, str))
        name, invalid = f"text {part + 1} of the pair", value[part]
    description = f"{'missing, ' if is_missing(invalid) else ''}of type {type(invalid).__name__}"
    raise UserError(f"{name} is {description}, not a string.", where=where)


def is_missing(value: Any) -> bool:
    """True for None, NaN, and pandas' NA and NaT."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float) and math.isnan(value)


@dataclass(frozen=True, repr=False)
class Examples(Brief):
    """N texts in file order, with labels and the location of each.

    Missing values are kept, so that line numbers stay correct and `check` can report them.

    Attributes:
        texts: The texts; each may be a Pair or a Choice. "" if missing.
        labels: None for unlabelled text; else per text a string ("single"; "" if missing), a tuple of strings ("multi",
            may be empty), a float ("numeric"; NaN if missing), or the number of the correct option as a string, from
            "1" ("choice").
        kind: Kind of the labels.
        ids: The user's identifiers, if any; for a folder each file's path inside it.
        lines: 1-based numbers in `source`, in units of `unit`.
        source: Name of the file, folder or frame.
        unit: Lines of a file, rows of a frame, list, sheet or database, items of a JSON array, or files of a folder.
    """

    texts: Sequence[str]
    labels: Sequence[Label] | None = None
    kind: TargetKind | None = None
    ids: Sequence[str] | None = None
    lines: Sequence[int] | None = None
    source: str = "<memory>"
    unit: Unit = "line"

    def __len__(self) -> int:
        return len(self.texts)

    def where(self, index: int) -> str:
        """Location of example `index` for messages: `train.csv line 37`, `reviews/pos/9.txt`."""
        if self.unit == "file" and self.ids is not None:
            return f"{self.source}/{self.ids[index]}"
        return f"{self.source} {self.unit} {self.line(index)}"

    def line(self, index: int) -> int:
        """The 1-based line, row or file number of example `index`."""
        return self.lines[index] if self.lines is not None else index + 1

    def content_hash(self) -> str:
        """SHA-256 of all texts and labels, in their order."""
        labels = self.labels or [""] * len(self)
        return content_hash(part for example in zip(self.texts, labels, strict=True) for part in example)

    def take(self, indices: Sequence[int]) -> Examples:
        """The examples at `indices`, in that order."""

        def pick(values: Sequence[Any] | None) -> list[Any] | None:
            return None if values is None else [values[i] for i in indices]

        return Examples(
            texts=[self.texts[i] for i in indices],
            labels=pick(self.labels),
            kind=self.kind,
            ids=pick(self.ids),
            lines=[self.line(i) for i in indices],
            source=self.source,
            unit=self.unit,
        )
