"""Multiple-choice questions from table rows: context, question, options, and the correct option.

Layouts of COPA (Roemmele et al. 2011), SWAG and similar data: a column per option (`choice1`, `choice2`, …; `option_a`,
…; `ending0`, …) or one column of lists.
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
    """Columns of the options in order, or the one column of lists; empty if none is named like that."""
    groups: dict[str, list[tuple[int, str, str]]] = {}
    for column in columns:
        if match := _OPTION.fullmatch(str(column).strip().casefold()):
            groups.setdefault(match[1], []).append((len(match[2]), match[2], column))
    option_groups = [[column for *_, column in sorted(group)] for group in groups.values() if len(group) > 1]
    if option_groups:
        return option_groups[0]
    list_column = find_column(columns, None, LIST_NAMES, "the options", "")
    return [] if list_column is None else [list_column]


def looks_like_choices(columns: Sequence[str], text: str | None, text2: str | None) -> bool:
    """True if columns are named like those of multiple-choice questions and the user named none."""
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
    """Build a Choice per row, with the number of its correct option.

    Args:
        columns: Names of all columns.
        rows: The rows.
        cells: Conversion and error locations.
        context, question, answer: Column names given by the user; guessed if None. An answer is a number from 0 or from
            1 (the file decides: it contains a 0 or the last option's number), a letter from A, or the option itself;
            empty if missing.

    Returns:
        Questions, and the numbers of correct options as strings from "1" ("" if missing), or None without answers.

    Raises:
        UserError: A context is missing, there are fewer than two options, or an answer matches none; with the location.
    """
    options = option_columns(columns)
    if not options:
        message = f"no columns look like options. Columns: {', '.join(map(str, columns))}."
        remedy = "Name them choice1, choice2, …, or put lists in a column named choices."
        raise UserError(message, where=cells.source, remedy=remedy)
    question_column = find_column(columns, question, QUESTION_NAMES, "the question", cells.source)
    context_column = find_column(
        columns, context, [n for n in CONTEXT_NAMES if n != "question"], "the context", cells.source
    )
    if context_column is None and question_column is None:
        message = f"no column looks like the context. Columns: {', '.join(map(str, columns))}."
        raise UserError(message, where=cells.source, remedy="Name it with text=….")
    texts: list[str] = []
    for index, row in enumerate(rows):
        parts = [
            cells.text(row.get(column), index) for column in (context_column, question_column) if column is not None
        ]
        if not parts[0].strip():
            cells.fail("the context is missing.", index, "Fill it in, or take the row out.")
        texts.append(Choice(parts[0], _options(row, options, cells, index), *parts[1:]))
    key = find_column(columns, answer, ANSWER_NAMES, "the answer", cells.source)
    if key is None or all(_is_absent(row.get(key)) for row in rows):
        return texts, None
    return texts, _answers([row.get(key) for row in rows], texts, cells)


def _options(row: dict[str, Any], columns: Sequence[str], cells: Cells, index: int) -> list[str]:
    values: Any = [row.get(column) for column in columns]
    if len(columns) == 1:
        values = values[0].get("text") if isinstance(values[0], dict) else values[0]
        values = values.tolist() if hasattr(values, "tolist") else values
        if not isinstance(values, list | tuple):
            cells.fail(f"the options are {values!r}, not a list.", index, 'Write ["first option", "second option"].')
    while values and _is_absent(values[-1]):  # a row may have fewer options than the table has columns for them
        values = values[:-1]
    options = [cells.text(value, index) for value in values]
    if len(options) < 2 or not all(option.strip() for option in options):
        few = f"{len(options)} option{'s' * (len(options) != 1)} where there should be two or more"
        cells.fail("an option is empty." if len(options) > 1 else f"{few}.", index)
    return options


def _answers(values: Sequence[Any], texts: Sequence[str], cells: Cells) -> list[Label]:
    counts = [len(text.options) for text in texts if isinstance(text, Choice)]
    numbers = [_integer(value) for value in values]
    from_zero = 0 in numbers
    unambiguous = from_zero or any(number == count for number, count in zip(numbers, counts, strict=True))
    answers: list[Label] = []
    for index, (value, number, text) in enumerate(zip(values, numbers, texts, strict=True)):
        assert isinstance(text, Choice)
        if _is_absent(value):
            answers.append("")
            continue
        if number is not None:
            option = number if from_zero else number - 1
            if not unambiguous:
                remedy = "Write answers as letters (A, B, …), which leave no doubt."
                cells.fail(f"answer {value} may be counted from 0 or from 1.", index, remedy)
        elif value in text.options:
            option = text.options.index(value)
        else:
            letter = str(value).strip().upper()
            option = ord(letter) - ord("A") if len(letter) == 1 else -1
        if not 0 <= option < len(text.options):
            cells.fail(f"answer {value!r} names none of the {len(text.options)} options.", index)
        answers.append(str(option + 1))
    return answers


def _is_absent(value: Any) -> bool:
    return is_missing(value) or (isinstance(value, str) and not value.strip())


def _integer(value: Any) -> int | None:
    """The whole number in a cell; None for anything else."""
    if isinstance(value, bool) or _is_absent(value):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return int(number) if number.is_integer() else None
