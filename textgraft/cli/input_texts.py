"""Texts from a file, stdin or options, as a stream, each with its id or line number."""

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
from textgraft.data.examples import InputKind, Pair

if TYPE_CHECKING:
    from textgraft.data.examples import Examples

Classifier = Annotated[Path, typer.Argument(help="The folder of a fine-tuned model.")]


TextOptions = Annotated[list[str] | None, typer.Option("--text", help="A text; may be repeated.")]


SecondTextOptions = Annotated[
    list[str] | None, typer.Option("--text2", help="The second text of a pair; one for each --text.")
]


SecondColumn = Annotated[
    str | None,
    typer.Option("--text2-column", help="The column of the second texts; else inferred.", rich_help_panel=o.DATA),
]


TextsColumn = Annotated[
    str | None, typer.Option("--text-column", help="The column of the texts; else inferred.", rich_help_panel=o.DATA)
]


def texts_from_options(texts: list[str] | None, second: list[str] | None) -> list[str] | None:
    """Return the texts of options, as pairs with second texts. Raises UserError for unequal numbers."""
    if not second:
        return texts
    if len(second) != len(texts or ()):
        message = f"there are {len(texts or ())} first texts and {len(second)} second ones."
        raise UserError(message, where="--text2", remedy="Give a --text2 for each --text.")
    return [Pair(a, b) for a, b in zip(texts or (), second, strict=True)]


def keyed_texts(
    file: Path | None, option_texts: list[str] | None, reads: InputKind, columns: Mapping[str, str | None]
) -> tuple[Iterator[dict[str, Any]], Iterable[str]]:
    """Return the keys of texts in the output (id or line number), and the texts; stdin is a stream."""
    if (file is None) == (not option_texts):
        raise UserError("name either a file or texts.", remedy="For example: textgraft predict MODEL reviews.csv")
    numbered: Iterator[dict[str, Any]] = ({"line": number} for number in count(1))
    if file is None:
        return numbered, option_texts or []
    if str(file) == "-":
        lines = stdin_lines(columns["encoding"] or "utf-8")
        return numbered, _stdin_pairs(lines) if reads == "pairs" else lines
    if reads == "choices" or file.is_dir():
        return _all_at_once(o.read_file(file, **columns, kind="choice" if reads == "choices" else None))
    from textgraft.data.readers import read_rows

    keys, texts = tee(read_rows(file, **columns))  # both are consumed in step, so that tee buffers little
    return (key for key, _ in keys), (text for _, text in texts)


def _all_at_once(examples: Examples) -> tuple[Iterator[dict[str, Any]], Iterable[str]]:
    if examples.ids is not None:
        return ({"id": key} for key in examples.ids), examples.texts
    return ({examples.unit: examples.line(index)} for index in range(len(examples))), examples.texts


def stdin_lines(encoding: str) -> Iterator[str]:
    """Yield the lines of stdin. Raises UserError for a line that is not in `encoding`."""
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
    """Yield pairs, which are lines of two texts with a tab between them. Raises UserError for a line without one."""
    for number, line in enumerate(lines, start=1):
        first, tab, second = line.partition("\t")
        if not tab:
            raise UserError("no tab between two texts.", where=f"stdin line {number}")
        yield Pair(first, second)
