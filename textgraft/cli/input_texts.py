"""Texts from a file, from stdin or from options, one after the other, each with its id or line number."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import count, tee
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from textgraft.cli import options as o
from textgraft.core.errors import UserError
from textgraft.data.examples import Pair, Reads

if TYPE_CHECKING:
    from textgraft.data.examples import Examples

Classifier = Annotated[Path, typer.Argument(help="The folder of a fine-tuned model.")]


GivenTexts = Annotated[list[str] | None, typer.Option("--text", help="A text itself; may be repeated.")]


GivenSecond = Annotated[list[str] | None, typer.Option("--text2", help="The second text that goes with it.")]


SecondColumn = Annotated[
    str | None,
    typer.Option("--text2-column", help="The column of the second texts; else guessed.", rich_help_panel=o.DATA),
]


TextsColumn = Annotated[
    str | None, typer.Option("--text-column", help="The column of the texts; else guessed.", rich_help_panel=o.DATA)
]


def given_texts(texts: list[str] | None, second: list[str] | None) -> list[str] | None:
    """What was given as options; pairs, where second texts were. Raises UserError for texts without partners."""
    if not second:
        return texts
    if len(second) != len(texts or ()):
        message = f"there are {len(texts or ())} first texts and {len(second)} second ones."
        raise UserError(message, where="--text2", remedy="Give a --text2 for each --text.")
    return [Pair(a, b) for a, b in zip(texts or (), second, strict=True)]


def keyed_texts(
    file: Path | None, given: list[str] | None, reads: Reads, columns: Mapping[str, str | None]
) -> tuple[Iterator[dict[str, Any]], Iterable[str]]:
    """For each text what to know it by in the output (id or line), and the texts; stdin comes as a stream."""
    if (file is None) == (not given):
        raise UserError("name either a file or texts.", remedy="For example: textgraft predict MODEL reviews.csv")
    numbered: Iterator[dict[str, Any]] = ({"line": number} for number in count(1))
    if file is None:
        return numbered, given or []
    if str(file) == "-":
        found = _stdin_lines(columns["encoding"] or "utf-8")
        return numbered, _stdin_pairs(found) if reads == "pairs" else found
    if reads == "choices" or file.is_dir():
        return _all_at_once(o.read_file(file, **columns, kind="choice" if reads == "choices" else None))
    from textgraft.data.readers import read_rows

    keys, texts = tee(read_rows(file, **columns))  # neither is far ahead of the other
    return (key for key, _ in keys), (text for _, text in texts)


def _all_at_once(examples: Examples) -> tuple[Iterator[dict[str, Any]], Iterable[str]]:
    if examples.ids is not None:
        return ({"id": key} for key in examples.ids), examples.texts
    return ({examples.unit: examples.line(index)} for index in range(len(examples))), examples.texts


def _stdin_lines(encoding: str) -> Iterator[str]:
    """The lines of stdin as they come. Raises UserError for one that is not in `encoding`."""
    try:
        codecs.lookup(encoding)
    except LookupError as error:
        raise UserError(f"unknown encoding '{encoding}'.", remedy="Give one such as utf-8 or latin-1.") from error
    for number, line in enumerate(sys.stdin.buffer, start=1):
        try:
            yield line.decode(encoding).rstrip("\r\n")
        except UnicodeDecodeError as error:
            message = f"byte 0x{line[error.start]:02x} is not {encoding}."
            raise UserError(message, where=f"stdin line {number}", remedy="Name it with encoding=….") from error


def _stdin_pairs(lines: Iterable[str]) -> Iterator[str]:
    """Two texts a line, parted by a tab. Raises UserError for a line without one."""
    for number, line in enumerate(lines, start=1):
        first, tab, second = line.partition("\t")
        if not tab:
            raise UserError("there is no tab between two texts.", where=f"stdin line {number}")
        yield Pair(first, second)
