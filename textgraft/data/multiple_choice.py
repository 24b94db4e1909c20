"""Questions with options to choose from, out of the rows of a table: context, question, options, and the right one.

As COPA (Roemmele et al. 2011), SWAG and the like are published: one column for each option (`choice1`, `choice2`, …;
`option_a`, …; `ending0`, …) or one column with a list of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from textgraft.core.errors import UserError
from textgraft.data.columns import TEXT_NAMES, Cells, find_column
from textgraft.data.examples import Choice, Label, is_missing

CONTEXT_NAMES = ("context", "premise", "passage", "article", "story", "startphrase", "sent1", *TEXT_NAMES)
QUESTION_NAMES = ("question", "asks-for", "asks_for", "prompt", "sent2")
ANSWER_NAMES = (
    *("answer", "label", "correct", "correct_option", "answerkey", "answer_key", "gold", "gold_label", "target"),
    "most-plausible-alternative",
)
LIST_NAMES = ("choices", "options", "endings", "alternatives")
_OPTION = re.compile(r"(choice|option|ending|alternative|answer)[ _-]?([0-9]+|[a-z])")


def option_columns(columns: Sequence[str]) -> list[str]:
    """The columns of the options in their order, or the one column of lists; none where none look like it."""
    found: dict[str, list[tuple[int, str, str]]] = {}
    for column in columns:
        if match := _OPTION.fullmatch(str(column).strip().casefold()):
            found.setdefault(match[1], []).append((len(match[2]), match[2], column))
    several = [[column for *_, column in sorted(group)] for group in found.values() if len(group) > 1]
    if several:
        return several[0]
    listed = find_column(columns, None, LIST_NAMES, "the options", "")
    return [] if listed is None else [listed]


def looks_like_choices(columns: Sequence[str], text: str | None, text2: str | None) -> bool:
    """Whether rows with these columns are questions with options, though nobody says so."""
    if text is not None or text2 is not None or find_column(columns, None, TEXT_NAMES, "", "") is not None:
        return False
    return len(option_columns(columns)) > 1 and find_column(columns, None, CONTEXT_NAMES, "", "") is not None


def read_choices(
    columns: Sequence[str],
    rows: Sequence[dict[str, Any]],
    cells: Cells,
    *,
    context: str | None = None,
    question: str | None = None,
    answer: str | None = None,
) -> tuple[list[str], list[Label] | None]:
    """A Choice for each row, and the numbers of the right options from "1" on, or None where the rows have no answers.

    Columns that are not named are guessed. An answer is a number from 0 or from 1 on (the file shows which: a 0, or the
    last option's number, is somewhere in it), a letter from A on, or the option itself; "" where it is missing. Raises
    UserError, with the place, for a missing context, fewer than two options, and an answer that names none of them.
    """
    options = option_columns(columns)
    if not options:
        message = f"no columns look like options. Columns: {', '.join(map(str, columns))}."
        remedy = "Call them choice1, choice2, …, or give a list of them in a column named choices."
        raise UserError(message, where=cells.source, remedy=remedy)
    asked = find_column(columns, question, QUESTION_NAMES, "the question", cells.source)
    about = find_column(columns, context, [n for n in CONTEXT_NAMES if n != "question"], "the context", cells.source)
    if about is None and asked is None:
        message = f"no column looks like the context. Columns: {', '.join(map(str, columns))}."
        raise UserError(message, where=cells.source, remedy="Name it with text=….")
    texts: list[str] = []
    for index, row in enumerate(rows):
        parts = [cells.text(row.get(column), index) for column in (about, asked) if column is not None]
        if not parts[0].strip():
            cells.fail("the context is missing.", index, "Fill it in, or take the row out.")
        texts.append(Choice(parts[0], _options(row, options, cells, index), *parts[1:]))
    key = find_column(columns, answer, ANSWER_NAMES, "the answer", cells.source)
    if key is None or all(_absent(row.get(key)) for row in rows):
        return texts, None
    return texts, _answers([row.get(key) for row in rows], texts, cells)


def _options(row: dict[str, Any], columns: Sequence[str], cells: Cells, index: int) -> list[str]:
    values: Any = [row.get(column) for column in columns]
    if len(columns) == 1:
        values = values[0].get("text") if isinstance(values[0], dict) else values[0]
        values = values.tolist() if hasattr(values, "tolist") else values
        if not isinstance(values, list | tuple):
            cells.fail(f"the options are {values!r}, not a list.", index, 'Write ["first option", "second option"].')
    while values and _absent(values[-1]):  # rows of a table may have fewer options than it has columns for
        values = values[:-1]
    options = [cells.text(value, index) for value in values]
    if len(options) < 2 or not all(option.strip() for option in options):
        few = f"{len(options)} option{'s' * (len(options) != 1)} where there should be two or more"
        cells.fail("an option is empty." if len(options) > 1 else f"{few}.", index)
    return options


def _answers(values: Sequence[Any], texts: Sequence[str], cells: Cells) -> list[Label]:
    counts = [len(text.options) for text in texts if isinstance(text, Choice)]
    numbers = [_whole(value) for value in values]
    from_zero = 0 in numbers
    known = from_zero or any(number == count for number, count in zip(numbers, counts, strict=True))
    answers: list[Label] = []
    for index, (value, number, text) in enumerate(zip(values, numbers, texts, strict=True)):
        assert isinstance(text, Choice)
        if _absent(value):
            answers.append("")
            continue
        if number is not None:
            place = number if from_zero else number - 1
            if not known:
                remedy = "Write answers as letters (A, B, …), which leave no doubt."
                cells.fail(f"answer {value} may be counted from 0 or from 1.", index, remedy)
        elif value in text.options:
            place = text.options.index(value)
        else:
            letter = str(value).strip().upper()
            place = ord(letter) - ord("A") if len(letter) == 1 else -1
        if not 0 <= place < len(text.options):
            cells.fail(f"answer {value!r} names none of the {len(text.options)} options.", index)
        answers.append(str(place + 1))
    return answers


def _absent(value: Any) -> bool:
    return is_missing(value) or (isinstance(value, str) and not value.strip())


def _whole(value: Any) -> int | None:
    """The whole number that a cell is or spells."""
    if isinstance(value, bool) or _absent(value):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return int(number) if number.is_integer() else None
