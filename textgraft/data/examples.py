"""Labelled or unlabelled texts as one plain value, whatever file or frame they came from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from textgraft.core.errors import UserError

TargetKind = Literal["single", "multi", "numeric", "choice"]
Unit = Literal["line", "row", "file"]
Label = str | tuple[str, ...] | float
ONE_OF = ("single", "choice")
"""The kinds of target of which a text has exactly one."""


class Pair(str):
    """Two texts that are judged together, `first` and `second`: a premise and a hypothesis, two sentences to compare.

    As a string it is both, one a line, so that whatever counts, hashes or splits texts needs to know nothing of pairs.
    """

    __slots__ = ("first", "second")
    first: str
    second: str

    def __new__(cls, first: str, second: str) -> Self:
        made = super().__new__(cls, f"{first}\n{second}")
        made.first, made.second = str(first), str(second)
        return made

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return self.first, self.second


class Choice(str):
    """A question with its answers to choose from: a context, perhaps a question about it, and two or more `options`.

    As a string it is all of them, one a line. `pairs` are the context, with the question, beside each option.
    """

    __slots__ = ("context", "options", "question")
    context: str
    options: tuple[str, ...]
    question: str

    def __new__(cls, context: str, options: Iterable[str], question: str = "") -> Self:
        given = tuple(map(str, options))
        made = super().__new__(cls, "\n".join(part for part in (context, question, *given) if part))
        made.context, made.options, made.question = str(context), given, str(question)
        return made

    def __getnewargs__(self) -> tuple[str, tuple[str, ...], str]:  # type: ignore[override]
        return self.context, self.options, self.question

    @property
    def pairs(self) -> tuple[Pair, ...]:
        asked = f"{self.context} {self.question}" if self.question else self.context
        return tuple(Pair(asked, option) for option in self.options)


InputKind = Literal["texts", "pairs", "choices"]
"""What stands where a text is: one text, two to judge together, or options to choose from."""


def reads(texts: Sequence[str]) -> InputKind:
    """What these texts are, judged by the first."""
    first = texts[0] if len(texts) else ""
    return "pairs" if isinstance(first, Pair) else "choices" if isinstance(first, Choice) else "texts"


def as_text(value: Any) -> str:
    """A text as it is, two strings in a tuple or list as a Pair."""
    if isinstance(value, tuple | list) and len(value) == 2 and all(isinstance(part, str) for part in value):
        return Pair(*value)
    return value


def each_text(given: Iterable[Any], *, name: str = "texts") -> Iterator[str]:
    """Texts one by one, as `as_text` has them, of a list or a stream that is called `name`.

    Raises UserError, at once where it is one text by itself, whose characters would else be taken for texts; and with
    its place for anything that is not one string, or two, when it comes.
    """
    validate_not_single_text(given, name=name)
    return (_text(as_text(value), f"{name}[{index}]") for index, value in enumerate(given))


def validate_not_single_text(given: Any, *, name: str, remedy: str = "Pass a list of texts.") -> None:
    """Raises UserError for a string where several are to be."""
    if isinstance(given, str | bytes):
        raise UserError("this is one text.", where=name, remedy=remedy)


def validate_types(*, wanted: type | tuple[type, ...], reader: str, **given: Any) -> None:
    """Raises UserError where one of `given`, if anything, is not what `reader` made, such as the path of a file."""
    for name, data in given.items():
        if data is not None and not isinstance(data, wanted):
            raise UserError(f"this is of type {type(data).__name__}.", where=name, remedy=f"Pass what {reader} gives.")


def _text(value: Any, where: str) -> str:
    if isinstance(value, str):
        return value
    what, wrong = "the text", value
    if isinstance(value, tuple | list) and len(value) == 2:
        part = next(i for i, half in enumerate(value) if not isinstance(half, str))
        what, wrong = f"text {part + 1} of the pair", value[part]
    found = f"{'missing, ' if is_missing(wrong) else ''}of type {type(wrong).__name__}"
    raise UserError(f"{what} is {found}, not a string.", where=where)


def is_missing(value: Any) -> bool:
    """None, NaN, pandas' NA and NaT."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float) and math.isnan(value)


@dataclass(frozen=True)
class Examples:
    """N texts in file order, with their labels and where each one stands.

    A text may be a Pair or a Choice. `labels` is None for unlabelled text; else one entry a text: a string (`kind`
    "single"), a tuple of strings ("multi", may be empty), a float ("numeric"), or for a Choice the number of the right
    option as a string, counted from 1 ("choice"). What is missing is kept, so that lines stay true and `check`
    can name them: an empty text is "", a missing label "" (single) or NaN (numeric). `lines` are 1-based numbers
    in `source` of what `unit` says: lines of a file, rows of a frame, list or Parquet file, or files
    of a folder. `ids` are the user's own identifiers, if any; for a folder the path of each file inside it.
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
        """The place of example `index` as a person would look it up: `train.csv line 37`, `reviews/pos/9.txt`."""
        if self.unit == "file" and self.ids is not None:
            return f"{self.source}/{self.ids[index]}"
        return f"{self.source} {self.unit} {self.line(index)}"

    def line(self, index: int) -> int:
        """The 1-based line, row or file number of example `index`."""
        return self.lines[index] if self.lines is not None else index + 1

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
